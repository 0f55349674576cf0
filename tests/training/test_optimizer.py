"""The update rule and the learning rate against the definitions of paper and released code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import NAMES, build, shaken, tiny
from torch import Tensor, nn

from workbench.errors import InputError
from workbench.models.families import PLUGS, decays, family_of
from workbench.spec.parts import EncoderSpec, OptimSpec
from workbench.spec.run_spec import RunSpec
from workbench.training.optimizer import generator_alone, lr_factor, make_optimizer, set_rate
from workbench.training.plan import Plan, plan
from workbench.training.steps import on_device

RATES = [0.0, *(0.01 * math.sin(0.3 * step) ** 2 + 1e-4 for step in range(1, 20))]


class Small(nn.Module):
    """One kernel and what is not decayed."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)


def gradients(steps: int, kind: torch.dtype = torch.float32) -> list[list[Tensor]]:
    """Some of them tiny, so that epsilon matters."""
    numbers = torch.Generator().manual_seed(0)
    sizes = [p.shape for p in Small().parameters()]
    scales = [1.0, 1e-5, 1.0, 1e-6]
    return [
        [torch.randn(s, generator=numbers).to(kind) * scale for s, scale in zip(sizes, scales, strict=True)]
        for _ in range(steps)
    ]


def stepped(spec: OptimSpec, steps: int = 20) -> list[Tensor]:
    torch.manual_seed(0)
    model = Small()
    optimizer = make_optimizer(model, spec)
    for step, grads in enumerate(gradients(steps), start=1):
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.grad = grad.clone()
        set_rate(optimizer, spec, RATES[step - 1], step)
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def by_hand(spec: OptimSpec, corrected: bool, steps: int = 20) -> list[Tensor]:
    """Adam with decoupled decay in float64, as the released code writes it: w -= lr (m / (sqrt(v) + eps) + wd w)."""
    torch.manual_seed(0)
    names, weights = zip(*((n, p.detach().double()) for n, p in Small().named_parameters()), strict=True)
    weights = list(weights)
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for step, grads in enumerate(gradients(steps), start=1):
        for i, grad in enumerate(g.double() for g in grads):
            first[i] = spec.beta1 * first[i] + (1 - spec.beta1) * grad
            second[i] = spec.beta2 * second[i] + (1 - spec.beta2) * grad**2
            m, v = first[i], second[i]
            if corrected:
                m, v = m / (1 - spec.beta1**step), v / (1 - spec.beta2**step)
            decay = 0.0 if "norm" in names[i] or names[i].endswith("bias") else spec.weight_decay
            weights[i] = weights[i] - RATES[step - 1] * (m / (v.sqrt() + spec.eps) + decay * weights[i])
    return weights


@pytest.mark.parametrize("corrected", [True, False], ids=["paper", "released"])
@pytest.mark.parametrize("decay", [0.0, 0.01, 3.0])
def test_twenty_steps_by_hand(corrected: bool, decay: float) -> None:
    spec = OptimSpec(bias_correction=corrected, weight_decay=decay)
    for ours, expected in zip(stepped(spec), by_hand(spec, corrected), strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-7)


def test_bias_correction_makes_a_difference_that_the_test_above_can_see() -> None:
    spec = OptimSpec()
    one, other = by_hand(spec, True), by_hand(spec, False)
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(one, other, strict=True))


def test_the_first_released_step_has_rate_zero_and_changes_nothing() -> None:
    before = [p.detach() for p in (torch.manual_seed(0), Small())[1].parameters()]
    after = stepped(OptimSpec(bias_correction=False), steps=1)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


# What is decayed


@pytest.mark.parametrize("head", ["linear", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_biases_and_norms_are_not_decayed_and_all_else_is(name: str, head: str) -> None:
    objective = build(tiny(name, head=head))
    decayed, plain = ({id(p) for p in g["params"]} for g in make_optimizer(objective, OptimSpec()).param_groups)
    assert decayed.isdisjoint(plain)
    assert len(decayed | plain) == len(list(objective.parameters()))
    spared = set()
    for module in objective.modules():
        if isinstance(module, nn.LayerNorm):
            spared |= {id(p) for p in module.parameters(recurse=False)}
        spared |= {id(p) for n, p in module.named_parameters(recurse=False) if n == "bias"}
    assert plain == spared
    assert id(objective.encoder.table.weight) in decayed


@pytest.mark.parametrize("family", PLUGS.built_in)
def test_the_rule_holds_in_every_family(family: str) -> None:
    """By name as in pre-training, and by shape as in fine-tuning: the same weights are spared."""
    name = "causal-lm" if family_of(EncoderSpec(family=family)).CAUSAL == "always" else "bert-mlm"
    objective = build(tiny(name, {"encoder.family": family, "encoder.embedding": None}))
    groups = make_optimizer(objective, OptimSpec()).param_groups
    decayed = {id(weight) for group in groups if group["decayed"] for weight in group["params"]}
    for path, module in objective.named_modules():
        for name, weight in module.named_parameters(recurse=False):
            spared = id(weight) not in decayed
            assert spared == (isinstance(module, nn.LayerNorm) or name == "bias"), (path, name)
            assert spared == (weight.ndim <= 1), (path, name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder.norm.weight", True), ("norm.weight", True), ("layers.0.LayerNorm.weight", True), ("bias", True),
        ("norm.dense.weight", False), ("a.norm.b.weight", False), ("normal_form.a.b.c", False), ("table.weight", False),
        ("layer.0.rel_attn.r_w_bias", False), ("layer.0.ff.layer_1.bias", True),
    ],
)  # fmt: skip
def test_a_norm_is_known_by_the_name_of_the_module_that_holds_the_weight(name: str, expected: bool) -> None:
    assert decays(name, None) is not expected


# A rate of the generator's own

TYINGS = ["none", "tokens", "embeddings", "all", "gdes"]


def tied(tying: str, **keys: Any) -> RunSpec:
    return tiny("rtd", {"tying": tying, "generator.width": 1.0 if tying == "all" else 0.5}, **keys)


@pytest.mark.parametrize("tying", TYINGS)
def test_what_generator_and_encoder_share_is_not_the_generators_alone(tying: str) -> None:
    objective = build(tied(tying))
    weights = dict(objective.generator.named_parameters())
    body = {name for name in weights if name.startswith("body.")}
    tables = {name for name in body if ".embeddings." in name}
    words = {name for name in tables if name.endswith("word_embeddings.weight")}
    shared = {"none": set(), "gdes": set(), "tokens": words, "embeddings": tables, "all": body}[tying]
    assert words and words < tables < body < weights.keys()
    assert {name for name, p in weights.items() if id(p) in generator_alone(objective)} == weights.keys() - shared
    assert not {id(p) for p in objective.encoder.parameters()} & generator_alone(objective)


@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("tying", TYINGS)
def test_each_weight_moves_as_at_its_own_rate(tying: str, recipe: str) -> None:
    """The same gradients at a rate of 1e-3 for all, at 4e-3 for all, and at 4e-3 for the generator alone."""

    def moved(lr: float, generator_lr: float | None) -> tuple[dict[str, Tensor], set[str]]:
        spec = tied(tying, recipe=recipe, optim__lr=lr, optim__generator_lr=generator_lr, optim__weight_decay=0.5)
        model = shaken(spec)
        optimizer = make_optimizer(model, spec.optim)
        numbers = torch.Generator().manual_seed(0)
        for step in range(1, 4):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=numbers)
            set_rate(optimizer, spec.optim, spec.optim.lr / step, step)
            optimizer.step()
        own = generator_alone(model)
        return {n: p.detach() for n, p in model.named_parameters()}, {
            n for n, p in model.named_parameters() if id(p) in own
        }

    low, own = moved(1e-3, None)
    high, _ = moved(4e-3, None)
    mixed, _ = moved(1e-3, 4e-3)
    assert own and own < mixed.keys()
    for name, weights in mixed.items():
        assert torch.equal(weights, (high if name in own else low)[name]), name
        assert not torch.equal(high[name], low[name])


def test_the_rates_of_a_step_are_told_for_the_log() -> None:
    spec = tiny("rtd", optim__lr=1e-3, optim__generator_lr=5e-4, recipe="released")
    told = set_rate(make_optimizer(build(spec), spec.optim), spec.optim, 2e-4, 7)
    assert told == {"learning_rate": 2e-4, "generator_learning_rate": pytest.approx(1e-4)}
    assert set_rate(make_optimizer(Small(), spec.optim), spec.optim, 2e-4, 7) == {"learning_rate": 2e-4}
    same = tiny("rtd", optim__lr=1e-3).optim
    assert set_rate(make_optimizer(build(spec), same), same, 2e-4, 7) == {"learning_rate": 2e-4}


def test_rates_on_a_device_are_set_there() -> None:
    """Recorded steps on a GPU read the rate from a tensor, which must stay the same one."""
    optimizer, spec = make_optimizer(Small(), tiny("rtd").optim), tiny("rtd").optim
    on_device(optimizer, torch.device("cpu"))
    tensors = [group["lr"] for group in optimizer.param_groups]
    set_rate(optimizer, spec, 2e-4, 7)
    for group, tensor in zip(optimizer.param_groups, tensors, strict=True):
        assert group["lr"] is tensor and float(tensor) == pytest.approx(2e-4)
        assert group["capturable"]


def test_groups_begin_at_their_own_peak_rate() -> None:
    spec = tiny("rtd", optim__lr=1e-3, optim__generator_lr=5e-4)
    groups = make_optimizer(build(spec), spec.optim).param_groups
    assert {(group["generator"], round(group["lr"], 9)) for group in groups} == {(False, 1e-3), (True, 5e-4)}


def test_a_family_scales_rates_and_spares_weights_of_decay_by_their_names_and_shapes() -> None:
    spec = tiny("bert-mlm", optim__lr=1e-3)
    objective: Any = build(spec)

    def is_table(name: str, weight: Tensor) -> bool:
        return name.startswith("embeddings.") and weight.ndim == 2

    objective.encoder.family = replace(
        objective.encoder.family,
        rate=lambda name, weight: 0.5 if is_table(name, weight) else 1.0,
        decays=lambda name, weight: not is_table(name, weight),
    )
    encoder = objective.encoder.model
    tables = {id(weight) for weight in encoder.embeddings.parameters() if weight.ndim == 2}
    groups = make_optimizer(objective, spec.optim).param_groups
    assert len(tables) >= 2
    for group in groups:
        for weight in group["params"]:
            assert group["lr"] == pytest.approx(5e-4 if id(weight) in tables else 1e-3)
    decayed = {id(weight) for group in groups if group["decayed"] for weight in group["params"]}
    assert {id(weight) for weight in encoder.parameters()} - decayed == tables


# Learning rate


def planned(steps: int, **schedule: Any) -> tuple[Plan, RunSpec]:
    keys = {f"schedule.{key}": value for key, value in schedule.items()}
    spec = tiny("bert-mlm", {"budget.steps": steps} | keys)
    return plan(spec), spec


def factors(steps: int, **schedule: Any) -> list[float]:
    p, spec = planned(steps, **schedule)
    return [lr_factor(step, p.steps, p.warmup_steps, spec.schedule) for step in range(steps)]


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (100, 0.1), (7, 3), (50, 0), (1, 0)])
def test_released_rate_is_the_product_of_rise_and_fall(steps: int, warmup: float) -> None:
    """peak (1 - t / T) min(1, t / warm-up), from 0."""
    rise = warmup if warmup >= 1 or warmup == 0 else warmup * steps
    expected = [(1 - t / steps) * (min(1, t / rise) if rise else 1) for t in range(steps)]
    assert factors(steps, warmup=warmup, overlap=True) == pytest.approx(expected)


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (1000, 250), (20, 0), (12, 11)])
def test_paper_rate_rises_to_the_peak_and_falls_to_zero(steps: int, warmup: int) -> None:
    rates = factors(steps, warmup=warmup)
    assert max(rates) == 1.0 and rates.index(1.0) == warmup
    assert rates[0] > 0  # no step is wasted
    np.testing.assert_allclose(np.diff([0.0, *rates[: warmup + 1]]), 1 / (warmup + 1))
    np.testing.assert_allclose(np.diff([*rates[warmup:], 0.0]), -1 / (steps - warmup))


@pytest.mark.parametrize(
    ("steps", "warmup", "decay", "falling"), [(100, 10, 0.2, 20), (50, 0, 0.5, 25), (9, 3, 0.1, 1)]
)
def test_wsd_rate_stays_at_the_peak_until_its_last_share(steps: int, warmup: int, decay: float, falling: int) -> None:
    rates = factors(steps, warmup=warmup, kind="wsd", decay=decay)
    np.testing.assert_allclose(np.diff([0.0, *rates[: warmup + 1]]), 1 / (warmup + 1))
    assert rates[warmup : steps - falling] == [1.0] * (steps - falling - warmup)
    np.testing.assert_allclose(np.diff([*rates[steps - falling - 1 :], 0.0]), -1 / (falling + 1))


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_a_run_that_ends_within_its_schedule_has_the_beginning_of_the_rates(kind: str) -> None:
    """Eight of ten steps: where the next phase takes over, the rate has not fallen to zero."""
    schedule = planned(10, warmup=3, kind=kind)[1].schedule
    whole = [lr_factor(step, 10, 3, schedule) for step in range(8)]
    assert [lr_factor(step, 8, 3, schedule.model_copy(update={"until": 0.8})) for step in range(8)] == whole


def test_constant_rate_rises_and_stays_at_the_peak() -> None:
    rates = factors(40, warmup=4, kind="constant")
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8] + [1.0] * 36)


def test_wsd_falls_from_below_the_peak_where_its_last_share_begins_during_warm_up() -> None:
    """The last nine of ten steps fall along one line, which is followed from the end of warm-up on."""
    rates = factors(10, warmup=3, kind="wsd", decay=0.9)
    assert rates == pytest.approx([0.25, 0.5, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


def scheduled(make: Callable[..., Any], steps: int, **keys: Any) -> list[float]:
    """The rates that a scheduler of transformers gives `steps` updates at a peak of 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, rates = make(optimizer, **keys), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (40, 0), (12, 11)])
def test_cosine_is_that_of_transformers_after_warm_up(steps: int, warmup: int, floor: float) -> None:
    from transformers import get_cosine_schedule_with_warmup, get_cosine_with_min_lr_schedule_with_warmup

    rates = factors(steps, warmup=warmup, kind="cosine", floor=floor)
    keys = {"num_warmup_steps": warmup, "num_training_steps": steps}
    if floor:
        theirs = scheduled(get_cosine_with_min_lr_schedule_with_warmup, steps, min_lr_rate=floor, **keys)
    else:
        theirs = scheduled(get_cosine_schedule_with_warmup, steps, **keys)
    np.testing.assert_allclose(rates[warmup:], theirs[warmup:], rtol=1e-12)
    np.testing.assert_allclose(np.diff([0.0, *rates[: warmup + 1]]), 1 / (warmup + 1))  # theirs wastes the first step
    assert rates[-1] > floor


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (40, 1)])
def test_inverse_square_root_is_that_of_transformers_after_warm_up(steps: int, warmup: int) -> None:
    from transformers import get_inverse_sqrt_schedule

    rates = factors(steps, warmup=warmup, kind="inverse-sqrt")
    theirs = scheduled(get_inverse_sqrt_schedule, steps, num_warmup_steps=warmup)
    np.testing.assert_allclose(rates[warmup:], theirs[warmup:], rtol=1e-12)
    np.testing.assert_allclose(np.diff([0.0, *rates[: warmup + 1]]), 1 / (warmup + 1))
    assert factors(2 * steps, warmup=warmup, kind="inverse-sqrt")[:steps] == rates  # the length of the run is no part


def test_inverse_square_root_without_warm_up_falls_from_the_first_step() -> None:
    assert factors(5, warmup=0, kind="inverse-sqrt") == pytest.approx([1, 1, 2**-0.5, 3**-0.5, 0.5])


def test_a_floor_is_for_a_cosine_alone() -> None:
    for kind in ("linear", "wsd", "constant", "inverse-sqrt"):
        with pytest.raises(InputError, match=rf"^schedule\.kind={kind} cannot have schedule\.floor=0\.1, at which"):
            factors(10, kind=kind, floor=0.1)
    assert tiny("rtd", schedule__floor=0).name == tiny("rtd").name
    names = [tiny("rtd", schedule__kind="cosine", schedule__floor=floor).name for floor in (0, 0.1, 0.2)]
    assert len(set(names)) == 3


def test_rates_of_the_papers_run() -> None:
    """Small: 1,000,000 steps, 10,000 of them warm-up (table 6)."""
    p, spec = planned(1_000_000)
    assert p.warmup_steps == 10_000
    assert [lr_factor(t, p.steps, p.warmup_steps, spec.schedule) for t in (10_000, 505_000)] == pytest.approx(
        [1.0, 0.5]
    )
    p, spec = planned(1_000_000, overlap=True)
    found = [lr_factor(t, p.steps, p.warmup_steps, spec.schedule) for t in (0, 5_000, 10_000, 500_000, 999_999)]
    assert found == pytest.approx([0.0, 0.5 * 0.995, 0.99, 0.5, 1e-6])


def test_a_schedule_that_would_be_ignored_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^schedule\.kind=wsd cannot have schedule\.overlap=true.* set schedule\.overlap"
    ):
        tiny("rtd", {"schedule.kind": "wsd"}, recipe="released")


@pytest.mark.parametrize("schedule", [{}, {"overlap": True}, {"kind": "wsd"}, {"kind": "wsd", "decay": 1.0}])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 999])
def test_rates_stay_between_zero_and_the_peak(steps: int, schedule: dict[str, Any]) -> None:
    rates = factors(steps, **schedule)
    assert all(0 <= rate <= 1 for rate in rates)
    assert steps == 1 or any(rate > 0 for rate in rates)


def test_a_weight_that_the_model_itself_holds_too_is_not_the_generators_alone() -> None:
    class Sharing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = nn.Linear(2, 2)
            self.shared = self.generator.bias

    model = Sharing()
    assert generator_alone(model) == {id(model.generator.weight)}
