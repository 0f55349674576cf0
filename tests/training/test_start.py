"""Runs that begin where others ended: what is taken over, who pays, and what happens when a parent fails."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import branch, spec_of, two_stage

from workbench import objectives
from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.execution import one_run, study_runner
from workbench.objectives import with_options
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import RunStore
from workbench.tasks import Suite
from workbench.training import loop
from workbench.training.plan import plan

HOST = Host(device="cpu", threads=1, log_every=1)


# What a parent is


def test_a_parent_is_this_run_but_for_what_is_said() -> None:
    child = two_stage(budget__steps=20, seed=3)
    parent = child.parent()
    assert parent is not None
    assert (parent.objective, parent.seed, parent.budget.steps, parent.start) == ("bert-mlm", 3, 10, None)
    assert parent.corruption.mask == 1.0 and parent.encoder == child.encoder
    assert parent.options == objectives.with_options(parent).options


def test_identity_is_what_the_parent_is_and_not_how_it_is_written() -> None:
    child = two_stage(budget__steps=20)
    nested = {"objective": "bert-mlm", "corruption": {"mask": 1.0, "random": 0.0}, "options": {}}
    assert two_stage(budget__steps=20, start__parent=nested).name == child.name
    other = {"objective": "bert-mlm", "corruption.mask": 0.9, "corruption.random": 0.0}
    assert two_stage(budget__steps=20, start__parent=other).name != child.name
    assert two_stage(budget__steps=20, start__share=0.25).name != child.name
    assert "start" not in spec_of(budget__steps=20).identity()
    again = with_options(child)
    assert again == child and again.name == child.name


def test_a_spec_with_parents_survives_json() -> None:
    deep = branch(start__parent={"schedule.kind": "constant", "start": {"share": 0.5, "parent": {}}})
    grand = deep.parent()
    assert grand is not None and grand.parent() is not None
    again = RunSpec.model_validate(json.loads(json.dumps(deep.model_dump(mode="json"))))
    assert again.name == deep.name


@pytest.mark.parametrize(
    ("make", "keys", "told"),
    [
        (two_stage, {"generator__width": 0.5}, "generator.width=1, generator.depth=1 and tying=none, got 0.5"),
        (two_stage, {"tying": "embeddings"}, "would also freeze the weights that tying=embeddings shares"),
        (two_stage, {"tying": "gdes", "start__freeze_generator": False}, "tying=none, got 1, 1 and gdes"),
        (two_stage, {"start__take": "encoder"}, "needs a generator from the parent"),
        (two_stage, {"objective": "adversarial"}, "start.freeze_generator forbids"),
        (two_stage, {"generator__kind": "unigram"}, "needs generator.width=1"),
        (two_stage, {"start__parent": {"objective": "bert-mlm", "encoder.hidden": 32}}, "the same encoder"),
        (two_stage, {"start__parent": {"data.held_out": 0.5}}, "cannot change data"),
        (two_stage, {"start__parent": {"objektive": "rtd"}}, "unknown key 'objektive'"),
        (branch, {"schedule__decay": 0.5}, "schedule.decay=0.5 would begin before this run does"),
        (branch, {"start__parent": {"optim.lr": 1.0}}, "the schedule and data.length, but it changes optim"),
        (branch, {"start__share": 1.5}, "less than 1"),
        (two_stage, {"budget__steps": 1}, "leaves no step for the run"),
        (two_stage, {"budget__tokens": 100, "start__share": 0.9}, "after what its parent spends"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_a_sentence(make: Any, keys: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(make(**keys))
    assert told in str(caught.value) and "\n" not in str(caught.value)


# What is taken over


def trained(spec: RunSpec, prepared: Prepared, root: Path, host: Host = HOST) -> RunDir:
    store = RunStore(root)
    run = store.open(BoundRun(study_runner.bind(spec, prepared)))
    one_run.carry_out_all(store, [run.run_id], one_run.Wanted(spec.tasks, Suite(()), prepared), host, now())
    return run


def weights(run: RunDir) -> dict[str, torch.Tensor]:
    (last,) = sorted((run.path / "checkpoints").iterdir())[-1:]
    return load_file(last / "model.safetensors")


def test_two_stage_starts_from_the_generator_which_then_stays(
    prepared: Prepared, tmp_path: Path, monkeypatch: Any
) -> None:
    first: dict[str, torch.Tensor] = {}
    real = loop.inherit

    def spy(parent: RunDir, spec: RunSpec, model: Any, optimizer: Any) -> Any:
        found = real(parent, spec, model, optimizer)
        first.update({name: p.detach().clone() for name, p in model.named_parameters()})
        return found

    monkeypatch.setattr(loop, "inherit", spy)
    child = trained(two_stage(budget__steps=16), prepared, tmp_path)
    parent = RunStore(tmp_path).open(BoundRun(child.spec()).parent())
    assert child.trained and parent.state == "done" and not list((parent.path).glob("scores/*"))
    theirs, last = weights(parent), weights(child)
    for name in (n for n in first if n.startswith("encoder.")):
        assert torch.equal(first[name], theirs[name]), name
        assert torch.equal(first[name], first[name.replace("encoder.", "generator.body.", 1)]), name
    assert any(not torch.equal(last[n], first[n]) for n in first if n.startswith("encoder."))
    generator = [n for n in first if n.startswith("generator.")]
    assert all(torch.equal(last[n], first[n]) for n in generator)
    heads = {n for n in generator if n.startswith("generator.head.")}
    assert len(heads) == 5 and all(torch.equal(first[n], theirs[n.replace("generator.", "", 1)]) for n in heads)
    rows = child.metrics()
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert rows[-1]["tokens"] == 16 * 64 and rows[-1]["flops"] == pytest.approx(plan(child.spec()).flops)
    assert rows[0]["seconds"] > parent.metrics()[-1]["seconds"]


def test_a_branch_goes_on_as_if_the_trunk_had_not_stopped(prepared: Prepared, tmp_path: Path) -> None:
    """A trunk cut in two ends, bit for bit, as one that was not cut, and the decay begins at the last share."""
    whole = trained(spec_of(schedule__kind="constant", schedule__warmup=2, budget__steps=12), prepared, tmp_path / "a")
    halves = spec_of(schedule__kind="constant", schedule__warmup=2, budget__steps=12, start__parent={})
    cut = trained(halves, prepared, tmp_path / "b")
    mine, theirs = weights(cut), weights(whole)
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    noisy = ("seconds", "tokens_per_second", "saving_share")
    rows = [[{k: v for k, v in row.items() if k not in noisy} for row in run.metrics()] for run in (whole, cut)]
    assert rows[0][6:] == rows[1]

    decayed = trained(branch(schedule__warmup=2, budget__steps=20), prepared, tmp_path / "a")
    rates = [row["learning_rate"] for row in decayed.metrics()]
    peak = decayed.spec().optim.lr
    assert [row["step"] for row in decayed.metrics()] == [17, 18, 19, 20]
    assert rates == pytest.approx([peak * share for share in (0.8, 0.6, 0.4, 0.2)])


def test_a_child_that_was_stopped_goes_on_from_itself(prepared: Prepared, tmp_path: Path) -> None:
    spec = two_stage(budget__steps=16)
    whole = trained(spec, prepared, tmp_path / "a")
    run = trained(spec, prepared, tmp_path / "b", Host(device="cpu", threads=1, log_every=1, save_every=3))
    steps = sorted((run.path / "checkpoints").iterdir())
    assert [path.name for path in steps] == ["step-00000006", "step-00000008"]
    for path in steps[-1].iterdir():
        path.unlink()
    steps[-1].rmdir()
    run.remove("done.json")
    one_run.carry_out_all(
        RunStore(tmp_path / "b"), [run.run_id], one_run.Wanted(spec.tasks, Suite(()), prepared), HOST, now()
    )
    mine, theirs = weights(run), weights(whole)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert [row["step"] for row in run.metrics()] == list(range(1, 9))


def test_an_encoder_alone_can_be_taken(prepared: Prepared, tmp_path: Path) -> None:
    spec = spec_of(start__take="encoder", start__parent={"objective": "bert-mlm"}, budget__steps=6, optim__lr=1e-12)
    child = trained(spec, prepared, tmp_path)
    mine, theirs = weights(child), weights(RunStore(tmp_path).open(BoundRun(child.spec()).parent()))
    shared = [name for name in theirs if name.startswith("encoder.")]
    assert shared and all(torch.allclose(mine[name], theirs[name], atol=1e-8) for name in shared)


def test_a_parent_is_trained_once_for_all_its_children(prepared: Prepared, tmp_path: Path) -> None:
    first = trained(branch(budget__steps=10), prepared, tmp_path)
    parent = RunStore(tmp_path).open(BoundRun(first.spec()).parent())
    written = (parent.path / "done.json").stat().st_mtime_ns
    second = trained(branch(budget__steps=10, schedule__decay=0.1), prepared, tmp_path)
    assert second.spec().parent().name == parent.run_id
    assert second.trained and (parent.path / "done.json").stat().st_mtime_ns == written
    assert len(RunStore(tmp_path).runs()) == 3


def test_a_parents_end_is_its_childrens_end(prepared: Prepared, tmp_path: Path) -> None:
    spec = study_runner.bind(two_stage(budget__steps=16), prepared)
    store = RunStore(tmp_path)
    child, parent = store.open(BoundRun(spec)), store.open(BoundRun(spec).parent())
    with parent.lease():
        parent.fail("diverged", "loss nan at step 3", step=3)
    one_run.carry_out_all(store, [child.run_id], one_run.Wanted(spec.tasks, Suite(()), prepared), HOST, now())
    assert (child.state, parent.state) == ("failed", "diverged")
    assert child.note == f"its parent {parent.run_id} diverged: loss nan at step 3"


def test_a_parents_lost_checkpoint_is_named(
    prepared: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The child is left alone, and other runs go on."""
    spec = branch(budget__steps=10)
    parent = trained(spec.parent(), prepared, tmp_path)
    shutil.rmtree(parent.path / "checkpoints")
    child = trained(spec, prepared, tmp_path)
    assert "its last checkpoint is missing; delete that folder" in caplog.text
    assert child.state == "interrupted" and parent.state != "damaged"


def test_while_another_trains_the_parent_its_children_wait(prepared: Prepared, tmp_path: Path) -> None:
    """A worker that finds the parent taken goes on with other runs, and comes back."""
    child, other = (
        study_runner.bind(branch(budget__steps=10), prepared),
        study_runner.bind(spec_of(budget__steps=3), prepared),
    )
    store = RunStore(tmp_path)
    runs = [store.open(BoundRun(spec)) for spec in (child, other)]
    parent = store.open(BoundRun(child).parent())
    ids = [run.run_id for run in runs]
    with ThreadPoolExecutor(1) as pool:
        with parent.lease():
            work = pool.submit(
                one_run.carry_out_all, store, ids, one_run.Wanted(child.tasks, Suite(()), prepared), HOST, now()
            )
            deadline = time.monotonic() + 60
            while not runs[1].trained and time.monotonic() < deadline:
                time.sleep(0.05)
            assert runs[1].trained and not runs[0].trained and not parent.trained
        work.result(timeout=60)
    assert parent.trained and runs[0].trained
