"""Carrying out runs one at a time: what fails is written down where it belongs, and the rest goes on."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import branch
from written_runs import SPEC, finished

from workbench import objectives
from workbench.data import tokenizer
from workbench.data.prepare import Prepared
from workbench.errors import DamagedRun, Diverged, InputError, Interrupted
from workbench.execution import one_run, study_runner
from workbench.execution.one_run import Wanted, place_of, plan_of
from workbench.execution.workers import Assignment
from workbench.spec.host import Host
from workbench.spec.parts import Special, TasksSpec
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.atomic import sealed
from workbench.store.run_directory import now
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore
from workbench.tasks import Examples, Suite, Task
from workbench.tasks.common import classification as module
from workbench.tasks.common.contract import Model, Scores, expected, score_name
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.plan import plan

TASKS = TasksSpec(seeds=2)
ANY: Any = None  # what is not looked at


def task(name: str) -> Task:
    rows = Examples(["a", "b"], None, [0, 1])
    return Task(name, "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows})


GOOD, BAD = task("good"), task("bad")


class Tuning:
    """In place of fine-tuning: `errors` says by task what is raised; `done` is what was asked for."""

    def __init__(self) -> None:
        self.errors: dict[str, BaseException] = {}
        self.done: list[tuple[str, int]] = []

    def __call__(self, task: Task, model: Model, host: Host) -> Scores:
        self.done.append((task.name, model.seed))
        if task.name in self.errors:
            raise self.errors[task.name]
        return Scores({"dev": {"accuracy": 50.0}}, (2, 2), steps=1)


@pytest.fixture
def tuning(monkeypatch: pytest.MonkeyPatch) -> Tuning:
    made = Tuning()
    monkeypatch.setattr(module, "finetune", made)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    return made


@pytest.fixture
def run(tuning: Tuning, tmp_path: Path) -> RunDir:
    """A finished run that has no score yet."""
    return finished(RunStore(tmp_path / "runs"), 0, tuning=0)


def command(run: RunDir, *tasks: Task, since: str = "2000-01-01T00:00:00+00:00") -> tuple[str, str]:
    """What a command that asks for these tasks does with the run, and how the run ends."""
    carry_out(RunStore(run.path.parent), [run.run_id], *tasks, since=since)
    return study_runner.state_of(run, one_run.Wanted(TASKS, Suite(tasks), None))


def carry_out(store: RunStore, ids: list[str], *tasks: Task, since: str = "2000-01-01") -> None:
    one_run.carry_out_all(store, ids, one_run.Wanted(TASKS, Suite(tasks), ANY), Host(device="cpu"), since)


def test_a_fine_tuning_that_diverges_is_no_fault_of_the_run(run: RunDir, tuning: Tuning) -> None:
    tuning.errors = {"bad": Diverged("the loss is no number by step 3", 3)}
    assert command(run, BAD, GOOD) == (
        "unfinished",
        "fine-tuning on bad (seed 0) diverged: the loss is no number by step 3; "
        "fine-tuning on bad (seed 1) diverged: the loss is no number by step 3",
    )
    assert tuning.done == [("bad", 0), ("bad", 1), ("good", 0), ("good", 1)]
    assert run.state == "trained" and run.error() is None and len(run.scores()) == 2
    assert command(run, GOOD)[0] == "done" and command(run)[0] == "done", "another task's failure"
    assert run.summary(full=True)["state"] == "trained"


def test_it_is_tried_again_when_asked_for_and_only_then(run: RunDir, tuning: Tuning) -> None:
    tuning.errors, begun = {"bad": ValueError("no")}, now("microseconds")
    command(run, BAD, since=begun)
    assert "fine-tuning on bad (seed 0) failed: ValueError: no" in run.note
    assert "Traceback" in next(run.path.glob("failures/*.log")).read_text()
    command(run, BAD, since=begun)  # another worker of the same command, begun in the second of the failure
    assert len(tuning.done) == 2
    tuning.errors = {}
    assert command(run, BAD, since=now("microseconds")) == ("done", ""), "a command of the same second"
    assert len(tuning.done) == 4 and run.state == "done" and not list(run.path.glob("failures/*"))


def test_a_run_that_an_older_version_called_diverged_for_its_scores_is_well(run: RunDir, tuning: Tuning) -> None:
    record = {"format": 1, "kind": "diverged", "message": "x", "time": "2026-01-01", "run_id": run.run_id}
    (run.path / "error.json").write_bytes(sealed(record))
    assert run.state == "trained"
    assert command(run, GOOD) == ("done", "") and not (run.path / "error.json").exists()


@pytest.mark.parametrize("stop", [Interrupted(15), KeyboardInterrupt(), OSError(28, "full")])
def test_signals_and_full_disks_are_not_noted_as_failures(run: RunDir, tuning: Tuning, stop: BaseException) -> None:
    tuning.errors = {"good": stop}
    with pytest.raises(type(stop)):
        command(run, GOOD)
    assert not run.failures() and run.state == "trained"


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), FileNotFoundError(2, "gone", "x"), MemoryError()])
def test_whatever_else_is_raised_belongs_to_the_score(run: RunDir, tuning: Tuning, error: BaseException) -> None:
    tuning.errors = {"bad": error}
    assert command(run, BAD, GOOD)[0] == "unfinished"
    assert len(run.scores()) == 2 and all(type(error).__name__ in why for why in run.failures().values())


def test_what_an_encoder_cannot_be_fine_tuned_on_spoils_no_other_score(
    run: RunDir, tuning: Tuning, caplog: pytest.LogCaptureFixture
) -> None:
    tuning.errors = {"bad": InputError("its tokenizer cannot read this task's texts")}
    state, note = command(run, BAD, GOOD)
    assert state == "unfinished" and "cannot read this task's texts" in note and len(run.scores()) == 2
    assert "cannot read" in caplog.text and ".log" not in caplog.text and not list(run.path.glob("failures/*.log"))


def test_damage_that_fine_tuning_finds_is_not_written_into_the_run(run: RunDir, tuning: Tuning) -> None:
    tuning.errors = {"bad": DamagedRun("its encoder has changed")}
    assert command(run, BAD)[0] == "unfinished" and not run.failures()


def test_scores_name_their_run_and_encoder(run: RunDir, tuning: Tuning) -> None:
    command(run, GOOD)
    raw = json.loads(min(run.path.glob("scores/*.json")).read_text())
    assert raw["run_id"] == run.run_id and raw["encoder"] == run.weight_digests()["encoder"] and raw["seed"] == 0


def test_a_damaged_run_is_named_and_the_others_go_on(
    run: RunDir, tuning: Tuning, caplog: pytest.LogCaptureFixture
) -> None:
    """Its encoder has changed, which only a look at every byte shows."""
    store = RunStore(run.path.parent)
    other = finished(store, 1, tuning=0)
    (run.path / "encoder" / "model.safetensors").write_bytes(bytes(400))
    time.sleep(0.02)
    os.utime(run.path / "done.json")  # so that times do not show it
    assert run.damage is None
    ids = [run.run_id, other.run_id]
    carry_out(store, ids, GOOD)
    assert "model.safetensors has changed since it was written" in caplog.text
    assert not run.scores() and len(other.scores()) == 2


def test_a_run_whose_parent_is_damaged_is_named_and_the_others_go_on(
    tuning: Tuning, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(tmp_path / "runs")
    child, other = BoundRun(branch()), finished(store, 1, tuning=0)
    parent = child.parent()
    assert parent is not None
    (store.open(parent).path / "spec.json").write_text("{")
    ids = [store.open(child).run_id, other.run_id]
    carry_out(store, ids, GOOD)
    assert f"{parent.run_id} is damaged: spec.json cannot be read" in caplog.text
    assert len(other.scores()) == 2


def test_a_run_that_cannot_be_read_is_not_complete(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its points depend on its spec. A command that looks for runs without scores goes on with the others."""
    wanted = one_run.Wanted(TASKS, Suite(()), None)
    assert one_run.complete(run, wanted)
    monkeypatch.setattr(one_run.Wanted, "expected", lambda wanted, run: iter([run.spec()]))
    (run.path / "spec.json").write_text("{")
    assert not one_run.complete(RunDir(run.path), wanted)


def test_a_worker_goes_on_if_its_first_run_is_damaged(
    tuning: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path / "runs")
    runs = [finished(store, seed, tuning=0) for seed in range(2)]
    ids = tuple(run.run_id for run in runs)
    record = ExperimentRecord("ablation-nano-1", "ablation", runs=list(ids), base=SPEC.model_dump(mode="json"))
    store.extend_experiment(record)
    (runs[0].path / "spec.json").write_text("{")
    monkeypatch.setattr(study_runner, "prepare", lambda spec: ANY)
    monkeypatch.setattr(study_runner, "load_suite", lambda base: Suite((GOOD,)))
    monkeypatch.setattr(study_runner, "stay_local", lambda *words, **options: None)
    host = Host(device="cpu")
    assert study_runner.work(Assignment(store.root, record.name, record.base, ids, (), host, "2000-01-01", 0))
    assert runs[1].scores()


def test_what_other_workers_have_or_had_is_not_examined(
    tuning: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among thousands of runs, each worker looks at all of them, and an examination takes milliseconds."""
    store = RunStore(tmp_path)
    runs = [finished(store, seed, tuning=0) for seed in range(4)]
    ids = [run.run_id for run in runs]
    carry_out(store, ids[1:], GOOD)
    examined = []

    def look(run: RunDir) -> None:
        examined.append(run.run_id)

    def stop(seconds: float) -> None:
        raise Interrupted(15)

    monkeypatch.setattr(RunDir, "damage", property(look))
    with store.get(ids[0]).lease():
        monkeypatch.setattr(one_run.time, "sleep", stop)
        with pytest.raises(Interrupted):  # after a look at all of them, it waits for the run of the other process
            one_run.carry_out_all(
                store, ids, one_run.Wanted(TASKS, Suite((GOOD,)), ANY), Host(device="cpu"), "2000-01-01"
            )
    assert set(examined) == {ids[0]} and not store.get(ids[0]).scores()
    examined.clear()
    carry_out(store, ids, GOOD)
    assert examined == ids[:1] and len(store.get(ids[0]).scores()) == 2


def test_workers_take_many_runs_in_orders_that_differ_by_a_hundredth_at_most() -> None:
    few = [str(number) for number in range(199)]
    assert list(one_run._spread(few)) == few
    many = [str(number) for number in range(10_000)]
    one, two = list(one_run._spread(many)), list(one_run._spread(many))
    assert sorted(one) == sorted(two) == sorted(many) and one != two
    assert max(abs(int(run) - place) for place, run in enumerate(one)) < 100
    assert list(one_run._spread([])) == []


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
    return PairSet("toy", "minimal-pairs", ["red green"] * 5, ["green red"] * 5, {"paradigm": ["a"] * 5})


@pytest.fixture
def unpointed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Return a run that was trained, of which no point was kept."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    spec = spec_of()
    made = RunStore(tmp_path / "runs").open(BoundRun(spec))
    made.write_json("plan.json", asdict(plan(spec)))
    return made


def spec_of(**keys: Any) -> Any:
    return objectives.with_options(resolve("nano", TINY | {key.replace("__", "."): keys[key] for key in keys}))


def end(unpointed: RunDir) -> None:
    (unpointed.path / "done.json").write_text("{}")  # whose content is not looked at here


def keep(unpointed: RunDir, *steps: int) -> None:
    for step in steps:
        for part in ("encoder", "heads"):
            (unpointed.path / place(step) / part).mkdir(parents=True)


def place(step: int) -> str:
    return f"points/{step:08d}/"


def measured(unpointed: RunDir, name: str, at: str = "") -> None:
    path = unpointed.path / at / "scores" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def names(wanted: Wanted, unpointed: RunDir) -> list[str]:
    return [name for _, _, name in wanted.expected(unpointed)]


def test_without_prepared_text_only_the_end_counts(unpointed: RunDir, pairs: PairSet) -> None:
    wanted = Wanted(unpointed.spec().tasks, Suite((pairs, TUNED)), None)
    keep(unpointed, *STEPS)
    end(unpointed)
    found = list(wanted.expected(unpointed))
    assert found == list(expected(wanted.suite, wanted.tasks))
    assert [(measure.name, seed) for measure, seed, _ in found] == [("toy", 0), ("größe", 0), ("größe", 1)]
    assert not wanted.during_training and wanted.unmeasured(unpointed) == 0
    assert (
        wanted.points(unpointed.spec(), plan_of(unpointed)) == wanted.series(unpointed.spec(), plan_of(unpointed)) == []
    )


def test_what_trains_the_encoder_is_measured_at_the_end_only(
    unpointed: RunDir, pairs: PairSet, prepared: Prepared
) -> None:
    tasks = unpointed.spec().tasks
    assert (
        not Wanted(tasks, Suite(()), prepared).during_training
        and not Wanted(tasks, Suite((TUNED,)), prepared).during_training
    )
    assert Wanted(tasks, Suite((TUNED, pairs)), prepared).during_training
    keep(unpointed, *STEPS)
    assert [place_of(name) for name in names(Wanted(tasks, Suite((TUNED,)), prepared), unpointed)] == ["", ""]


def test_the_scores_of_the_end_come_first_then_those_of_the_points_in_order(
    unpointed: RunDir, pairs: PairSet, prepared: Prepared
) -> None:
    wanted = Wanted(unpointed.spec().tasks, Suite((pairs, TUNED)), prepared)
    assert [point.step for point in wanted.points(unpointed.spec(), plan_of(unpointed))] == list(STEPS)
    at_end, of_pairs = (
        [name for *_, name in expected(wanted.suite, wanted.tasks)],
        score_name(pairs, wanted.tasks, 0),
    )
    assert names(wanted, unpointed) == at_end, "no point was kept"
    keep(unpointed, 4, 1, 3)  # the third is none of this schedule
    assert names(wanted, unpointed) == [*at_end, place(1) + of_pairs, place(4) + of_pairs]
    assert [*filter(unpointed.has_weights, unpointed.points())] == [place(step) for step in (1, 3, 4)]


@pytest.mark.parametrize("part", ["encoder", "heads"])
def test_of_a_point_without_weights_only_the_scores_that_are_there_are_expected(
    unpointed: RunDir, pairs: PairSet, prepared: Prepared, part: str
) -> None:
    wanted = Wanted(unpointed.spec().tasks, Suite((pairs,)), prepared)
    keep(unpointed, *STEPS)
    shutil.rmtree(unpointed.path / place(1) / part)
    name = score_name(pairs, wanted.tasks, 0)
    assert [*filter(unpointed.has_weights, unpointed.points())] == [place(4)]
    assert names(wanted, unpointed) == [name, place(4) + name]
    measured(unpointed, name, place(1))
    assert names(wanted, unpointed) == [name, place(1) + name, place(4) + name]


def test_what_is_missing_is_what_is_expected_and_has_no_file(
    unpointed: RunDir, pairs: PairSet, prepared: Prepared
) -> None:
    wanted = Wanted(unpointed.spec().tasks, Suite((pairs, TUNED)), prepared)
    keep(unpointed, *STEPS)
    left = names(wanted, unpointed)
    for name in left[1], left[-1]:
        measured(unpointed, name.rpartition("/")[2], place_of(name))
    (unpointed.path / "scores" / left[0]).mkdir()  # a folder is no score
    assert [name for *_, name in wanted.missing(unpointed)] == [left[0], *left[2:-1]]
    assert names(wanted, unpointed) == left


def test_points_with_neither_weights_nor_scores_are_counted(
    unpointed: RunDir, pairs: PairSet, prepared: Prepared
) -> None:
    other = PairSet("other", "pairs", ["green"] * 5, ["red"] * 5, {"paradigm": ["a"] * 5})  # of a suite of its own
    wanted = Wanted(unpointed.spec().tasks, Suite((pairs, other)), prepared)
    assert wanted.unmeasured(unpointed) == 0, "training is not over"
    end(unpointed)
    assert wanted.unmeasured(unpointed) == 2
    keep(unpointed, 4)
    assert wanted.unmeasured(unpointed) == 1
    for measure, left in ((pairs, 1), (other, 0)):  # a point counts until all of its scores are there
        measured(unpointed, score_name(measure, wanted.tasks, 0), place(1))
        assert wanted.unmeasured(unpointed) == left
    shutil.rmtree(unpointed.path / place(4) / "heads")
    assert wanted.unmeasured(unpointed) == 1
    assert Wanted(spec_of(tasks__at="none").tasks, wanted.suite, prepared).unmeasured(unpointed) == 0


def test_the_schedule_is_that_of_the_command_and_not_of_the_run(
    unpointed: RunDir, pairs: PairSet, prepared: Prepared
) -> None:
    wanted = Wanted(spec_of(tasks__at="log:1").tasks, Suite((pairs,)), prepared)
    assert [point.step for point in wanted.points(unpointed.spec(), plan_of(unpointed))] == []  # 1 % of 20 steps
    words = Wanted(spec_of(tasks__at="words").tasks, Suite((pairs,)), prepared)
    long: RunSpec = spec_of(budget__steps=200_000)
    marks = [point.mark for point in words.points(long, plan(long))]
    assert marks == [f"{n} M words" for n in (*range(1, 10), 10)], "of 64 tokens of a step 56 are words"


@pytest.mark.parametrize("key", ["steps", "flops_per_step", "budget"])
def test_a_plan_that_lacks_a_field_names_its_run(unpointed: RunDir, key: str) -> None:
    raw = asdict(plan(spec_of()))
    unpointed.write_json("plan.json", {name: value for name, value in raw.items() if name != key})
    with pytest.raises(DamagedRun, match=f"{unpointed.run_id}.*{key}"):
        plan_of(unpointed)
    (unpointed.path / "plan.json").write_text("{")
    with pytest.raises(DamagedRun, match=rf"{unpointed.run_id}.*plan\.json"):
        plan_of(unpointed)
