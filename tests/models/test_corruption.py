"""Picks, masks, samples and the tokens written: exact invariants by hypothesis, frequencies by chi-square tests.

The numbers are those of the paper (section 3.1) and of the released code (picks with replacement, 85 % masked).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_oracle import CLS, MASK, PAD, SEP, ragged, shaken, synthetic, tiny
from scipy import stats

from workbench.cpu import functions
from workbench.models.corruption import (
    _sums_by_comparison,
    _sums_by_scatter,
    mask_tokens,
    pick_positions,
    replace_tokens,
    sample_tokens,
    write_tokens,
)
from workbench.rng import row_keys, uniform
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, real_tokens

SIGNIFICANT = 1e-4  # draws depend on keys only, so that a test that passes once always passes
ROWS = 4000


def long_rows(recipe: str, rows: int = ROWS, **keys: Any) -> tuple[RunSpec, Batch]:
    """Return rows of 128 tokens without padding, a vocabulary of 5,000, at the paper's mask rate of 15 %."""
    sizes = {"data.length": 128, "encoder.positions": 128, "encoder.vocab": 5000, "corruption.rate": 0.15}
    spec = tiny("bert-mlm", sizes | {k.replace("__", "."): v for k, v in keys.items()}, recipe=recipe)
    return spec, synthetic(spec, rows)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[RunSpec, Batch]:
    """Draw rows of any length with special tokens anywhere, either way of picking and any mask rate."""
    batch = draw(ragged(8, 20, 9))
    picks = draw(st.sampled_from(["distinct", "released"]))
    rate = draw(st.sampled_from([0.01, 0.15, 0.25, 0.5, 0.99]))
    length = batch.ids.shape[1]
    return tiny("bert-mlm", {"data.length": length, "corruption.picks": picks, "corruption.rate": rate}), batch


@settings(max_examples=80, deadline=None)
@given(drawn())
def test_picks_have_the_right_number_and_are_never_special(case: tuple[RunSpec, Batch]) -> None:
    spec, batch = case
    positions, weights = pick_positions(batch, spec)
    assert positions.shape == weights.shape == (len(batch.ids), spec.picks)
    assert set(weights.unique().tolist()) <= {0.0, 1.0}
    assert not len(positions) or 0 <= int(positions.min()) <= int(positions.max()) < spec.data.length
    assert batch.attention is not None
    rate, length = spec.corruption.rate, spec.data.length
    for row, ids in enumerate(batch.ids.tolist()):
        real = int(batch.attention[row].sum())
        usable = [i for i in range(real) if ids[i] not in (PAD, CLS, SEP, MASK)]
        chosen = positions[row][weights[row] > 0].tolist()
        assert set(chosen) <= set(usable)
        if spec.corruption.picks == "distinct":
            assert len(chosen) == min(len(usable), max(1, math.ceil(rate * real - 1e-9)))
            assert len(set(chosen)) == len(chosen)
        else:
            most = max(1, math.floor((rate + 0.005) * length))
            assert len(chosen) == (min(most, max(1, round(rate * real))) if usable else 0)


@settings(max_examples=100, deadline=None)
@given(drawn(), st.sampled_from([(0.8, 0.1), (0.85, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]))
def test_only_picks_are_changed(case: tuple[RunSpec, Batch], shares: tuple[float, float]) -> None:
    spec, batch = case
    masked = mask_tokens(batch, spec, *shares)
    before, after = batch.ids.tolist(), masked.ids.tolist()
    assert torch.equal(masked.targets, batch.ids.gather(1, masked.positions))
    for row in range(len(before)):
        picked = set(masked.positions[row][masked.weights[row] > 0].tolist())
        for place, (old, new) in enumerate(zip(before[row], after[row], strict=True)):
            if place not in picked:
                assert new == old
            elif shares == (1.0, 0.0):
                assert new == MASK
            elif shares[1] == 0.0:
                assert new in (old, MASK)
            assert 0 <= new < spec.encoder.vocab
    hits, among = masked.metrics["mask_rate"]
    assert batch.attention is not None and among == batch.attention.sum()
    counted = [set(p[w > 0].tolist()) for p, w in zip(masked.positions, masked.weights, strict=True)]
    assert hits == sum(map(len, counted))


@settings(max_examples=100, deadline=None)
@given(drawn(), st.data())
def test_a_row_is_corrupted_independently_of_its_batch(case: tuple[RunSpec, Batch], data: st.DataObject) -> None:
    spec, batch = case
    row = data.draw(st.integers(0, len(batch.ids) - 1))
    assert batch.attention is not None
    alone = Batch(batch.ids[row : row + 1], batch.keys[row : row + 1], batch.attention[row : row + 1])
    one, all_ = mask_tokens(alone, spec, 0.8, 0.1), mask_tokens(batch, spec, 0.8, 0.1)
    for part in ("ids", "positions", "weights", "targets"):
        assert torch.equal(getattr(one, part)[0], getattr(all_, part)[row])


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_every_position_that_may_be_picked_is_equally_likely(recipe: str) -> None:
    spec, batch = long_rows(recipe)
    positions, weights = pick_positions(batch, spec)
    assert bool((weights == 1).all())
    counts = torch.bincount(positions.flatten(), minlength=128).numpy()
    assert counts[0] == counts[127] == 0  # [CLS] and [SEP]
    assert counts[3] > 0  # [UNK] may be picked
    assert stats.chisquare(counts[1:127]).pvalue > SIGNIFICANT


@pytest.mark.parametrize(
    ("length", "rate", "released", "distinct"),
    [(128, 0.15, 19, 20), (512, 0.15, 77, 77), (512, 0.25, 128, 128), (64, 0.15, 9, 10), (8, 0.01, 1, 1)],
)
def test_picks_in_a_full_row(length: int, rate: float, released: int, distinct: int) -> None:
    """A row of 128 has 19 released picks, and 20 by the paper's ceiling; a row of 64 has at most floor(0.155 * 64)."""
    for picks, expected in (("released", released), ("distinct", distinct)):
        spec = resolve("small", {"data.length": length, "corruption.rate": rate, "corruption.picks": picks})
        assert spec.picks == expected


def test_released_picks_repeat_themselves() -> None:
    """19 draws with replacement pick 17.7 of 126 positions, 13.8 % of a row; 7 % of these are picked more than once."""
    spec, batch = long_rows("released")
    positions, _ = pick_positions(batch, spec)
    distinct = np.array([len(set(row)) for row in positions.tolist()])
    expected = 126 * (1 - (1 - 1 / 126) ** 19)
    assert abs(distinct.mean() - expected) < 4 * distinct.std() / math.sqrt(len(distinct))
    assert round(expected, 1) == 17.7
    hits, among = mask_tokens(batch, spec, 0.85).metrics["mask_rate"]
    assert float(hits / among) == pytest.approx(0.138, abs=0.001)
    again = sum((np.bincount(row) > 1).sum() for row in positions.numpy())
    assert again / distinct.sum() == pytest.approx(0.070, abs=0.003)


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_the_input_of_the_generator(recipe: str) -> None:
    """The paper masks every pick; the released code leaves a pick unchanged with a probability of 15 %."""
    spec, batch = long_rows(recipe)
    masked = mask_tokens(batch, spec, spec.corruption.generator_mask)
    shown = masked.ids.gather(1, masked.positions)
    if recipe == "paper":
        assert bool((shown == MASK).all())
        return
    once = torch.zeros_like(batch.ids).scatter_add(1, masked.positions, torch.ones_like(masked.positions)) == 1
    hidden = int((masked.ids == MASK)[once].sum())
    assert stats.binomtest(hidden, int(once.sum()), 0.85).pvalue > SIGNIFICANT
    twice = torch.zeros_like(batch.ids).scatter_add(1, masked.positions, torch.ones_like(masked.positions)) == 2
    hidden = int((masked.ids == MASK)[twice].sum())
    assert stats.binomtest(hidden, int(twice.sum()), 1 - 0.15**2).pvalue > SIGNIFICANT


@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (0.85, 0.0), (1.0, 0.0), (0.0, 0.5)])
def test_bert_shares(mask: float, random: float) -> None:
    """A random token is [MASK] or the original itself with a probability of 1 / V each."""
    spec, batch = long_rows("paper")
    masked = mask_tokens(batch, spec, mask, random)
    shown, vocab = masked.ids.gather(1, masked.positions), spec.encoder.vocab
    kinds = [shown == MASK, shown == masked.targets, (shown != MASK) & (shown != masked.targets)]
    observed = np.array([int(kind.sum()) for kind in kinds])
    keep = 1 - mask - random
    expected = np.array([mask + random / vocab, keep + random / vocab, random * (1 - 2 / vocab)]) * observed.sum()
    possible = expected > 1e-6
    assert observed[~possible].sum() == 0
    if possible.sum() > 1:
        assert stats.chisquare(observed[possible], expected[possible]).pvalue > SIGNIFICANT


def test_names_of_random_streams_stay_the_same() -> None:
    """A run resumed by another version must get the same inputs; the names of its random streams must stay the same."""
    spec, batch = long_rows("paper", rows=3)
    positions, _ = pick_positions(batch, spec)
    coin, words = (uniform(batch.keys, name, spec.picks) for name in ("mask", "words"))
    words = (words * spec.encoder.vocab).long()
    border = float(coin[0, 0])  # a draw that equals the border belongs to the next case
    masked = mask_tokens(batch, spec, border, 0.5)
    shown = masked.ids.gather(1, positions)
    expected = torch.where(coin < border, MASK, torch.where(coin < border + 0.5, words, masked.targets))
    assert torch.equal(shown, expected) and float(masked.loss) == 0.0
    shown = mask_tokens(batch, spec, border).ids.gather(1, positions)
    assert torch.equal(shown, torch.where(coin < border, MASK, masked.targets))


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_the_name_of_the_stream_of_picks_stays_the_same(recipe: str) -> None:
    spec, batch = long_rows(recipe, rows=3)
    usable = ~torch.isin(batch.ids, torch.tensor([PAD, CLS, SEP, MASK]))
    found, _ = pick_positions(batch, spec)
    if recipe == "paper":
        noise = uniform(batch.keys, "picks", batch.ids.shape[1])
        expected = torch.where(usable, noise, -1.0).topk(spec.picks).indices
    else:
        share = uniform(batch.keys, "picks", spec.picks)
        places = [row.nonzero().flatten() for row in usable]
        expected = torch.stack([place[(u * len(place)).long()] for place, u in zip(places, share, strict=True)])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_padding_is_never_picked_whatever_its_ids(recipe: str) -> None:
    spec = tiny("rtd", recipe=recipe, corruption__rate=0.1)
    batch = synthetic(spec, lengths=[8] * 12)
    words = torch.where(torch.arange(spec.data.length) < 8, batch.ids, 9)  # ordinary tokens in place of padding
    assert batch.attention is not None
    positions, weights = pick_positions(Batch(words, batch.keys, batch.attention), spec)
    assert weights.sum(1).tolist() == [1.0] * 12  # a tenth of eight tokens is one pick, not two
    assert int(positions[weights > 0].max()) < 7
    assert real_tokens(batch).dtype == real_tokens(Batch(words, batch.keys)).dtype == torch.bool


@pytest.mark.parametrize("recipe", ["paper", "released"])
def test_the_last_position_of_a_row_can_be_picked(recipe: str) -> None:
    spec = tiny("rtd", recipe=recipe)
    batch = synthetic(spec, rows=100)
    batch.ids[:, -1] = 9
    positions, _ = pick_positions(batch, spec)
    assert int(positions.max()) == spec.data.length - 1


def test_a_frozen_generator_has_nothing_to_train() -> None:
    start = {"start.take": "generator", "generator.width": 1.0, "tying": "none", "start.parent.objective": "bert-mlm"}
    frozen, free = (shaken(tiny("rtd", start | {"start.freeze_generator": each})) for each in (True, False))
    assert not any(weight.requires_grad for weight in frozen.generator.parameters())
    assert all(weight.requires_grad for weight in free.generator.parameters())


def test_random_words_come_from_the_whole_vocabulary() -> None:
    spec, batch = long_rows("paper", encoder__vocab=50)
    masked = mask_tokens(batch, spec, 0.0, 1.0)
    words = masked.ids.gather(1, masked.positions).flatten()
    assert stats.chisquare(torch.bincount(words, minlength=50).numpy()).pvalue > SIGNIFICANT


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_duplicates_are_averaged(data: st.DataObject) -> None:
    length, slots = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))
    rows = st.lists(st.integers(0, 30521), min_size=length, max_size=length)
    places = st.lists(st.integers(0, length - 1), min_size=slots, max_size=slots)
    words = st.lists(st.integers(0, 30521), min_size=slots, max_size=slots)
    actives = st.lists(st.booleans(), min_size=slots, max_size=slots)
    batch = data.draw(st.lists(st.tuples(rows, places, words, actives), min_size=1, max_size=3))
    ids, positions, tokens, active = (torch.tensor(column) for column in zip(*batch, strict=True))
    given = positions, tokens, active, length
    for one, other in zip(_sums_by_scatter(*given), _sums_by_comparison(*given), strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype
    written = write_tokens(ids, positions, tokens, active).tolist()
    for row, (old, where, what, on) in enumerate(batch):
        for place in range(length):
            here = [word for word, at, is_on in zip(what, where, on, strict=True) if is_on and at == place]
            assert written[row][place] == (sum(here) // len(here) if here else old[place])


@pytest.mark.gpu
def test_a_gpu_writes_the_same_tokens() -> None:
    draw = torch.Generator().manual_seed(0)
    ids, positions, tokens = (torch.randint(high, size, generator=draw) for high, size in
                              ((30522, (64, 128)), (128, (64, 40)), (30522, (64, 40))))  # fmt: skip
    given = ids, positions, tokens, tokens % 3 > 0
    assert torch.equal(write_tokens(*(each.cuda() for each in given)).cpu(), write_tokens(*given))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_follow_the_softmax(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.5, -torch.inf, 0.3, -3.0, 1.7]).repeat(3000, 10, 1)
    keys = row_keys(3, torch.arange(3000))
    samples = sample_tokens(logits, keys, temperature).flatten()
    draws, ones = uniform(keys, "sample", 10).flatten(), torch.ones(30000)
    found = functions.guess(  # samples and loss in one pass
        torch.zeros(30000, 1), torch.zeros(8, 1), logits[0, 0], ones.long(), ones, draws=draws, temperature=temperature
    )
    assert (found.samples != samples).sum() <= 3  # these differ by rounding
    expected = (logits[0, 0].double() / temperature).softmax(-1).numpy()
    observed = torch.bincount(samples, minlength=8).numpy()
    assert observed[4] == 0
    keep = expected > 0
    assert stats.chisquare(observed[keep], expected[keep] * observed.sum()).pvalue > SIGNIFICANT
    np.testing.assert_allclose(found.sample_nll, -np.log(expected[found.samples]), rtol=1e-5)


def test_samples_follow_the_softmax_of_a_real_vocabulary() -> None:
    """Cumulative sums over 30,522 tokens in fp32 are exact enough. Tokens are compared in 32 groups."""
    numbers = torch.Generator().manual_seed(0)
    logits = (torch.randn(30522, generator=numbers) * 2).expand(20, 200, -1)
    samples = torch.cat([sample_tokens(logits[i : i + 1], row_keys(4, torch.tensor([i]))) for i in range(20)])
    expected = logits[0, 0].double().softmax(-1).numpy()
    groups = np.arange(30522) * 32 // 30522
    observed = np.bincount(groups[samples.flatten().numpy()], minlength=32)
    wanted = np.bincount(groups, weights=expected, minlength=32) * observed.sum()
    assert stats.chisquare(observed, wanted / wanted.sum() * observed.sum()).pvalue > SIGNIFICANT


def test_picks_are_sampled_independently() -> None:
    logits = torch.zeros(4000, 2, 5)
    samples = sample_tokens(logits, row_keys(5, torch.arange(4000)))
    pairs = np.histogram2d(*samples.T.numpy(), bins=5)[0]
    assert stats.chisquare(pairs.ravel()).pvalue > SIGNIFICANT


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_of_probability_1_is_always_sampled_and_no_gradient_passes(dtype: torch.dtype) -> None:
    words = torch.randint(0, 300, (50, 7), generator=torch.Generator().manual_seed(0))
    logits = torch.nn.functional.one_hot(words, 300).to(dtype) * 1e4
    samples = sample_tokens(logits.requires_grad_(), row_keys(6, torch.arange(50)))
    assert torch.equal(samples, words)
    assert samples.dtype == torch.int64 and not samples.requires_grad


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_realised_rates_are_reported(temperature: float) -> None:
    """A token counts as replaced if it differs from the original; both rates are shares of tokens without padding."""
    spec = tiny("rtd", {"generator.temperature": temperature})
    batch, objective = synthetic(spec, rows=12, lengths=[24, 12] * 6), shaken(spec)
    fake = objective.generator(batch)
    assert batch.attention is not None
    real = int(batch.attention.sum())
    assert [float(x) for x in fake.metrics["mask_rate"]] == [float(fake.weights.sum()), real]
    assert [float(x) for x in fake.metrics["replaced_rate"]] == [float((fake.ids != batch.ids).sum()), real]
    assert 0 < fake.metrics["replaced_rate"][0] < fake.metrics["mask_rate"][0]
    logits = objective.generator.head(objective.generator.body(mask_tokens(batch, spec, 1.0).ids, batch.attention))
    best = logits.argmax(-1).gather(1, fake.positions)
    right = ((best == fake.targets) & (fake.weights > 0)).sum()
    assert [float(x) for x in fake.metrics["generator_accuracy"]] == [float(right), float(fake.weights.sum())]
    there = logits.gather(1, fake.positions[..., None].expand(-1, -1, logits.shape[-1]))
    drawn = sample_tokens(there, batch.keys, temperature)
    assert torch.equal(replace_tokens(batch, fake, drawn), fake.ids)  # both use the same sampler
    sample_nll = -(there / temperature).log_softmax(-1).gather(2, drawn[..., None])[..., 0]
    assert [float(x.detach()) for x in fake.metrics["generator_entropy"]] == [
        pytest.approx(float((sample_nll * fake.weights).sum().detach()), rel=1e-5),
        float(fake.weights.sum()),
    ]
