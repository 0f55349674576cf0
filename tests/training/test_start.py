"""Runs that begin where others ended: what is taken over, who pays, phases, and what happens when a parent fails."""

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
from tiny_runs import branch, carried_out, spec_of, two_stage

from workbench import objectives
from workbench.data.corpus import corpus_of
from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.execution import one_run, study_runner
from workbench.models.encoder import build_encoder
from workbench.objectives import build, with_options
from workbench.report.load.arm_names import arm_names, begun
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec, flat
from workbench.spec.stages import BoundRun
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import RunStore
from workbench.tasks import Suite
from workbench.training import loop
from workbench.training.optimizer import lr_factor
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


# What is taken over


def trained(spec: RunSpec, prepared: Prepared, root: Path, host: Host = HOST) -> RunDir:
    return carried_out(spec, prepared, Suite(()), root, host=host)


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
    trained(spec, prepared, tmp_path / "b")
    mine, theirs = weights(run), weights(whole)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert [row["step"] for row in run.metrics()] == list(range(1, 9))


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


PLAIN = Host(device="cpu", threads=1, log_every=1, precision="fp32", plain=True)
STEPS, SHORT, LONG = 10, 8, 16


def phases(**keys: Any) -> Any:
    parent = {"data.length": SHORT, "schedule.until": 0.8} | keys.pop("parent", {})
    given = {"objective": "bert-mlm", "start__take": "all", "start__share": 0.8, "start__parent": parent,
             "budget__steps": STEPS, "schedule__warmup": 2, "encoder__dropout": 0.0,
             "encoder__attention_dropout": 0.0}  # fmt: skip
    return spec_of(**given | keys)


def test_two_phases_are_a_plain_loop_over_short_and_then_long_rows(prepared: Prepared, tmp_path: Path) -> None:
    """One AdamW over all steps, with one linear decay; the rows are those of each length at the place of training."""
    child = trained(phases(), prepared, tmp_path, PLAIN)
    spec = child.spec()
    parent = spec.parent()
    assert parent is not None
    rows = [*RunStore(tmp_path).open(BoundRun(parent)).metrics(), *child.metrics()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))

    short, long = (build(each, build_encoder(each)) for each in (parent, spec))
    long.load_state_dict(short.state_dict())
    decayed = [p for p in short.parameters() if p.ndim > 1]
    others = [p for p in short.parameters() if p.ndim <= 1]
    optim = spec.optim
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": others, "weight_decay": 0.0}],
        betas=(optim.beta1, optim.beta2), eps=optim.eps,
    )  # fmt: skip
    for step, row in enumerate(rows):
        this = parent if step < 8 else spec
        model = short if step < 8 else long
        if step == 8:  # the same weights go on in the objective of the longer rows
            for target, source in zip(long.parameters(), short.parameters(), strict=True):
                target.data = source.data
        batch = corpus_of(prepared, this).batch(step * this.batch.size, this.batch.size, torch.device("cpu"))
        assert batch.ids.shape[1] == (SHORT if step < 8 else LONG)
        loss = model(batch).total
        loss.backward()
        if step >= 8:
            for target, source in zip(short.parameters(), long.parameters(), strict=True):
                target.grad = source.grad
        torch.nn.utils.clip_grad_norm_(short.parameters(), optim.clip)
        rate = optim.lr * ((step + 1) / 3 if step < 2 else (STEPS - step) / (STEPS - 2))
        for group in optimizer.param_groups:
            group["lr"] = rate
        assert row["learning_rate"] == pytest.approx(rate)
        assert row["loss"] == pytest.approx(loss.item(), rel=2e-5), step
        optimizer.step()
        short.zero_grad()
        long.zero_grad()


def test_the_bill_is_that_of_both_lengths(prepared: Prepared, tmp_path: Path) -> None:
    spec = study_runner.bind(phases(), prepared)
    found, parent = plan(spec), plan(spec.parent())
    assert (found.first, found.steps, parent.steps) == (8, 10, 8)
    assert found.tokens == 8 * 4 * SHORT + 2 * 4 * LONG
    costs = [plan(spec_of(objective="bert-mlm", data__length=n, budget__steps=1)).flops["matmul"]
             for n in (SHORT, LONG)]  # fmt: skip
    assert plan(phases()).flops["matmul"] == 8 * costs[0] + 2 * costs[1]
    assert found.words == pytest.approx(
        parent.words + 2 * 4 * LONG * (LONG - 2) / LONG * spec.data.words / spec.data.tokens
    )
    assert found.picks == 5 and parent.picks == 3  # 30 % of a row, rounded up


def test_a_schedule_ends_early_only_where_it_is_said_to() -> None:
    spec = phases().parent()
    assert spec is not None
    cut = plan(spec)
    whole = spec_of(objective="bert-mlm", budget__steps=STEPS, schedule__warmup=2)
    rates = [lr_factor(step, cut.steps, cut.warmup_steps, spec.schedule) for step in range(cut.steps)]
    full = plan(whole)
    assert rates == [lr_factor(step, full.steps, full.warmup_steps, whole.schedule) for step in range(8)]
    assert "until" not in whole.identity()["schedule"] and spec.identity()["schedule"]["until"] == 0.8


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
        (phases, {"parent": {"schedule.until": 1.0}}, "would jump where this run begins, after 0.8 of all 10 steps; "
         "set start.parent.schedule.until=0.8"),
        (phases, {"start__share": 0.5}, "until=0.8: the learning rate would jump where this run begins, after 0.5"),
        (phases, {"budget__steps": None, "budget__tokens": 4000.0}, "set start.parent.schedule.until=0.8"),
        (phases, {"schedule__kind": "wsd", "schedule__decay": 0.2, "start__share": 0.8, "budget__steps": None,
          "budget__flops": 1e9, "parent": {"schedule.kind": "constant"}}, "set schedule.decay=0."),
        (phases, {"budget__steps": None, "budget__words": 1e4}, "a budget cannot be in words"),
        (phases, {"parent": {"data.corpus": ("other.txt",)}}, "only data.length may differ"),
        (phases, {"parent": {"data.length": 32}}, "must not exceed encoder.positions"),
        (phases, {"parent": {"batch.size": 8}}, "only the schedule and data.length, but it changes batch"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_a_sentence(make: Any, keys: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(make(**keys))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_another_objective_may_begin_on_shorter_rows(prepared: Prepared, tmp_path: Path) -> None:
    parent = {"objective": "causal-lm", "data.length": SHORT}
    child = trained(
        spec_of(objective="bert-mlm", start__take="encoder", start__parent=parent, budget__steps=6), prepared, tmp_path
    )
    assert child.spec().parent().data.length == SHORT and len(child.metrics()) == 3


def test_arms_with_other_first_lengths_are_not_averaged() -> None:
    specs = {f"r{n}": flat(phases(parent={"data.length": n}).model_dump()) for n in (8, 12)}
    names = arm_names("objective", [{"run_id": run, "role": "arm"} for run in specs], specs)
    assert names["r8"] == "bert-mlm, after rows of 8 tokens" and names["r12"].endswith("after rows of 12 tokens")
    assert begun(flat(spec_of(start__parent={}, start__take="all").model_dump())) == "branch of a trunk"
