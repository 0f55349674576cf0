"""What holds for the three successors of RTD; the slow loop of each is in the file of its name."""

from __future__ import annotations

import pytest
import torch
from objective_oracle import PAD, build, shaken, synthetic, tiny

from workbench.errors import InputError
from workbench.training.loop import plainly

NAMES = ("multi-word-selection", "cocolm-clm", "mc-bert")
SELECTING = ("multi-word-selection", "mc-bert")
EACH = pytest.mark.parametrize("name", NAMES)


@EACH
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """Along a random direction of the weights after the generator, whose samples stay the same, in float64."""
    spec = tiny(name, {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0, "tying": "none"})
    objective = plainly(shaken(spec, size=0.1)).double()
    batch = synthetic(spec, rows=4, lengths=(24, 9, 15, 24))
    weights = {n: p for n, p in objective.named_parameters() if not n.startswith("generator.")}
    numbers = torch.Generator().manual_seed(0)
    ways = {n: torch.randn(p.shape, generator=numbers, dtype=torch.float64) for n, p in weights.items()}
    ways["encoder.model.embeddings.word_embeddings.weight"][PAD] = 0  # padding, as an input, has no gradient
    if name == "cocolm-clm":  # the LM loss stops at the gate, on which it depends, and so does what lies below
        weights = {n: p for n, p in weights.items() if n.startswith("head.")}
    objective(batch).total.backward()
    expected = sum(float((p.grad * ways[n]).sum()) for n, p in weights.items())

    def moved(step: float) -> float:
        with torch.no_grad():
            for n, p in weights.items():
                p.add_(ways[n], alpha=step)
            found = float(objective(batch).total)
            for n, p in weights.items():
                p.sub_(ways[n], alpha=step)
        return found

    assert (moved(1e-3) - moved(-1e-3)) / 2e-3 == pytest.approx(expected, rel=5e-3)


@EACH
@pytest.mark.parametrize("tying", ["none", "embeddings", "gdes"])
def test_the_fast_way_agrees_with_the_plain_one(name: str, tying: str) -> None:
    spec = tiny(name, {"tying": tying})
    batch = synthetic(spec, lengths=(24, 9, 17, 5) * 3)
    fast, plain = shaken(spec, size=0.15), plainly(shaken(spec, size=0.15))
    one, other = fast(batch), plain(batch)
    torch.testing.assert_close(one.values(), other.values(), rtol=1e-5, atol=1e-6)
    one.total.backward()
    other.total.backward()
    whole = torch.stack([p.grad.norm() for p in plain.parameters()]).norm()
    for (key, mine), theirs in zip(fast.named_parameters(), plain.parameters(), strict=True):
        assert (mine.grad - theirs.grad).norm() <= 1e-4 * theirs.grad.norm() + 1e-6 * whole, key


@EACH
def test_no_gradient_passes_from_the_main_loss_to_the_generator(name: str) -> None:
    objective = shaken(tiny(name, {"tying": "none"}))
    loss = objective(synthetic(objective.spec))
    (loss.total - loss.parts["generator_loss"]).backward()
    assert all(p.grad is None or not p.grad.any() for p in objective.generator.parameters())


@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize("kind", ["ngram", "unigram", "uniform"])
def test_a_generator_without_weights_is_refused(name: str, kind: str) -> None:
    with pytest.raises(InputError, match=rf"{name} needs a generator with weights, and generator\.kind={kind} has no "):
        build(tiny(name, {"generator.kind": kind}))


# ---- candidates ----
