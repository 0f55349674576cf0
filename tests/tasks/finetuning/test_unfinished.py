"""A fine-tuning that was interrupted goes on exactly, from its own state alone, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import Interrupted
from workbench.signals import interrupting
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store import checkpoint
from workbench.store.run_directory import RunDir
from workbench.tasks.common.contract import Model, Score, Suite, score_name, take
from workbench.tasks.common.evaluation import evaluate
from workbench.tasks.common.examples import Task
from workbench.tasks.common.fine_tuning import Unfinished

SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1, seeds=1)
EVERY_STEP = Host(device="cpu", save_every=1)
NEVER = Host(device="cpu", save_seconds=float("inf"))
WEIGHTS = {"encoder": "0" * 16}


class Stop(Exception):
    """Stands for the end of the process: nothing of the fine-tuning runs after it."""


def stop_at(step: int) -> Callable[[int, int], None]:
    def progress(now: int, steps: int) -> None:
        if now == step:
            raise Stop

    return progress


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "run").mkdir()
    return RunDir(tmp_path / "run")


def same(score: Score, other: Score) -> bool:
    return replace(score, seconds=0.0) == replace(other, seconds=0.0)


def steps_of(run: RunDir) -> list[int]:
    return [step for folder in (run.path / "unfinished").glob("*") for step in checkpoint.steps(folder)]


def test_killed_after_any_step_it_ends_with_the_score_of_an_undisturbed_one(
    encoder: Path, keyword: Task, run: RunDir
) -> None:
    task = replace(keyword, epochs=1.0)
    whole = take(task, Model(encoder, SPEC, 0), NEVER)
    state = Unfinished(run, score_name(task, SPEC, 0), WEIGHTS)
    taken: list[int] = []
    for step in (2, 3, 7):
        with pytest.raises(Stop):
            take(task, Model(encoder, SPEC, 0, stop_at(step), state), EVERY_STEP)
    score = take(task, Model(encoder, SPEC, 0, lambda step, steps: taken.append(step), state), EVERY_STEP)
    assert taken == [8] and score.steps == 8
    assert same(score, whole)


def test_a_signal_saves_the_state_after_the_step(encoder: Path, keyword: Task, run: RunDir) -> None:
    state = Unfinished(run, "a.json", WEIGHTS)
    whole = take(keyword, Model(encoder, SPEC, 0), NEVER)

    def progress(step: int, steps: int) -> None:
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with interrupting(), pytest.raises(Interrupted):
        take(keyword, Model(encoder, SPEC, 0, progress, state), NEVER)
    assert steps_of(run) == [5]  # the signal arrives after step 4, and the step that it interrupts is completed
    score = take(keyword, Model(encoder, SPEC, 0, None, state), NEVER)
    assert same(score, whole)
    assert score.seconds > 0


def test_the_time_of_earlier_processes_is_counted(encoder: Path, keyword: Task, run: RunDir) -> None:
    state = Unfinished(run, "a.json", WEIGHTS)
    with pytest.raises(Stop):
        take(keyword, Model(encoder, SPEC, 0, stop_at(3), state), EVERY_STEP)
    file = next(path for path in (run.path / "unfinished" / "a").glob("step-*"))
    saved = checkpoint.newest(file.parent)
    assert saved is not None and 0 < saved.state["seconds"] < 60
    content = {**saved.state, "seconds": 5000.0}
    checkpoint.save(file.parent, 4, {g: saved.tensors(g) for g in ("model", "optimizer", "draws")}, content)
    assert 5000 < take(keyword, Model(encoder, SPEC, 0, None, state), NEVER).seconds < 5060


@pytest.mark.parametrize("fault", ["damaged", "other weights"])
def test_a_state_that_cannot_be_used_is_named_and_deleted(
    encoder: Path, keyword: Task, run: RunDir, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = replace(keyword, epochs=1.0)
    state = Unfinished(run, "a.json", WEIGHTS)
    with pytest.raises(Stop):
        take(task, Model(encoder, SPEC, 0, stop_at(3), state), Host(device="cpu", save_every=2))
    if fault == "damaged":
        weights = run.path / "unfinished" / "a" / "step-00000002" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    else:
        state = Unfinished(run, "a.json", {"encoder": "1" * 16})
    taken: list[int] = []
    score = take(task, Model(encoder, SPEC, 0, lambda step, steps: taken.append(step), state), NEVER)
    assert taken == list(range(1, 9))
    assert "unfinished" in caplog.text and "begins again" in caplog.text
    assert same(score, take(task, Model(encoder, SPEC, 0), NEVER))


@pytest.mark.parametrize("other", ["a-1.json", "b-0.json"])
def test_a_state_that_lies_in_the_place_of_another_is_not_used(
    encoder: Path, keyword: Task, run: RunDir, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = replace(keyword, epochs=1.0)
    with pytest.raises(Stop):
        take(task, Model(encoder, SPEC, 0, stop_at(3), Unfinished(run, "a-0.json", WEIGHTS)), EVERY_STEP)
    (run.path / "unfinished" / "a-0").rename(run.path / "unfinished" / Path(other).stem)
    taken: list[int] = []
    score = take(
        task, Model(encoder, SPEC, 1, lambda step, steps: taken.append(step), Unfinished(run, other, WEIGHTS)), NEVER
    )
    assert taken == list(range(1, 9))
    assert "belongs to 'unfinished/a-0'; this fine-tuning begins again" in caplog.text
    assert same(score, take(task, Model(encoder, SPEC, 1), NEVER))


def test_evaluation_goes_on_and_deletes_the_state_once_the_score_is_stored(
    encoder: Path, keyword: Task, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.tasks.common import evaluation

    monkeypatch.setattr(RunDir, "weight_digests", lambda self, place="": WEIGHTS)
    suite = Suite((replace(keyword, epochs=1.0),))
    with pytest.raises(Stop):
        display = Display(stop_at(6))
        monkeypatch.setattr(evaluation.progress, "measuring", lambda name, count: display)
        evaluate(encoder, suite, SPEC, "nano", EVERY_STEP, run)
    assert steps_of(run) == [5, 6]
    display.each = taken = []  # type: ignore[assignment]
    evaluate(encoder, suite, SPEC, "nano", EVERY_STEP, run)
    assert taken == [7, 8]
    (file,) = (run.path / "scores").iterdir()
    assert json.loads(file.read_text())["steps"] == 8
    assert not any((run.path / "unfinished").iterdir())


class Display:
    """Stands for the progress bar; it hands each step to a function or keeps it in a list."""

    def __init__(self, each: Any) -> None:
        self.each = each

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self, task: str, step: int, steps: int) -> None:
        if isinstance(self.each, list):
            self.each.append(step)
        else:
            self.each(step, steps)

    def scored(self, task: str, value: float | None) -> None:
        pass
