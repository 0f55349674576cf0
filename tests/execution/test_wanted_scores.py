"""Which scores a run is to have, found from its spec, its plan and what lies in its folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from workbench import objectives
from workbench.data import tokenizer
from workbench.data.prepare import Prepared
from workbench.errors import DamagedRun
from workbench.execution.wanted_scores import Wanted, place_of, plan_of, points_with_weights, usable
from workbench.spec.parts import Special
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks import Examples, Suite, Task
from workbench.tasks.common.contract import expected, score_name
from workbench.tasks.minimal_pairs import PairSet, pair_set
from workbench.training.plan import plan

TINY: dict[str, Any] = {
    "objective": "bert-mlm", "encoder.hidden": 16, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 200,
    "encoder.positions": 16, "data.length": 16, "batch.size": 4, "budget.steps": 20, "tasks.at": "log:3",
    "tasks.seeds": 2,
}  # fmt: skip
STEPS = (1, 4)  # 4.6 % and 21.5 % of 20 steps; 1 % rounds to none
ROWS = Examples(["a", "b"], None, [0, 1])
TUNED = Task("größe", "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, ROWS, {"dev": ROWS})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("words")
    tokenizer.save(tokenizer.train(["red green blue"] * 300, 40), folder, True)
    return Prepared(folder, "fp", 900, 300, 4500, 40, Special(), folder, words=900)


@pytest.fixture(scope="module")
def pairs() -> PairSet:
    return pair_set("toy", "minimal-pairs", ["red green"] * 5, ["green red"] * 5, {"paradigm": ["a"] * 5})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Return a run that was trained, of which no point was kept."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    spec = spec_of()
    made = RunStore(tmp_path / "runs").open(BoundRun(spec))
    made.write_json("plan.json", plan(spec).to_json())
    return made


def spec_of(**keys: Any) -> Any:
    return objectives.with_options(resolve("nano", TINY | {key.replace("__", "."): keys[key] for key in keys}))


def end(run: RunDir) -> None:
    (run.path / "done.json").write_text("{}")  # whose content is not looked at here


def keep(run: RunDir, *steps: int) -> None:
    for step in steps:
        for part in ("encoder", "heads"):
            (run.path / place(step) / part).mkdir(parents=True)


def place(step: int) -> str:
    return f"points/{step:08d}/"


def measured(run: RunDir, name: str, at: str = "") -> None:
    path = run.path / at / "scores" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def names(wanted: Wanted, run: RunDir) -> list[str]:
    return [name for _, _, name in wanted.expected(run)]


def test_without_prepared_text_only_the_end_counts(run: RunDir, pairs: PairSet) -> None:
    wanted = Wanted(run.spec().tasks, Suite((pairs, TUNED)), None)
    keep(run, *STEPS)
    end(run)
    found = list(wanted.expected(run))
    assert found == list(expected(wanted.suite, wanted.tasks))
    assert [(measure.name, seed) for measure, seed, _ in found] == [("toy", 0), ("größe", 0), ("größe", 1)]
    assert not wanted.during_training and wanted.unmeasured(run) == 0
    assert wanted.points(run.spec(), plan_of(run)) == wanted.series(run.spec(), plan_of(run)) == []


def test_what_trains_the_encoder_is_measured_at_the_end_only(run: RunDir, pairs: PairSet, prepared: Prepared) -> None:
    tasks = run.spec().tasks
    assert (
        not Wanted(tasks, Suite(()), prepared).during_training
        and not Wanted(tasks, Suite((TUNED,)), prepared).during_training
    )
    assert Wanted(tasks, Suite((TUNED, pairs)), prepared).during_training
    keep(run, *STEPS)
    assert [place_of(name) for name in names(Wanted(tasks, Suite((TUNED,)), prepared), run)] == ["", ""]


def test_the_scores_of_the_end_come_first_then_those_of_the_points_in_order(
    run: RunDir, pairs: PairSet, prepared: Prepared
) -> None:
    wanted = Wanted(run.spec().tasks, Suite((pairs, TUNED)), prepared)
    assert [point.step for point in wanted.points(run.spec(), plan_of(run))] == list(STEPS)
    at_end, of_pairs = (
        [name for *_, name in expected(wanted.suite, wanted.tasks)],
        score_name(pairs, wanted.tasks, 0),
    )
    assert names(wanted, run) == at_end, "no point was kept"
    keep(run, 4, 1, 3)  # the third is none of this schedule
    assert names(wanted, run) == [*at_end, place(1) + of_pairs, place(4) + of_pairs]
    assert points_with_weights(run) == [place(step) for step in (1, 3, 4)]


@pytest.mark.parametrize("part", ["encoder", "heads"])
def test_of_a_point_without_weights_only_the_scores_that_are_there_are_expected(
    run: RunDir, pairs: PairSet, prepared: Prepared, part: str
) -> None:
    wanted = Wanted(run.spec().tasks, Suite((pairs,)), prepared)
    keep(run, *STEPS)
    shutil.rmtree(run.path / place(1) / part)
    name = score_name(pairs, wanted.tasks, 0)
    assert points_with_weights(run) == [place(4)]
    assert names(wanted, run) == [name, place(4) + name]
    measured(run, name, place(1))
    assert names(wanted, run) == [name, place(1) + name, place(4) + name]


def test_what_is_missing_is_what_is_expected_and_has_no_file(run: RunDir, pairs: PairSet, prepared: Prepared) -> None:
    wanted = Wanted(run.spec().tasks, Suite((pairs, TUNED)), prepared)
    keep(run, *STEPS)
    left = names(wanted, run)
    for name in left[1], left[-1]:
        measured(run, name.rpartition("/")[2], place_of(name))
    (run.path / "scores" / left[0]).mkdir()  # a folder is no score
    assert [name for *_, name in wanted.missing(run)] == [left[0], *left[2:-1]]
    assert names(wanted, run) == left


def test_points_with_neither_weights_nor_scores_are_counted(run: RunDir, pairs: PairSet, prepared: Prepared) -> None:
    other = pair_set("other", "pairs", ["green"] * 5, ["red"] * 5, {"paradigm": ["a"] * 5})  # of a suite of its own
    wanted = Wanted(run.spec().tasks, Suite((pairs, other)), prepared)
    assert wanted.unmeasured(run) == 0, "training is not over"
    end(run)
    assert wanted.unmeasured(run) == 2
    keep(run, 4)
    assert wanted.unmeasured(run) == 1
    for measure, left in ((pairs, 1), (other, 0)):  # a point counts until all of its scores are there
        measured(run, score_name(measure, wanted.tasks, 0), place(1))
        assert wanted.unmeasured(run) == left
    shutil.rmtree(run.path / place(4) / "heads")
    assert wanted.unmeasured(run) == 1
    assert Wanted(spec_of(tasks__at="none").tasks, wanted.suite, prepared).unmeasured(run) == 0


def test_the_schedule_is_that_of_the_command_and_not_of_the_run(
    run: RunDir, pairs: PairSet, prepared: Prepared
) -> None:
    wanted = Wanted(spec_of(tasks__at="log:1").tasks, Suite((pairs,)), prepared)
    assert [point.step for point in wanted.points(run.spec(), plan_of(run))] == []  # 1 % of 20 steps
    words = Wanted(spec_of(tasks__at="words").tasks, Suite((pairs,)), prepared)
    long: RunSpec = spec_of(budget__steps=200_000)
    marks = [point.mark for point in words.points(long, plan(long))]
    assert marks == [f"{n} M words" for n in (*range(1, 10), 10)], "of 64 tokens of a step 56 are words"


@pytest.mark.parametrize("before", ["", "points/00000001/", "points/123456789/"])
@pytest.mark.parametrize("file", ["CoLA-1a2b3c4d-0.json", "linear-x.json"])
def test_the_place_of_a_score_is_what_stands_before_its_file(before: str, file: str) -> None:
    assert place_of(before + file) == before


def test_a_plan_is_read_as_it_was_written(run: RunDir) -> None:
    assert plan_of(run) == plan(spec_of())


@pytest.mark.parametrize("key", ["steps", "flops_per_step", "budget"])
def test_a_plan_that_lacks_a_field_names_its_run(run: RunDir, key: str) -> None:
    raw = plan(spec_of()).to_json()
    run.write_json("plan.json", {name: value for name, value in raw.items() if name != key})
    with pytest.raises(DamagedRun, match=f"{run.run_id}.*{key}"):
        plan_of(run)
    (run.path / "plan.json").write_text("{")
    with pytest.raises(DamagedRun, match=rf"{run.run_id}.*plan\.json"):
        plan_of(run)


def test_only_unusable_values_are_damage(run: RunDir) -> None:
    with pytest.raises(DamagedRun, match=f"{run.run_id}.*größe"), usable(run):
        raise ValueError("größe")
    for error in (OSError(28, "full"), KeyError("x")):
        with pytest.raises(type(error)) as caught, usable(run):
            raise error
        assert caught.value is error
    with usable(run):
        pass
