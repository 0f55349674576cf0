"""Phases of one training with rows of different lengths, as BERT's: one schedule, one optimizer, one bill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import spec_of

from workbench.data.corpus import corpus_of
from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.execution import one_run, study_runner
from workbench.models.encoder import build_encoder
from workbench.objectives import build
from workbench.report.load.arm_names import arm_names, begun
from workbench.spec.host import Host
from workbench.spec.run_spec import flat
from workbench.spec.stages import BoundRun
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import RunStore
from workbench.tasks import Suite
from workbench.training.optimizer import lr_factor
from workbench.training.plan import plan

HOST = Host(device="cpu", threads=1, log_every=1, precision="fp32", plain=True)
STEPS, SHORT, LONG = 10, 8, 16


def phases(**keys: Any) -> Any:
    parent = {"data.length": SHORT, "schedule.until": 0.8} | keys.pop("parent", {})
    given = {"objective": "bert-mlm", "start__take": "all", "start__share": 0.8, "start__parent": parent,
             "budget__steps": STEPS, "schedule__warmup": 2, "encoder__dropout": 0.0,
             "encoder__attention_dropout": 0.0}  # fmt: skip
    return spec_of(**given | keys)


def trained(spec: Any, prepared: Prepared, root: Path) -> RunDir:
    store = RunStore(root)
    run = store.open(BoundRun(study_runner.bind(spec, prepared)))
    one_run.carry_out_all(store, [run.run_id], one_run.Wanted(spec.tasks, Suite(()), prepared), HOST, now())
    assert run.trained, run.note
    return run


def test_two_phases_are_a_plain_loop_over_short_and_then_long_rows(prepared: Prepared, tmp_path: Path) -> None:
    """One AdamW over all steps, with one linear decay; the rows are those of each length at the place of training."""
    child = trained(phases(), prepared, tmp_path)
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
    ("keys", "told"),
    [
        ({"parent": {"schedule.until": 1.0}}, "would jump where this run begins, after 0.8 of all 10 steps; set "
                                              "start.parent.schedule.until=0.8"),
        ({"start__share": 0.5}, "schedule.until=0.8: the learning rate would jump where this run begins, after 0.5"),
        ({"budget__steps": None, "budget__tokens": 4000.0}, "set start.parent.schedule.until=0.8"),
        ({"schedule__kind": "wsd", "schedule__decay": 0.2, "start__share": 0.8, "budget__steps": None,
          "budget__flops": 1e9, "parent": {"schedule.kind": "constant"}}, "set schedule.decay=0."),
        ({"budget__steps": None, "budget__words": 1e4}, "a budget cannot be in words"),
        ({"parent": {"data.corpus": ("other.txt",)}}, "only data.length may differ"),
        ({"parent": {"data.length": 32}}, "must not exceed encoder.positions"),
        ({"parent": {"batch.size": 8}}, "only the schedule and data.length, but it changes batch"),
    ],
)  # fmt: skip
def test_phases_that_do_not_fit_are_refused_in_a_sentence(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(phases(**keys))
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
