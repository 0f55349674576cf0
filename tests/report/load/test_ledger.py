"""`workbench runs`, `diff` and `export` on a store whose scores are known."""

from __future__ import annotations

import json
import statistics as plain
import subprocess
import sys
from pathlib import Path
from typing import Any

import made
import pandas as pd
import pytest

from workbench.errors import InputError
from workbench.report.load import ledger
from workbench.store.run_store import RunStore

ARMS = ("rtd", "bert-mlm")


def command(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "workbench", *words], capture_output=True, text=True, cwd=cwd)


def test_rows_hold_what_the_files_hold(ledger_store: tuple[RunStore, str]) -> None:
    store, _ = ledger_store
    rows = {row["run_id"]: row for row in ledger.rows(store)}
    assert len(rows) == len(store.runs()) == 15
    for run in store.runs():
        row, spec = rows[run.run_id], run.spec()
        untrained = spec.budget.steps == 0
        objective, kind = ("untrained", "untrained") if untrained else (spec.objective, "pre-training")
        assert (row["objective"], row["kind"]) == (objective, kind)
        assert (row["seed"], row["optim.lr"]) == (spec.seed, spec.optim.lr)
        files = [json.loads(path.read_text()) for path in (run.path / "scores").glob("*.json")]
        for task in ("order", "next"):
            assert row[f"score.{task}"] == pytest.approx(plain.fmean(f["value"] for f in files if f["task"] == task))
        assert row["score"] == pytest.approx((row["score.order"] + row["score.next"]) / 2)
        assert row["state"] == run.state


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (["objective=rtd"], 6),
        (["objective!=rtd"], 9),
        (["objective=bert-mlm"], 6),  # the untrained encoders have no objective
        (["objective=untrained"], 3),
        (["kind=untrained"], 3),
        (["kind=pre-training", "seed=0"], 4),
        (["seed<2"], 10),
        (["seed>=2", "objective=rtd"], 2),
        (["state=diverged"], 1),
        (["budget.steps=20"], 6),
        (["optim.lr>0"], 15),
        (["score<0"], 0),
        (["spent.steps>10"], 5),  # the one that diverged has spent nothing that counts
    ],
)
def test_conditions(ledger_store: tuple[RunStore, str], where: list[str], count: int) -> None:
    assert len(ledger.chosen(ledger.rows(ledger_store[0]), where, None)) == count


def test_order_puts_what_is_missing_last(ledger_store: tuple[RunStore, str]) -> None:
    found = ledger.rows(ledger_store[0])
    for sort, sign in (("spent.steps", 1), ("-spent.steps", -1)):
        steps = [row.get("spent.steps") for row in ledger.chosen(found, [], sort)]
        assert steps[-1] is None and steps[:-1] == sorted(steps[:-1], key=lambda s: sign * s)  # type: ignore[operator]
    names = [row["objective"] for row in ledger.chosen(found, [], "objective")]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("where", "sort", "columns", "said"),
    [
        (["objectve=rtd"], None, None, "did you mean 'objective'"),
        (["objective"], None, None, "key=value"),
        ([], "lr", None, "did you mean 'optim.lr'"),
        ([], None, "run_id,scoer", "did you mean 'score"),
    ],
)
def test_what_no_run_has_is_named(
    ledger_store: tuple[RunStore, str], where: list[str], sort: str | None, columns: str | None, said: str
) -> None:
    found = ledger.rows(ledger_store[0])
    with pytest.raises(InputError, match=said):
        ledger.shown(found, ledger.chosen(found, where, sort), columns)


def test_diff_shows_only_what_differs(ledger_store: tuple[RunStore, str]) -> None:
    store, _ = ledger_store
    a, b = (ledger.row_of(store.get(made.spec_of("rtd", seed, {"steps": 10}).name)) for seed in (0, 1))
    spec, came = ledger.differences(a, b)
    assert [row["key"] for row in spec] == ["seed"] and (spec[0]["a"], spec[0]["b"]) == (0, 1)
    scores = {row["key"]: row for row in came if row["key"].startswith("score")}
    assert set(scores) == {"score", "score.probes", "score.order", "score.next"}
    assert scores["score"]["b - a"] == pytest.approx(b["score"] - a["score"])
    assert not any(row["a"] == row["b"] for row in (*spec, *came))
    assert ledger.differences(a, a) == ([], [])


def test_a_setting_that_an_older_version_lacked_is_no_difference(
    ledger_store: tuple[RunStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may hold runs from before a setting existed: what was in effect then is compared, and asked for."""
    store, _ = ledger_store
    old, new = (store.get(made.spec_of("rtd", seed, {"steps": 10}).name) for seed in (0, 1))
    read = ledger.optional

    def older(path: Path, records: Any) -> Any:
        content = read(path, records)
        if path == old.path / "spec.json":
            schedule = {k: v for k, v in content["spec"]["schedule"].items() if k not in ("floor", "until")}
            return {**content, "spec": {**content["spec"], "schedule": schedule}}
        return content

    monkeypatch.setattr(ledger, "optional", older)
    rows = [ledger.row_of(run) for run in (old, new)]
    assert [row["key"] for row in ledger.differences(*rows)[0]] == ["seed"]
    assert len(ledger.chosen(rows, ["schedule.until=1"], None)) == 2


def test_runs_are_found_by_a_part_of_their_name(ledger_store: tuple[RunStore, str]) -> None:
    store, _ = ledger_store
    whole = made.spec_of("rtd", 0, {"steps": 10}).name
    assert ledger.find_run(store, whole).run_id == ledger.find_run(store, whole[-12:]).run_id == whole
    with pytest.raises(InputError, match="part of the names of 6 runs"):
        ledger.find_run(store, "rtd")
    with pytest.raises(InputError, match="no run 'nothing-of-the-kind'"):
        ledger.find_run(store, "nothing-of-the-kind")


def test_commands(ledger_store: tuple[RunStore, str], tmp_path: Path) -> None:
    store, name = ledger_store
    root = str(store.root)
    listed = command("runs", "--runs", root, "--where", "objective=rtd", "--sort", "-score", "--json")
    rows = json.loads(listed.stdout)
    scores = [row["score"] for row in rows]
    assert len(rows) == 6 and scores == sorted(scores, reverse=True)
    a, b = (made.spec_of(arm, 0, {"steps": 10}).name for arm in ARMS)
    told = command("diff", a, b[-12:], "--runs", root).stdout
    assert "objective  rtd" in told and "A single run of each gives no interval" in told and "optim.lr" not in told
    out = tmp_path / "new" / "scores.parquet"
    assert command("export", name, "--runs", root, "--format", "parquet", "--out", str(out)).returncode == 0
    assert len(pd.read_parquet(out)) == 15 * 4 - 3
    for words in (
        ("export", name, "--runs", root, "--format", "xlsx"),
        ("export", name, "--runs", root, "--format", "parquet"),
        ("export", "ablatoin", "--runs", root),
        ("diff", "rtd", a, "--runs", root),
        ("runs", "--runs", root, "--where", "sed=1"),
    ):
        done = command(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == "", words


def test_listing_runs_loads_no_table_library(ledger_store: tuple[RunStore, str]) -> None:
    code = (
        "import sys; from workbench.cli import app\n"
        f"app(['runs', '--runs', {str(ledger_store[0].root)!r}], standalone_mode=False)\n"
        "print([m for m in ('pandas', 'torch', 'numpy', 'matplotlib') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]", done.stderr
