"""`--seeds auto`: what is carried out and written down, when it ends, and that a kill brings no further look."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from workbench.data.prepare import Prepared
from workbench.errors import InputError, Interrupted
from workbench.execution import one_run, sequential_seeds, study_runner
from workbench.execution.sequential_seeds import Limit
from workbench.execution.study import Job, job_of
from workbench.execution.study_runner import Session
from workbench.report.comparison import leaderboards
from workbench.report.load import study_tables
from workbench.report.page import warnings
from workbench.report.statistics.paired_comparison import pairwise
from workbench.report.verdict import verdict_of
from workbench.spec import experiment
from workbench.spec.host import Host
from workbench.spec.parts import Budget, Special
from workbench.spec.presets import resolve
from workbench.store.run_store import ExperimentRecord, RunStore
from workbench.tasks import Suite
from workbench.tasks.common.contract import expected
from workbench.tasks.common.examples import Examples, Task

BASE = resolve("nano", {"budget.steps": 4, "tasks.names": "package", "tasks.seeds": 1})
ROWS = Examples(["a", "b"], None, [0, 1])
TASK = Task("package", "probes", ("x", "y"), "accuracy", ("accuracy",), 1.0, ROWS, {"test": ROWS})
Truth = Callable[[str, int], float]


@dataclass
class Machine:
    """Stands in for training and measuring: a run's score is `truth(objective, seed)`. `left` runs, then a signal."""

    root: Path
    truth: Truth
    left: int = 10_000
    trained: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)  # failures from before these times are tried again

    def begin(self, job: Job, root: Path, host: Host, workers: int) -> Session:
        special = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
        prepared = Prepared(root, "f" * 16, 1, 1, 1, BASE.encoder.vocab, special, root)
        store = RunStore(self.root)
        return Session(job, store, study_runner.bind(job.base, prepared), prepared, Suite((TASK,)), host, workers)

    def carry_out_all(
        self, store: RunStore, todo: Sequence[str], wanted: one_run.Wanted, host: Host, since: str, *_: Any
    ) -> None:
        self.begun.append(since)
        for run_id in todo:
            run = store.get(run_id)
            if run.trained:
                continue
            if self.left == 0:
                raise Interrupted(15)
            self.left -= 1
            spec = run.spec()
            steps, flops = spec.budget.steps or 0, dict.fromkeys(("paper", "paper-sparse", "matmul"), 1.0)
            rows = [{"step": n + 1, "tokens": n, "flops": flops, "seconds": 1.0} for n in range(steps)]
            (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            run.finish({"steps": steps, "tokens": 16, "flops": flops})
            self.trained.append(f"{spec.objective}-{spec.budget.steps}-{spec.seed}")
            value = self.truth("untrained" if spec.budget.steps == 0 else spec.objective, spec.seed)
            for task, seed, name in expected(wanted.suite, wanted.tasks):
                digest = name.rsplit("-", 2)[1]
                score = {
                    "format": 1, "task": task.name, "suite": task.suite, "metric": task.metric, "seed": seed,
                    "value": value, "values": {"test": {"accuracy": value}}, "baselines": {}, "train_rows": 2,
                    "test_rows": 2, "steps": 1, "seconds": 1.0, "finetune": {}, "data": "d", "digest": digest,
                    "code": "x",
                }  # fmt: skip
                run.write_json(f"scores/{name}", score | {"encoder": run.weight_digests()["encoder"]})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def made(truth: Truth, name: str = "runs") -> Machine:
        one = Machine(tmp_path / name, truth)
        monkeypatch.setattr(study_runner, "begin", one.begin)
        monkeypatch.setattr(one_run, "carry_out_all", one.carry_out_all)
        monkeypatch.setattr("os.fsync", lambda descriptor: None)
        monkeypatch.setattr("workbench.report.write", lambda *_, **__: Path("report.html"))
        return one

    return made


def scattered(gaps: dict[str, float]) -> Truth:
    return lambda arm, seed: 50 + gaps.get(arm, 0.0) + random.Random(f"{arm}/{seed}").gauss(0, 1)


def job(most: int = 12, **changes: Any) -> Job:
    base = BASE.changed({key.replace("__", "."): value for key, value in changes.items()})
    return job_of(experiment.load("ablation"), base, most, ("rtd", "bert-mlm"))


def go(one: Machine, limit: Limit = Limit(), job: Job | None = None) -> ExperimentRecord:  # noqa: B008 - frozen
    job = job or globals()["job"](limit.seeds)
    outcome = sequential_seeds.execute(job, limit, one.root, Host())
    return RunStore(one.root).experiment(outcome.record)


def test_the_begin_of_a_command_is_not_rounded_to_before_a_failure_that_it_tries_again(
    machine: Callable[..., Machine],
) -> None:
    one = machine(scattered({}))
    go(one, Limit(seeds=4))
    assert one.begun and all(datetime.fromisoformat(begun).microsecond for begun in one.begun)


def stands(record: ExperimentRecord) -> list[tuple[int, list[tuple[str, str, str]]]]:
    return [(look["seeds"], [(f["a"], f["b"], f["status"]) for f in look["found"]]) for look in record.looks]


def test_workers_are_given_the_files_that_an_experiment_names(
    machine: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idea, question = tmp_path / "idea.py", tmp_path / "question.py"
    idea.write_text("from workbench.objectives.rtd import Objective, Options, cost\n")
    question.write_text(f'QUESTION = "Which?"\nAXES = {{"objective": ("{idea}", "rtd")}}\n')
    one, given = machine(scattered({})), []
    monkeypatch.setattr(study_runner, "share", lambda assignment, workers: given.append(assignment.files))
    studied = job_of(experiment.load(str(question)), BASE, 2, [])
    assert len(study_runner.execute(studied, one.root, Host(), workers=2).runs) == 6
    assert given == [(("objective.py", str(idea)),)]


def test_what_is_clear_ends_at_the_first_look(machine: Callable[..., Machine]) -> None:
    one = machine(scattered({"rtd": 60.0}))
    record = go(one)
    assert record.design["seeds"] == [4, 6, 9, 12] and record.design["measure"] == "probes"
    assert stands(record) == [(4, [("rtd", "bert-mlm", "decided")])]
    assert len(one.trained) == 12 and {int(name[-1]) for name in one.trained} == {0, 1, 2, 3}
    [board] = leaderboards(study_tables.read_study(RunStore(one.root), record.name))
    verdict = verdict_of(board, "objective")
    assert verdict.best == "rtd" and verdict.kind != "undecided" and not verdict.rivals


def test_what_cannot_be_decided_ends_at_the_limit_at_the_latest(machine: Callable[..., Machine]) -> None:
    record = go(machine(scattered({"rtd": 0.5})), Limit(6))
    assert len(record.looks) <= 2
    assert {status for _, found in stands(record) for *_, status in found} <= {"open", "out of reach", "not decided"}
    assert all(status != "open" for *_, status in stands(record)[-1][1])


def test_a_command_that_is_killed_again_and_again_takes_the_same_looks(machine: Callable[..., Machine]) -> None:
    """Whatever the moment: the plan stands before the first run, and every look before the next block."""
    truth = scattered({"rtd": 1.5})
    whole = go(machine(truth, "whole"), Limit(6))
    assert len(whole.looks) == 2
    one = machine(truth, "killed")
    for _ in range(100):
        one.left = 4
        try:
            record = go(one, Limit(6))
            break
        except Interrupted:
            [found] = RunStore(one.root).experiments()
            assert found.design["seeds"] == [4, 6]
            assert stands(found) == stands(whole)[: len(found.looks)]
            [board] = leaderboards(study_tables.read_study(RunStore(one.root), found.name)) or [None]
            seeds = {pair.compared.estimate.n for pair in board.pairs[board.budget]} if board else {0}
            assert seeds == ({found.looks[-1]["seeds"]} if found.looks else {0})  # never those of the block under way
    assert stands(record) == stands(whole) and record.looks[0]["found"] == whole.looks[0]["found"]
    assert sorted(one.trained) == sorted(set(one.trained)) and len(record.runs) == len(whole.runs)


def test_a_look_is_written_down_before_it_is_used(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine(scattered({"rtd": 60.0}))
    told: list[list[int]] = []

    def conclude(session: Session, *_: Any) -> Any:
        told.append([look["seeds"] for look in session.store.experiment(session.record).looks])
        raise Interrupted(9)

    monkeypatch.setattr(study_runner, "conclude", conclude)
    with pytest.raises(Interrupted):
        go(one)
    assert told == [[4]]


def test_a_look_waits_for_runs_that_are_not_done(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine(scattered({}))
    monkeypatch.setattr(one, "carry_out_all", lambda *_: None)
    monkeypatch.setattr(one_run, "carry_out_all", lambda *_: None)  # as where other processes are at the runs
    assert go(one).looks == []
    assert "the look at 4 seeds needs 12 runs that are not done" in caplog.text


def test_a_plan_is_not_changed_once_it_is_made(machine: Callable[..., Machine]) -> None:
    one = machine(scattered({"rtd": 60.0}))
    go(one)
    with pytest.raises(InputError, match=r"was planned with --most-seeds 12 from seed 0, which later .* cannot change"):
        go(one, Limit(20))
    assert len(go(one).looks) == 1 and len(one.trained) == 12


def test_scores_that_were_there_before_are_no_test(machine: Callable[..., Machine]) -> None:
    one = machine(scattered({}))
    study_runner.execute(job(2), one.root, Host())
    with pytest.raises(InputError, match=r"2 seeds of rtd and bert-mlm are trained already.*--set seed=N"):
        go(one)
    record = go(one, Limit(4), job(4, seed=50))
    assert record.design["first"] == 50 and record.looks


def test_a_contrast_that_is_named_after_the_first_seeds_is_late_for_fresh_seeds_as_well(
    machine: Callable[..., Machine],
) -> None:
    """The page of a record counts all its seeds, and so also those that were there before the contrast was named."""
    one, silent = machine(scattered({})), replace(experiment.load("ablation"), contrasts=())
    first = study_runner.execute(job_of(silent, BASE, 2, ("rtd", "bert-mlm")), one.root, Host()).record
    assert study_runner.execute(job(3, seed=50), one.root, Host()).record == first
    [row] = RunStore(one.root).experiment(first).contrasts
    assert row["seen"] == 2 and len(row["runs_a"]) == 3
    [board] = leaderboards(study_tables.read_study(RunStore(one.root), first))
    assert not board.family.pairs and [pair.compared.estimate.n for pair in board.pairs[board.budget]] == [5]


def test_without_a_plan_the_record_keeps_which_seeds_were_reported(machine: Callable[..., Machine]) -> None:
    one = machine(scattered({}))

    def carried_out(seeds: int, **changes: int) -> ExperimentRecord:
        return RunStore(one.root).experiment(study_runner.execute(job(seeds, **changes), one.root, Host()).record)

    def reported(record: ExperimentRecord) -> list[tuple[int, list[int]]]:
        return [(row["budget"]["steps"], row["seeds"]) for row in record.reported]

    assert reported(carried_out(1)) == [], "one seed decides nothing"
    one.left = 4
    with pytest.raises(Interrupted):
        carried_out(4)
    assert reported(RunStore(one.root).experiments()[0]) == [], "nor was anything reported yet"
    one.left = 10_000
    assert reported(carried_out(4)) == reported(carried_out(4)) == [(4, [0, 1, 2, 3])]
    assert warnings.reported_before(study_tables.read_study(RunStore(one.root), carried_out(3).name)) == [], (
        "a part of those"
    )
    carried_out(4, budget__steps=6)
    record = carried_out(2, seed=50)
    assert reported(record) == [(4, [0, 1, 2, 3]), (6, [0, 1, 2, 3]), (4, [0, 1, 2, 3, 50, 51])]
    read = study_tables.read_study(RunStore(one.root), record.name)
    [said] = warnings.reported_before(read)
    assert said in warnings.cautions(read, leaderboards(read), {})
    said = said.reason
    day = record.reported[0]["at"][:10]
    assert f"at steps=4 were reported with 4 seeds ({day}) and 6 seeds ({day}). " in said and "up to 10 %" in said
    with pytest.raises(InputError, match="trained already"):
        go(one)
    planned = go(one, Limit(4), job(4, seed=90))
    assert [look["seeds"] for look in planned.looks] == [4] and planned.reported == record.reported


def test_gains_over_untrained_encoders_keep_to_the_looks(machine: Callable[..., Machine]) -> None:
    """A page in the middle of a block shows the gains of the last look, at the level of that look."""
    one = machine(scattered({"rtd": 1.5}))
    one.left = 4 * 3 + 5
    with pytest.raises(Interrupted):
        go(one, Limit(6))
    [record] = RunStore(one.root).experiments()
    [board] = leaderboards(study_tables.read_study(RunStore(one.root), record.name))
    arms = {cell.arm: {seed: cell.scores[seed] for seed in range(4)} for cell in board.cells}
    assert board.untrained is not None and board.family.plan is not None and max(board.untrained.scores) > 3
    arms["untrained"] = {seed: board.untrained.scores[seed] for seed in range(4)}
    pairs = [(arm, "untrained") for arm in ("rtd", "bert-mlm")]
    expected_gains = pairwise(arms, family=pairs, share=(4 / 6) ** 2)
    found = {cell.arm: cell.gain for cell in board.cells}
    for arm, _ in pairs:
        gain, wanted = found[arm], expected_gains[arm, "untrained"]
        keys = ("estimate", "seeds", "p", "adjusted")
        assert gain is not None and all(getattr(gain, key) == getattr(wanted, key) for key in keys)
    assert not [one for one in warnings.uneven(board) if "untrained" in one.reason]


def test_a_contrast_that_was_declared_before_training_is_declared_for_later_tasks_as_well(
    machine: Callable[..., Machine],
) -> None:
    one = machine(scattered({}))
    first = study_runner.execute(job(2), one.root, Host()).record
    second = study_runner.execute(job(2, tasks__seeds=2), one.root, Host()).record
    rows = [RunStore(one.root).experiment(name).contrasts for name in (first, second)]
    assert first != second and [row["seen"] for row in (*rows[0], *rows[1])] == [0, 0]


def test_a_plan_of_looks_declares_nothing_for_later_tasks(machine: Callable[..., Machine]) -> None:
    one = machine(scattered({"rtd": 60.0}))
    go(one)
    record = study_runner.execute(job(4, tasks__seeds=2), one.root, Host()).record
    assert [row["seen"] for row in RunStore(one.root).experiment(record).contrasts] == [4]


def test_another_statistic_of_the_scores_is_another_measure(machine: Callable[..., Machine]) -> None:
    one = machine(scattered({}))

    def named(**changes: Any) -> list[tuple[str, int]]:
        record = study_runner.execute(job(2, **changes), one.root, Host()).record
        return [(row["name"], row["seen"]) for row in RunStore(one.root).experiment(record).measures]

    assert named() == [("package", 0)]
    assert named(tasks__seeds=2) == named() == [("package", 0)]
    assert named(tasks__statistic="median") == [("package", 2)]


def test_nothing_declared_is_refused(machine: Callable[..., Machine]) -> None:
    with pytest.raises(InputError, match="mask-rate declares none among these runs; declare some, or give a number"):
        go(machine(scattered({})), job=job_of(experiment.load("mask-rate"), BASE, 4, []))
    with pytest.raises(InputError, match="mask-rate declares none among these runs"):
        sequential_seeds.whole(job_of(experiment.load("mask-rate"), BASE, 4, []), sequential_seeds.Limit(), Host(), 1)
    assert not (machine(scattered({})).root / "experiments").exists()


def test_compute_limits_the_seeds() -> None:
    priced, _ = job(1).priced
    one = sum(plan.flops["matmul"] for _, plan in priced)
    for unit, seeds in (("flops", 6), ("tokens", 5), ("steps", 4)):
        cost = {"flops": one, "tokens": sum(p.tokens for _, p in priced), "steps": sum(p.steps for _, p in priced)}[
            unit
        ]
        amount = (seeds + 0.5) * cost
        budget = Budget.model_validate({unit: int(amount) if unit == "steps" else amount})
        assert sequential_seeds.most_seeds(job(), Limit(12, budget), Host(), 1) == seeds
    with pytest.raises(InputError, match=r"leaves 1 seed of 2 arms \(each seed of all arms takes .* flops\)"):
        sequential_seeds.most_seeds(job(), Limit(12, Budget(flops=1.5 * one)), Host(), 1)
    with pytest.raises(InputError, match="3 seeds of 2 arms, which show no difference, however large"):
        sequential_seeds.most_seeds(job(), Limit(3), Host(), 1)
