"""The floors of each objective, against counts over corrupted text whose tokens have no order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from objective_oracle import build, synthetic, tiny
from torch import Tensor

from workbench import objectives
from workbench.models.corruption import Generator, mask_tokens
from workbench.models.encoder import build_encoder
from workbench.models.frequencies import Frequencies, frequencies
from workbench.models.ngram_generators import count_words
from workbench.rng import row_keys
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch

ROWS = 20_000


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


def area(scores: Tensor, labels: Tensor) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels.numpy(), scores.numpy()))


def floors_of(spec: RunSpec, words: Frequencies) -> dict[str, float]:
    return dict(objectives.load(spec).floors(words))


@pytest.mark.parametrize("name", ["rtd", "electra-15", "replace-mlm", "all-tokens-mlm"])
def test_floors_agree_with_counts_for_a_unigram_generator(name: str) -> None:
    spec = tiny(name, generator__kind="unigram")
    batch, counts = shuffled_text(spec)
    generator = Generator(build_encoder(spec), spec)
    count_words(generator, lambda: counts)
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
    belief = torch.zeros(spec.encoder.vocab).index_add_(0, seen, replaced.float()) / seen.bincount(
        minlength=spec.encoder.vocab
    ).clamp(min=1)
    assert found["discriminator_auc"] == pytest.approx(area(belief[seen], replaced), abs=0.01)


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
