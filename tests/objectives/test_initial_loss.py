"""The first losses of an untrained model of ELECTRA-Small's size: ln V for a token, ln 2 for a binary label."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from objective_oracle import build

from workbench import objectives
from workbench.rng import row_keys
from workbench.spec.presets import resolve
from workbench.tensors import Batch

WORDS, COIN = math.log(30522), math.log(2)


def first_loss(name: str, recipe: str, seed: int = 0) -> Any:
    spec = objectives.with_options(resolve("small", {"objective": name, "recipe": recipe, "seed": seed}))
    ids = np.random.default_rng(0).integers(1000, 30522, (4, 128))
    ids[:, 0], ids[:, -1] = spec.data.special.cls, spec.data.special.sep
    objective = build(spec).train()
    torch.manual_seed(0)
    with torch.no_grad():
        return objective(Batch(torch.tensor(ids), row_keys(0, torch.arange(4))))


@pytest.mark.parametrize(("name", "recipe", "seed"), [
    ("rtd", "paper", 0), ("rtd", "released", 0), ("rtd", "released", 2), ("electra-15", "released", 0),
])  # fmt: skip
def test_detection_starts_at_ln_v_and_50_ln_2(name: str, recipe: str, seed: int) -> None:
    """This holds for every seed; a head with the same bias everywhere would differ, since most tokens are originals."""
    loss = first_loss(name, recipe, seed)
    assert float(loss.total) == pytest.approx(44.98, rel=0.02)
    assert float(loss.parts["generator_loss"]) == pytest.approx(WORDS, rel=0.02)
    assert float(loss.parts["discriminator_loss"]) == pytest.approx(COIN, rel=0.02)


def test_words_start_at_ln_v() -> None:
    assert float(first_loss("bert-mlm", "paper").total) == pytest.approx(WORDS, rel=0.02)
    assert float(first_loss("replace-mlm", "paper").total) == pytest.approx(2 * WORDS, rel=0.02)


def test_the_copy_mixture_starts_half_way() -> None:
    """The untrained gate copies with probability 1/2: the loss is ln 2 on original, ln 2 + ln V on replaced tokens."""
    loss = first_loss("all-tokens-mlm", "paper")
    hits, among = loss.metrics["replaced_rate"]
    assert float(loss.parts["mlm_loss"]) == pytest.approx(COIN + float(hits / among) * WORDS, rel=0.02)
