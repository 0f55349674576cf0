"""REINFORCE against exact gradients, which are summed over every token that could have been sampled."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from objective_oracle import (
    binary_logits,
    build,
    counted,
    counts_of,
    observe,
    real_places,
    shaken,
    slow_accuracy,
    slow_answers,
    slow_bce,
    slow_replaced,
    synthetic,
    tiny,
    word_logits,
)
from torch import Tensor

from workbench.errors import InputError
from workbench.objectives import adversarial
from workbench.objectives.adversarial import policy_loss


@pytest.mark.parametrize("tying", ["none", "embeddings", "gdes"])
def test_the_whole_objectives_estimate_is_exact_in_expectation(tying: str) -> None:
    """For one pick and a vocabulary of 40, every token is written in turn and scored by the discriminator."""
    spec = tiny("adversarial", {"tying": tying, "corruption.rate": 0.02, "encoder.dropout": 0.0})
    assert spec.picks == 1
    objective, batch = shaken(spec, size=0.2), synthetic(spec, rows=1)
    weights = list(objective.generator.parameters())
    found = [torch.zeros_like(w) for w in weights]
    expected_reward: Any = 0.0
    for word in range(spec.encoder.vocab):
        with mock.patch.object(adversarial, "sample_tokens", lambda logits, *_, word=word: torch.tensor([[word]])):
            seen: dict[str, Tensor] = {}

            def keep(losses: Tensor, *rest: Tensor, seen: dict[str, Tensor] = seen) -> Tensor:
                seen["losses"], seen["reward"] = losses, rest[0]
                return policy_loss(losses, *rest)

            with mock.patch.object(adversarial, "policy_loss", keep):
                parts = objective(batch).values()
        chance = (-seen["losses"]).exp()
        expected_reward = expected_reward + (chance * seen["reward"]).sum()
        grads = torch.autograd.grad(parts["reinforce_loss"], weights, retain_graph=True)
        found = [total + chance.item() * grad for total, grad in zip(found, grads, strict=True)]
    for mine, exact in zip(found, torch.autograd.grad(expected_reward, weights), strict=True):
        torch.testing.assert_close(-mine, exact, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("lengths", [None, (24, 7, 2, 15, 3, 23, 24, 24, 12, 24, 19, 4)], ids=["full", "padded"])
@pytest.mark.parametrize(("temperature", "pairs"), [(1.0, None), (0.5, None), (1.0, "next")])
def test_its_parts_agree_with_a_slow_loop(
    temperature: float, pairs: str | None, lengths: tuple[int, ...] | None
) -> None:
    spec = tiny("adversarial", {"generator.temperature": temperature, "data.pairs": pairs})
    objective, batch = shaken(spec), synthetic(spec, lengths=lengths)
    samples: list[Tensor] = []
    asked: list[float] = []
    real = adversarial.sample_tokens

    def spy(logits: Tensor, keys: Tensor, at: float = 1.0) -> Tensor:
        asked.append(at)
        samples.append(real(logits, keys, at))
        return samples[0]

    with mock.patch.object(adversarial, "sample_tokens", spy):
        seen = observe(objective, batch)
    assert asked == [temperature]
    words = word_logits(objective.generator.body, objective.generator.head, seen.inputs[0], batch)
    verdicts = binary_logits(objective.encoder, objective.head, seen.main_input, batch)
    baseline = objective.baseline
    rewards, losses, expected, mlm = [], [], [], []
    for row, place in counted(seen):
        slot = next(s for s, at in enumerate(seen.positions[row]) if at == place and seen.weights[row, s])
        word = int(samples[0][row, slot])
        log_softmax = words[row, place] - np.logaddexp.reduce(words[row, place])
        drawn_from = words[row, place] / temperature
        losses.append(np.logaddexp.reduce(drawn_from) - drawn_from[word])
        mlm.append(-log_softmax[int(batch.ids[row, place])])
        rewards.append(slow_bce(float(verdicts[row, place]), word != int(batch.ids[row, place])))
        state = seen.hidden[0][row, place].detach().numpy()
        guess = state @ baseline.out.weight.detach().numpy()[0] + baseline.out.bias.item()
        expected.append(math.log1p(math.exp(-guess)))
    parts = {name: part.item() for name, part in seen.loss.parts.items()}
    advantage = np.array(rewards) - np.array(expected)
    assert parts["reinforce_loss"] == pytest.approx(np.mean(np.array(losses) * advantage), rel=1e-3)
    assert parts["reward"] == pytest.approx(np.mean(rewards), rel=1e-4)
    assert parts["generator_loss"] == pytest.approx(np.mean(mlm), rel=1e-4)
    belief, said = np.exp(-np.array(rewards)), np.exp(-np.array(expected))
    cross_entropy = -(belief * np.log(said) + (1 - belief) * np.log(1 - said))
    assert parts["baseline_loss"] == pytest.approx(np.mean(cross_entropy), rel=1e-3)
    total = 50 * parts["discriminator_loss"] + parts["reinforce_loss"] + parts["baseline_loss"]
    assert seen.loss.total.item() == pytest.approx(total, rel=1e-5)
    changed = seen.main_input != batch.ids.numpy()
    counts = {
        "replaced_rate": slow_replaced(batch, seen),
        "generator_accuracy": slow_accuracy(words, batch, list(counted(seen))),
    }
    counts |= slow_answers("discriminator", verdicts, changed, list(real_places(batch)))
    assert counts_of(seen.loss.metrics, counts) == counts
    sample_nll, among = seen.loss.metrics["generator_entropy"]
    assert float(sample_nll / among) == pytest.approx(np.mean(losses), rel=1e-4)


def test_each_loss_trains_its_own_weights() -> None:
    """Discriminator's and baseline's losses do not train the generator; REINFORCE does not train the discriminator."""
    spec = tiny("adversarial", {"tying": "none"})
    objective = shaken(spec)
    parts = objective(synthetic(spec)).values()
    owners = {
        "reinforce_loss": set(objective.generator.parameters()),
        "baseline_loss": set(objective.baseline.parameters()),
        "discriminator_loss": {*objective.encoder.parameters(), *objective.head.parameters()},
    }
    for name, own in owners.items():
        objective.zero_grad()
        parts[name].backward(retain_graph=True)
        assert {p for p in objective.parameters() if p.grad is not None and bool(p.grad.any())} == own, name


def test_a_frozen_generator_is_refused() -> None:
    frozen = {"start.take": "generator", "start.freeze_generator": True, "generator.width": 1.0, "tying": "none"}
    with pytest.raises(InputError, match=r"which start\.freeze_generator forbids; set start\.freeze_generator=false$"):
        build(tiny("adversarial", frozen))
