"""The table of a store's runs, the differences of two runs, and the record that a word means."""

from __future__ import annotations

import json
import logging
import shutil
import statistics as plain
import subprocess
import sys
from collections import Counter
from pathlib import Path

import made
import pandas as pd
import parsed
import pytest
from click.testing import Result
from typer.testing import CliRunner

from workbench.cli import app
from workbench.errors import InputError
from workbench.report import write
from workbench.report.load import runs_table
from workbench.report.load.runs_table import described, find_record, record_states
from workbench.spec.stages import BoundRun
from workbench.store.run_store import ExperimentRecord, RunStore

ARMS = ("rtd", "bert-mlm")


def command(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_rows_hold_what_the_files_hold(ledger_store: tuple[RunStore, str]) -> None:
    store, _ = ledger_store
    rows = {row["run_id"]: row for row in runs_table.rows(store)}
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
        assert row["suites"] == "probes"


def test_a_run_that_cannot_be_read_has_no_tags() -> None:
    unread = {"run_id": "a", "state": "damaged", "note": "it is gone"}
    tagged = {"run_id": "b", "state": "done", "note": "", "tags": "best, for-paper"}
    assert runs_table.filtered([unread, tagged], ["tags=best"], None) == [tagged]


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
    assert len(runs_table.filtered(runs_table.rows(ledger_store[0]), where, None)) == count


def test_order_puts_what_is_missing_last(ledger_store: tuple[RunStore, str]) -> None:
    found = runs_table.rows(ledger_store[0])
    for sort, sign in (("spent.steps", 1), ("-spent.steps", -1)):
        steps = [row.get("spent.steps") for row in runs_table.filtered(found, [], sort)]
        assert steps[-1] is None and steps[:-1] == sorted(steps[:-1], key=lambda s: sign * s)  # type: ignore[operator]
    names = [row["objective"] for row in runs_table.filtered(found, [], "objective")]
    assert names == sorted(names)


def test_the_usual_columns_show_suites_of_own_tasks_and_not_their_tasks() -> None:
    own = {"run_id": "a", "suites": "pairs, plurals", "score.pairs": 60.0, "score.match": 1.0, "score.plurals": 2.0}
    rows = [own, {"run_id": "b", "suites": "linear", "score.linear": 5.0}, {"run_id": "c", "state": "damaged"}]
    shown = runs_table.with_columns(rows, rows, None)[0]
    assert [key for key in shown if key.startswith("score.")] == ["score.pairs", "score.linear", "score.plurals"]


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
    found = runs_table.rows(ledger_store[0])
    with pytest.raises(InputError, match=said):
        runs_table.with_columns(found, runs_table.filtered(found, where, sort), columns)


def test_diff_shows_only_what_differs(ledger_store: tuple[RunStore, str]) -> None:
    store, _ = ledger_store
    a, b = (runs_table.row_of(store.get(made.spec_of("rtd", seed, {"steps": 10}).name)) for seed in (0, 1))
    spec, came = runs_table.differences(a, b)
    assert [row["key"] for row in spec] == ["seed"] and (spec[0]["a"], spec[0]["b"]) == (0, 1)
    scores = {row["key"]: row for row in came if row["key"].startswith("score")}
    assert set(scores) == {"score", "score.probes", "score.order", "score.next"}
    assert scores["score"]["b - a"] == pytest.approx(b["score"] - a["score"])
    assert not any(row["a"] == row["b"] for row in (*spec, *came))
    assert runs_table.differences(a, a) == ([], [])


def test_runs_are_found_by_a_part_of_their_name(ledger_store: tuple[RunStore, str]) -> None:
    store, _ = ledger_store
    whole = made.spec_of("rtd", 0, {"steps": 10}).name
    assert runs_table.find_run(store, whole).run_id == runs_table.find_run(store, whole[-12:]).run_id == whole
    with pytest.raises(InputError, match="part of the names of 6 runs"):
        runs_table.find_run(store, "rtd")
    with pytest.raises(InputError, match="no run 'nothing-of-the-kind'"):
        runs_table.find_run(store, "nothing-of-the-kind")


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
    assert command("export", name, "--runs", root, "--format", "parquet", "--out", str(out)).exit_code == 0
    assert len(pd.read_parquet(out)) == 15 * 4 - 3
    for words in (
        ("export", name, "--runs", root, "--format", "xlsx"),
        ("export", name, "--runs", root, "--format", "parquet"),
        ("export", "ablatoin", "--runs", root),
        ("diff", "rtd", a, "--runs", root),
        ("runs", "--runs", root, "--where", "sed=1"),
    ):
        refused = command(*words)
        assert refused.exit_code != 0 and refused.stdout == "", words
        assert isinstance(refused.exception, InputError) or "Invalid value" in refused.stderr, words


def test_listing_runs_loads_no_table_library(ledger_store: tuple[RunStore, str]) -> None:
    code = (
        "import sys; from workbench.cli import app\n"
        f"app(['runs', '--runs', {str(ledger_store[0].root)!r}], standalone_mode=False)\n"
        "print([m for m in ('pandas', 'torch', 'numpy', 'matplotlib') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]", done.stderr


def record(store: RunStore, name: str, updated: str, *finished: bool) -> str:
    """Write a record of `ablation` whose runs are done, or stopped before their first step, and return its name."""
    specs = [made.spec_of("rtd", seed, {"steps": 7}, **{"optim.lr": len(name) * 1e-5}) for seed in range(len(finished))]
    for spec, done in zip(specs, finished, strict=True):
        run = store.open(BoundRun(spec))
        if done:
            made.scored(made.trained(store, spec, 7), "order", 0, 50.0)
        else:
            run.write_json("env.json", made.ENV)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.store.run_store.now", lambda: updated)
        return made.recorded(store, specs, name=name)


def test_a_finished_record_comes_before_a_newer_one_that_was_interrupted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-a", "2026-11-19T08:00:00+00:00", True)
    best = record(store, "ablation-bb", "2026-11-20T08:00:00+00:00", True, True)
    newest = record(store, "ablation-ccc", "2026-11-21T08:00:00+00:00", True, False)
    with caplog.at_level(logging.WARNING, logger="workbench"):
        assert find_record(store, "ablation") == best
    assert [line.getMessage() for line in caplog.records] == [
        "ablation is read from the record ablation-bb (finished, 2 of 2 runs, 2026-11-20T08:00)",
        "another record of ablation, which may be named instead: ablation-a (finished, 1 of 1 run, 2026-11-19T08:00)",
        "another record of ablation, which may be named instead: "
        "ablation-ccc (interrupted, 1 of 2 runs, 2026-11-21T08:00)",
    ]
    assert find_record(store, newest) == newest


def test_without_a_finished_one_it_is_the_newest(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-bb", "2026-11-20T08:00:00+00:00", True, False)
    newest = record(store, "ablation-ccc", "2026-11-21T08:00:00+00:00", False)
    assert find_record(store, "ablation") == newest


def test_the_report_of_another_store_is_not_replaced_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = RunStore(tmp_path / "one"), RunStore(tmp_path / "other")
    name = record(one, "ablation-a", "2026-11-19T08:00:00+00:00", True, True)
    assert record(other, "ablation-a", "2026-11-19T08:00:00+00:00", True) == name  # the first of the same two seeds
    with caplog.at_level(logging.WARNING, logger="workbench"):
        write(other, name, tmp_path / "out")
        write(one, name, tmp_path / "out")  # a store that grew
        write(other, name, tmp_path / "out" / "page.html")  # whose tables have other names
        assert not [line for line in caplog.messages if "replaced" in line]
        write(other, name, tmp_path / "out")
    [said] = [line for line in caplog.messages if "replaced" in line]
    assert str(tmp_path / "out") in said and str(tmp_path / "other") in said and "--out" in said
    assert [row["run_id"] for row in parsed.sheet(tmp_path / "out" / "runs.csv")] == [r.run_id for r in other.runs()]


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ({"done": 3}, "finished"), ({"done": 2, "trained": 1}, "unfinished"), ({"done": 1, "failed": 1}, "unfinished"),
        ({"diverged": 2, "damaged": 1}, "unfinished"), ({"done": 2, "new": 1}, "interrupted"),
        ({"failed": 1, "missing": 1}, "interrupted"), ({"failed": 2, "interrupted": 1}, "interrupted"),
        ({"running": 1, "failed": 1}, "running"), ({"running": 1, "new": 5}, "running"), ({}, "unfinished"),
    ],
)  # fmt: skip
def test_the_word_for_a_record_says_whether_the_same_command_would_go_on(states: dict[str, int], word: str) -> None:
    found = described(ExperimentRecord("größe", updated="2026-11-20T08:00:00+00:00"), Counter(states))
    whole, over = sum(states.values()), states.get("done", 0) + states.get("trained", 0)
    assert found == f"größe ({word}, {over} of {whole} run{'s' * (whole != 1)}, 2026-11-20T08:00)"


def test_each_run_of_a_record_counts_once_in_the_state_of_its_folder(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-a", "2026-11-19T08:00:00+00:00", True, True, False, False)
    [first] = store.experiments()
    gone, cut = first.runs[1], first.runs[3]
    shutil.rmtree(store.root / gone)
    (store.root / cut / "spec.json").write_text("{")
    listed = ExperimentRecord("x", runs=first.runs, untrained=[first.runs[0], "never-made"])
    assert record_states(store, listed) == {"done": 1, "missing": 2, "interrupted": 1, "damaged": 1}
    assert record_states(store, ExperimentRecord("x")) == {}


def test_a_record_s_own_name_comes_before_an_experiment_of_that_name(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    for name, experiment in (("other-a", "ablation"), ("ablation", "other")):
        store.extend_experiment(ExperimentRecord(name, experiment))
    assert find_record(store, "ablation") == "ablation" and find_record(store, "other-a") == "other-a"
    assert find_record(store, "other") == "ablation", "the name of its experiment"


def test_a_damaged_record_is_told_where_it_might_be_the_one_and_left_out_elsewhere(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-a", "2026-11-19T08:00:00+00:00", True)
    store.extend_experiment(ExperimentRecord("tying-a", "tying"))
    path = store.root / "experiments" / "ablation-bb.json"
    path.write_text("{")
    for word in ("ablation", "ablation-bb"):
        with pytest.raises(InputError, match=r"experiments/ablation-bb\.json"):
            find_record(store, word)
    assert find_record(store, "ablation-a") == "ablation-a" and find_record(store, "tying") == "tying-a"


def test_an_unknown_word_is_refused_with_the_nearest_name_if_there_is_any(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    with pytest.raises(InputError, match="'größe'") as caught:
        find_record(store, "größe")
    with pytest.raises(InputError, match="no experiment 'nothing'"):
        write(store, "nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert str(store.root) in str(caught.value) and ";" not in str(caught.value)
    store.extend_experiment(ExperimentRecord("tying-1a2b", "tying"))
    for word, near in (("tyng", "tying"), ("tying-1a2c", "tying-1a2b")):
        with pytest.raises(InputError, match=f"'{word}'.*'{near}'"):
            find_record(store, word)
