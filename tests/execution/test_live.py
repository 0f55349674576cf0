"""What is shown of runs at work, read from folders that another process writes at the same time."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_runs import SPEC, begun, finished

from workbench.errors import DamagedRun
from workbench.execution import live
from workbench.spec.stages import BoundRun
from workbench.store import validation
from workbench.store.run_store import RunDir, RunStore
from workbench.store.validation import weights_digest

STEPS, TOKENS = 5000, 640_000  # of the plan
STATES = ["new", "running", "interrupted", "trained", "done", "failed", "diverged", "damaged"]


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def training(store: RunStore) -> Iterator[RunDir]:
    """Yield a run that this process trains: its plan is there, and no row yet."""
    run = store.open(BoundRun(SPEC))
    run.write_json("plan.json", {"steps": STEPS, "tokens": TOKENS, "flops": {}})
    run.write_json("env.json", {"versions": {}, "machine": {}})
    with run.lease():
        yield run


def log(run: RunDir, *steps: int, **more: Any) -> None:
    rows = [{"step": step, "loss": 7.125, "tokens_per_second": 3200.0} | more for step in steps]
    with (run.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def failed(store: RunStore, seed: int) -> RunDir:
    run = store.open(BoundRun(SPEC.replace(seed=seed)))
    run.fail("failed", "no such corpus: größe.txt")
    return run


# ---- facts ----


def test_facts_of_a_run_that_trains(training: RunDir) -> None:
    log(training, 1, 2000)
    found = live.facts(training)
    assert (found["state"], found["worker"]) == ("running", os.getpid())
    assert (found["step"], found["steps"], found["loss"], found["tokens_per_second"]) == (2000, STEPS, 7.125, 3200)
    assert found["seconds_left"] == pytest.approx(3000 * 128 / 3200)  # 128 tokens a step


def test_the_time_left_is_by_the_tokens_of_the_runs_own_steps(training: RunDir) -> None:
    """Its parent took 4,000 of the 5,000 steps, on shorter rows."""
    parent = {"run_id": "x", "steps": 4000, "tokens": 4000 * 32, "flops": {}}
    tokens = 4000 * 32 + 1000 * 128
    training.write_json("plan.json", {"steps": STEPS, "first": 4000, "tokens": tokens, "flops": {}, "parent": parent})
    log(training, 4500)
    assert live.facts(training)["seconds_left"] == pytest.approx(500 * 128 / 3200)


@pytest.mark.parametrize("pace", [None, 0])
def test_without_a_pace_the_time_left_is_not_known(training: RunDir, pace: float | None) -> None:
    log(training, 7, tokens_per_second=pace, loss=None)
    found = live.facts(training)
    assert found["step"] == 7 and found["seconds_left"] is None and found["loss"] is None
    text = live.line(found)
    assert "7 of 5,000" in text and "None" not in text and "loss" not in text and "tokens" not in text


def test_before_its_first_row_and_its_plan_a_run_has_no_step(training: RunDir) -> None:
    assert live.facts(training)["step"] is None
    (training.path / "metrics.jsonl").touch()
    found = live.facts(training)
    assert (found["steps"], found["step"], found["worker"]) == (STEPS, None, os.getpid())
    (training.path / "plan.json").unlink()
    found = live.facts(training)
    assert (found["state"], found["steps"], found["step"]) == ("running", None, None)
    assert live.line(found) == found["note"]


def test_who_is_at_no_run_has_only_state_and_note(store: RunStore) -> None:
    for run, state in ((finished(store, 1), "done"), (begun(store, 2), "interrupted"), (failed(store, 3), "failed")):
        found = live.facts(run)
        assert found | run.summary() == found and found["state"] == state
        assert {found[key] for key in ("worker", "step", "steps", "tokens_per_second", "loss", "seconds_left")} == {
            None
        }
        assert live.line(found) == run.note


def test_while_a_run_is_measured_its_scores_are_counted_with_those_of_its_points(store: RunStore) -> None:
    run = finished(store, 0)  # two tasks, two seeds
    with run.lease():
        assert re.findall(r"\b\d+ scores", live.facts(run)["note"]) == ["4 scores"]
        (run.path / "points" / "00000002").mkdir(parents=True)
        point = {"format": 1, "step": 2, "mark": "50 %", "tokens": 256, "flops": {}, "encoder": {}, "heads": {}}
        run.write_json("points/00000002/point.json", point)
        whole = json.loads(next(run.path.glob("scores/*.json")).read_text())
        score = {key: whole[key] for key in ("format", "task", "suite", "metric", "seed", "value")}
        run.write_json("points/00000002/scores/a.json", score | {"encoder": weights_digest({}, "encoder")})
        found = live.facts(run)
        assert re.findall(r"\b\d+ scores", found["note"]) == ["5 scores"]
        assert found["step"] is None and found["worker"] == os.getpid()


# ---- the newest row ----


@pytest.mark.parametrize("torn", ["", '{"step": 4, "lo', "\0" * 30])
def test_the_newest_row_is_the_last_whole_line(training: RunDir, torn: str) -> None:
    log(training, 1, 2, 3)
    with (training.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(torn)
    row = live.last_row(training)
    assert row is not None and row["step"] == 3


@pytest.mark.parametrize("content", ["", '{"step": 1', "not a row\n", '{"loss": 1}\n', "[1]\n"])
def test_a_log_without_a_whole_row_has_none(training: RunDir, content: str) -> None:
    (training.path / "metrics.jsonl").write_text(content)
    assert live.last_row(training) is None and live.facts(training)["step"] is None


def test_the_newest_row_of_a_log_longer_than_what_is_read(training: RunDir) -> None:
    """The part that is read may begin in the middle of a row, and of a character."""
    log(training, *range(1, 300), said="größe" * 20)
    assert (training.path / "metrics.jsonl").stat().st_size > 2 * validation._EDGE
    row = live.last_row(training)
    assert row is not None and row["step"] == 299


# ---- words ----


def test_a_line_has_the_numbers_of_the_run() -> None:
    found = {
        "step": 1200,
        "steps": 5000,
        "loss": 7.1256,
        "tokens_per_second": 41234.6,
        "seconds_left": 61.0,
        "note": "by x",
    }
    text = live.line(found)
    assert all(part in text for part in ("1,200 of 5,000", "7.126", "41,235", "1 min 1 s", "by x"))
    assert "0 s left" in live.line(found | {"seconds_left": 0.0})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(STATES), max_size=12))
def test_a_tally_counts_every_state_it_names(states: list[str]) -> None:
    counts = Counter(states)
    first, *others = live.tally(states).split(", ")
    assert [int(number) for number in re.findall(r"\d+", first)] == [counts["done"], len(states)]
    named = {word: int(number) for number, word in (each.split() for each in others)}
    assert named == {state: counts[state] for state in ("running", "failed", "diverged", "damaged") if counts[state]}


# ---- watching without a terminal ----


def test_a_line_is_said_for_each_change_of_what_is_done(
    store: RunStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "terminal", lambda: False)
    first, second = store.open(BoundRun(SPEC.replace(seed=1))), store.open(BoundRun(SPEC.replace(seed=2)))
    with live.watching([first, second], []) as look:
        look()
        assert capsys.readouterr().err == ""  # none is done
        finished(store, 1)
        look()
        look()
        [said] = capsys.readouterr().err.splitlines()
        assert re.findall(r"\d+", said) == ["1", "2"]
        shutil.rmtree(first.path)  # what is done stays so, and is not read again
        finished(store, 2)
        look()
        [said] = capsys.readouterr().err.splitlines()
        assert re.findall(r"\d+", said) == ["2", "2"]


class Moving(RunDir):
    """A run whose files come and go while they are read, from the second look on, or at once."""

    def __init__(self, path: Path, good_looks: int) -> None:
        super().__init__(path)
        self.good_looks = good_looks

    def summary(self, full: bool = False) -> dict[str, Any]:
        self.good_looks -= 1
        if self.good_looks < 0:
            raise [FileNotFoundError(2, "gone"), DamagedRun("cut")][self.good_looks % 2]
        return super().summary(full)


def test_a_run_that_cannot_be_read_stands_as_it_was(
    store: RunStore, capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
) -> None:
    """What was never read counts as new."""
    runs = [Moving(failed(store, 1).path, 1), Moving(failed(store, 2).path, 0), finished(store, 3)]
    with live.watching(runs, []) as look:
        look()
        look()
    text = shown(capsys)
    assert "1 of 3" in text and "1 failed" in text and runs[0].run_id in text and runs[1].run_id not in text


# ---- watching on a terminal ----


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a clock that stands still, beside a terminal that is none."""
    held = SimpleNamespace(now=100.0)
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: held.now))
    monkeypatch.setattr(live, "terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    return held


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_the_table_has_a_row_for_each_run_at_work_or_failed(
    store: RunStore, training: RunDir, clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    log(training, 1250)
    runs = [training, finished(store, 1), failed(store, 2), store.open(BoundRun(SPEC.replace(seed=3)))]
    with live.watching(runs, []):
        finished(store, 3)  # shown at the end, also where nobody looked again
    text = shown(capsys)
    [at_work] = [each for each in text.splitlines() if training.run_id in each]
    assert all(part in at_work for part in ("1,250/5,000", str(os.getpid()), "7.125", "3,200", "2 min 30 s"))
    [broken] = [each for each in text.splitlines() if runs[2].run_id in each]
    assert "größe.txt" in broken and "None" not in broken
    assert runs[1].run_id not in text and runs[3].run_id not in text
    assert "2 of 4" in text and "1 running" in text and "1 failed" in text


def test_the_time_left_is_that_of_the_runs_done_since_the_start(
    store: RunStore, clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """One was done before; the second took 50 s and two remain, of which the failed one is settled."""
    runs = [
        finished(store, 1),
        *(store.open(BoundRun(SPEC.replace(seed=seed))) for seed in (2, 3, 4)),
        failed(store, 5),
    ]
    with live.watching(runs, []) as look:
        finished(store, 2)
        clock.now += 50
        look()
    assert "2 of 5" in (text := shown(capsys)) and "1 min 40 s" in text
    with live.watching(runs, []):
        clock.now += 50
    assert "2 of 5" in (text := shown(capsys)) and " min " not in text, "none was done since"


def test_only_warnings_of_workers_are_shown_above_the_table(
    store: RunStore, clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are: square brackets are no markup of the terminal's."""
    before = set(threading.enumerate())
    voice = io.StringIO("workbench: größe [red] of [0]\nrtd: step 3 of 9\n\nworkbench: second\n")
    with live.watching([failed(store, 1)], [voice]):
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=10)
    text = shown(capsys)
    assert "workbench: größe [red] of [0]" in text and "workbench: second" in text and "step 3 of 9" not in text
