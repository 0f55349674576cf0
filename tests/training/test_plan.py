"""The plan of a run: its steps and costs follow from its budget, and a run pays for those that it starts from."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objective_oracle import tiny
from tiny_runs import branch, spec_of, two_stage

from workbench import objectives
from workbench.errors import InputError
from workbench.models.encoder import build_encoder
from workbench.spec.presets import resolve
from workbench.training import plan as planning
from workbench.training.plan import (
    amount_in,
    count_parameters,
    memory,
    plan,
    plan_from_json,
    spent_by,
    warmup_steps,
    with_parents,
)


@pytest.mark.parametrize("unit", ["flops", "tokens", "steps"])
@pytest.mark.parametrize("make", [two_stage, branch])
def test_children_pay_for_their_parents(make: Any, unit: str) -> None:
    """The whole is within the budget by less than a step, and no other convention forgets the parent."""
    amount = {"flops": 3e9, "tokens": 64 * 101, "steps": 101}[unit]
    child = make(**{f"budget__{unit}": amount})
    parent = child.parent()
    mine, theirs = plan(child), plan(objectives.with_options(parent))
    spent = {"flops": mine.flops["matmul"], "tokens": mine.tokens, "steps": mine.steps - mine.first + theirs.steps}[
        unit
    ]
    step = {"flops": mine.flops_per_step["matmul"], "tokens": 64, "steps": 1}[unit]
    assert amount - step < spent <= amount
    assert mine.parent is not None and mine.parent["run_id"] == parent.name
    own = mine.steps - mine.first
    for name, flops in mine.flops.items():
        assert Fraction(flops) == Fraction(theirs.flops[name]) + own * Fraction(mine.flops_per_step[name])
    assert mine.tokens == theirs.tokens + own * 64


def test_a_chain_of_parents_is_paid_once() -> None:
    deep = branch(start__parent={"schedule.kind": "constant", "start": {"share": 0.5, "parent": {}}}, budget__steps=100)
    assert (plan(deep).steps, plan(deep).first) == (100, 80)
    middle = deep.parent()
    assert middle is not None and plan(middle).steps == 80 and plan(middle).first == 40
    assert plan(deep).tokens == 100 * 64
    assert plan(deep).flops == plan(spec_of(budget__steps=100)).flops  # as dear as one run of as many steps


def test_a_frozen_generator_costs_its_forward_pass_only() -> None:
    frozen, joint = plan(two_stage(budget__steps=10)), plan(spec_of(generator__width=1.0, tying="none"))
    alone = objectives.load(spec_of()).flops.generator(two_stage()).matmul * 4
    assert joint.flops_per_step["matmul"] - frozen.flops_per_step["matmul"] == 2 * alone


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(9, 0), (10, 1), (5_000, 500), (99_999, 9_999), (100_000, 10_000), (150_000, 10_000), (766_000, 10_000)],
)
def test_warm_up_left_out_is_ten_thousand_steps_but_at_most_a_tenth(steps: int, expected: int) -> None:
    spec = spec_of()
    assert spec.schedule.warmup is None and warmup_steps(spec.schedule, steps) == expected


def test_sharding_leaves_half_of_the_state_and_its_part_of_the_other_half() -> None:
    """16 bytes a weight on one device: 4 each for weights, gradients and two moments; the rows are divided as well."""
    spec = resolve("nano")
    counts = count_parameters(spec)
    total = counts["total"]
    alone, shared, sharded = memory(spec, counts), memory(spec, counts, 4), memory(spec, counts, 4, shard=True)
    assert shared - 16 * total == pytest.approx((alone - 16 * total) / 4)
    assert sharded - shared == pytest.approx((8 + 4 - 16) * total)


def test_a_missing_package_is_named_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning.importlib.util, "find_spec", lambda name: None)
    planning.plan(tiny("rtd", optim__kind="muon"))
    with pytest.raises(InputError, match=r"^optim\.kind=lamb needs the package pytorch-optimizer, which is not inst"):
        planning.plan(tiny("rtd", optim__kind="lamb"))


@given(st.integers(1, 10_000), st.sampled_from(["tokens", "flops", "seconds"]), st.floats(0, 0.99))
def test_a_budget_buys_every_step_that_fits_into_it(steps: int, unit: str, rest: float) -> None:
    price = {"tokens": 64.0, "flops": plan(spec_of()).flops_per_step["matmul"], "seconds": 0.5}[unit]
    made = plan(spec_of(**{f"budget__{unit}": price * (steps + rest)}), seconds_per_step=0.5)
    assert (made.steps, made.tokens, made.rows) == (steps, 64 * steps, 4 * steps)
    assert made.flops == {name: made.steps * cost for name, cost in made.flops_per_step.items()}
    assert set(made.budget) == {unit, "convention"}


def test_a_budget_below_one_step_is_refused_and_seconds_wait_for_the_first_step() -> None:
    spec = spec_of(budget__tokens=63)
    with pytest.raises(InputError, match=r"--budget tokens=63 is less than one step, which takes 64 tokens; give more"):
        plan(spec)
    assert plan(spec_of(budget__seconds=10)).steps == 0
    with pytest.raises(InputError, match="less than one step, which takes 11 seconds"):
        plan(spec_of(budget__seconds=10), seconds_per_step=11.0)


def test_a_plan_comes_back_from_its_file_and_ignores_later_fields() -> None:
    made = plan(branch(budget__steps=20))
    assert plan_from_json(asdict(made) | {"of_tomorrow": 1}) == made
    older = {key: value for key, value in asdict(made).items() if key not in ("words", "epochs", "parent", "first")}
    assert asdict(plan_from_json(older)) == asdict(made) | {"first": 0, "parent": None}
    for key in ("steps", "flops"):
        with pytest.raises(ValueError, match=rf"plan\.json has no usable '{key}'"):
            plan_from_json(asdict(made) | {key: "many"})


@pytest.mark.parametrize("make", [spec_of, two_stage, branch])
def test_what_is_spent_at_the_last_step_is_the_whole_plan(make: Any) -> None:
    spec = make(budget__steps=20)
    made = plan(spec)
    assert spent_by(made, spec, made.steps) == {"step": made.steps, "tokens": made.tokens, "flops": made.flops}
    before = spent_by(made, spec, made.first)
    assert before["tokens"] == (made.parent["tokens"] if made.parent else 0)
    assert amount_in("flops", spec, made.tokens, made.flops) == made.flops["matmul"]


def test_parents_that_runs_share_are_listed_once() -> None:
    child = branch(budget__steps=20)
    other = branch(budget__steps=20, schedule__decay=0.1)
    parent, same = child.parent(), other.parent()
    assert parent is not None and same is not None and parent.name == same.name
    listed = with_parents([(spec, plan(spec)) for spec in (child, other)])
    assert [spec.name for spec, _ in listed] == [child.name, parent.name, other.name]
    assert listed[1][1] == plan(parent)
    deep = branch(budget__steps=20, start__parent={"schedule.kind": "constant", "start": {"share": 0.5, "parent": {}}})
    assert len(with_parents([(deep, plan(deep))])) == 3  # also the parent of its parent


@pytest.mark.parametrize("name", ["rtd", "bert-mlm", "all-tokens-mlm"])
def test_parameters_are_counted_once_and_as_the_model_has_them(name: str) -> None:
    spec = tiny(name)
    counted, model = count_parameters(spec), objectives.build(spec, build_encoder(spec))
    assert counted["total"] == sum(p.numel() for p in model.parameters()) == sum(counted.values()) - counted["total"]
    assert counted["encoder"] == sum(p.numel() for p in model.encoder.parameters())
    counted["total"] = 0  # the caller's own copy
    assert count_parameters(spec)["total"] > 0
    assert count_parameters(spec.changed({"encoder.vocab": spec.encoder.vocab + 1}))["total"] > sum(counted.values())
