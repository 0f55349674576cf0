"""Floors of token frequencies: the formulas against tables of all outcomes, and each objective against counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from objective_oracle import build, synthetic, tiny
from sklearn.metrics import roc_auc_score
from torch import Tensor

from workbench import objectives
from workbench.models.corruption import mask_tokens
from workbench.models.encoder import build_encoder
from workbench.models.generators import Generator, count_text
from workbench.rng import row_keys
from workbench.spec.loss_floors import Frequencies, detecting, entropy, frequencies, restoring
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch

ROWS = 20_000
WORDS = np.array([0.5, 0.25, 0.15, 0.1, 0.0])
UNIFORM = np.full(5, 0.2)


def joint(words: NDArray[np.float64], noise: NDArray[np.float64], kept: float) -> NDArray[np.float64]:
    """Return the table P(original, seen), computed outcome by outcome."""
    table = np.zeros((len(words), len(words)))
    for original, often in enumerate(words):
        table[original, original] += often * kept
        for seen, chance in enumerate(noise):
            table[original, seen] += often * (1 - kept) * chance
    return table


def conditional(table: NDArray[np.float64]) -> float:
    """Return H(row | column) of a table of joint probabilities, term by term."""
    total = 0.0
    for column in table.T:
        total -= sum(value * math.log(value / column.sum()) for value in column if value > 0)
    return total


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("noise", [WORDS, UNIFORM], ids=["as frequent as words", "uniform"])
def test_entropies_agree_with_tables_of_all_outcomes(kept: float, noise: NDArray[np.float64]) -> None:
    table = joint(WORDS, noise, kept)
    assert restoring(WORDS, noise, kept) == pytest.approx(conditional(table), abs=1e-12)
    original = np.diag(table)
    replaced = table.sum(0) - original
    loss, _ = detecting(WORDS, noise, kept, 0.0)
    assert loss == pytest.approx(conditional(np.stack([original, replaced])), abs=1e-12)


def test_the_roc_area_is_the_share_of_pairs_in_the_right_order() -> None:
    kept, special = 0.4, 0.2
    table = 0.8 * joint(WORDS, WORDS, kept)
    negative = [*np.diag(table), special]
    positive = [*(table.sum(0) - np.diag(table)), 0.0]
    belief = [p / (p + n) if p + n else 0.0 for p, n in zip(positive, negative, strict=True)]
    right = sum(
        p * n * ((one > other) + 0.5 * (one == other))
        for p, one in zip(positive, belief, strict=True)
        for n, other in zip(negative, belief, strict=True)
    )
    assert detecting(WORDS, WORDS, kept, special)[1] == pytest.approx(right / sum(positive) / sum(negative))


def nano(**changes: object) -> RunSpec:
    ids = {f"data.special.{name}": place for place, name in enumerate(("pad", "unk", "cls", "sep", "mask"))}
    return resolve("nano", {"encoder.vocab": 60} | ids | changes)


def known(spec: RunSpec, **rates: float) -> Frequencies:
    counts = np.array([0, 3, 0, 20, 0, *range(1, 56)])
    return frequencies(counts, spec, rates)


def test_specials_are_never_picked() -> None:
    words = known(nano())
    assert words.words[[0, 2, 3, 4]].sum() == 0 and words.words[1] > 0
    separators = 20 / (3 + 20 + 55 * 56 / 2)
    assert words.special == pytest.approx((2 + 30 * separators) / 32)


def test_masked_language_models() -> None:
    words = known(nano(**{"corruption.generator_mask": 1.0, "corruption.generator_random": 0.0}))
    alone = entropy(words.words)
    assert words.generator() == {"generator_loss": pytest.approx(alone)}  # the generator sees all picks as [MASK]
    assert words.masked(0.85, 0.0) == pytest.approx(0.85 * alone)  # 15 % are shown unchanged
    seen = conditional(joint(words.words, np.full(60, 1 / 60), 0.5))
    assert words.masked(0.8, 0.1) == pytest.approx(0.8 * alone + 0.2 * seen)


def test_a_generator_without_weights_has_no_floor() -> None:
    assert known(nano(**{"generator.kind": "unigram"})).generator() == {}


def test_the_observed_share_of_replaced_tokens_is_reproduced() -> None:
    """The formulas reproduce the share of replaced tokens from which they are computed."""
    words = known(nano(), mask_rate=0.3, replaced_rate=0.2)
    for where, rate in (("picks", 0.2 / 0.3), ("all", 0.2 / (1 - words.special))):
        kept = words._kept(where)  # type: ignore[arg-type]
        table = joint(words.words, words.words, kept)
        assert 1 - np.trace(table) == pytest.approx(rate)


def test_uniform_replacements_are_detected_by_their_frequency() -> None:
    rates = {"mask_rate": 0.3, "replaced_rate": 0.25}
    alike, other = (known(nano(**{"generator.kind": k}), **rates).detection("all") for k in ("unigram", "uniform"))
    assert other["discriminator_auc"] > alike["discriminator_auc"] + 0.05
    assert other["discriminator_loss"] < alike["discriminator_loss"]


# Text whose tokens have no order


def shuffled_text(spec: RunSpec) -> tuple[Batch, np.ndarray]:
    """Return rows of independent tokens, some ten times as frequent as others, and the counts of the tokens."""
    often = 1.0 / np.arange(1, spec.encoder.vocab - 4)
    draws = np.random.default_rng(0)
    ids = draws.choice(np.arange(5, spec.encoder.vocab), size=(ROWS, spec.data.length), p=often / often.sum())
    counts = np.bincount(ids[:, 1:-1].ravel(), minlength=spec.encoder.vocab)
    ids[:, 0], ids[:, -1] = spec.data.special.cls, spec.data.special.sep
    return Batch(torch.from_numpy(ids), row_keys(0, torch.arange(ROWS))), counts


def entropy_given(seen: Tensor, answers: Tensor) -> float:
    """Return the entropy of `answers` given `seen`, from the counts of their pairs."""
    pairs = np.zeros((int(seen.max()) + 1, int(answers.max()) + 1))
    np.add.at(pairs, (seen.numpy(), answers.long().numpy()), 1)
    pairs /= pairs.sum()
    given = pairs / np.maximum(pairs.sum(1, keepdims=True), 1e-300)
    return float(-(pairs * np.log(np.where(given > 0, given, 1))).sum())


def floors_of(spec: RunSpec, words: Frequencies) -> dict[str, float]:
    return dict(objectives.load(spec).floors(words))


@pytest.mark.parametrize("name", ["rtd", "electra-15", "replace-mlm", "all-tokens-mlm"])
def test_floors_agree_with_counts_for_a_unigram_generator(name: str) -> None:
    spec = tiny(name, generator__kind="unigram")
    batch, counts = shuffled_text(spec)
    generator = Generator(build_encoder(spec), spec)
    count_text(generator, lambda: counts, lambda: pytest.fail("no pairs are needed"))
    fake = generator(batch)
    rates = {metric: float(hits / among) for metric, (hits, among) in fake.metrics.items()}
    found = floors_of(spec, frequencies(counts, spec, rates))

    everywhere = name in ("rtd", "all-tokens-mlm")
    seen = fake.ids.flatten() if everywhere else fake.ids.gather(1, fake.positions).flatten()
    original = batch.ids.flatten() if everywhere else fake.targets.flatten()
    if "mlm_loss" in found:
        assert found == {"mlm_loss": pytest.approx(entropy_given(seen, original), rel=0.01)}
        return
    replaced = seen != original
    assert found["discriminator_loss"] == pytest.approx(entropy_given(seen, replaced), rel=0.01)
    shown = seen.bincount(minlength=spec.encoder.vocab).clamp(min=1)
    belief = torch.zeros(spec.encoder.vocab).index_add_(0, seen, replaced.float()) / shown
    assert found["discriminator_auc"] == pytest.approx(roc_auc_score(replaced, belief[seen]), abs=0.01)


@pytest.mark.parametrize("shares", [(0.8, 0.1), (0.85, 0.0), (1.0, 0.0)])
def test_floors_of_masked_language_models(shares: tuple[float, float]) -> None:
    mask, random = shares
    spec = tiny("bert-mlm", corruption__mask=mask, corruption__random=random, corruption__generator_mask=mask,
                corruption__generator_random=random)  # fmt: skip
    batch, counts = shuffled_text(spec)
    words = frequencies(counts, spec, {})
    masked = mask_tokens(batch, spec, mask, random)
    counted = entropy_given(masked.ids.gather(1, masked.positions).flatten(), masked.targets.flatten())
    assert floors_of(spec, words) == {"mlm_loss": pytest.approx(counted, rel=0.01)}
    assert words.generator() == {"generator_loss": pytest.approx(counted, rel=0.01)}


@pytest.mark.parametrize("name", objectives.names())
def test_floors_have_names_of_logged_metrics(name: str) -> None:
    """A floor for a name that is not logged would never be used."""
    spec = tiny(name)
    loss = build(spec)(synthetic(spec))
    words = frequencies(np.arange(spec.encoder.vocab), spec, {"mask_rate": 0.3, "replaced_rate": 0.25})
    found = floors_of(spec, words)
    assert found and found.keys() <= loss.parts.keys() | loss.metrics.keys()
    assert all(np.isfinite(value) and value > 0 for value in found.values())


def test_adversarial_detection_has_the_floors_of_rtd() -> None:
    """Its generator is not trained to predict tokens, and has no floor."""
    words = frequencies(np.arange(40), tiny("rtd"), {"mask_rate": 0.3, "replaced_rate": 0.25})
    rtd = floors_of(tiny("rtd"), words)
    assert floors_of(tiny("adversarial"), words) == {name: rtd[name] for name in rtd if "discriminator" in name}
