"""Generators without weights: n-grams against counts in dictionaries and a loop over positions, unigram and uniform."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from objective_oracle import CLS, MASK, PAD, SEP, WITH_GENERATOR, build, shaken, synthetic, tiny
from safetensors.torch import load_file, save_file
from scipy.stats import chisquare
from torch.utils.flop_counter import FlopCounterMode

from workbench import objectives
from workbench.errors import InputError
from workbench.execution import plug_checks
from workbench.models.corruption import mask_for_generator, mask_tokens
from workbench.models.export import WEIGHTS, export_heads
from workbench.models.generators import Ngrams, WordFrequencies, count_text
from workbench.rng import row_keys, uniform
from workbench.tasks.common.sentence_scorers import fill
from workbench.tensors import Batch, Corruption
from workbench.training.loop import plainly
from workbench.training.plan import plan

VOCAB = 40
NEVER = [PAD, CLS, SEP, MASK]
TEXT = np.random.default_rng(1).zipf(1.3, 3000) % (VOCAB - 5) + 5
TEXT[::50] = SEP
UNSEEN = 12  # neither a context nor a token of the text
ONCE = 38  # a context that was counted once on either side
TEXT[(TEXT == UNSEEN) | (TEXT == ONCE)] = 13
TEXT[11] = ONCE
COUNTS = np.bincount(TEXT, minlength=VOCAB)
KINDS = pytest.mark.parametrize("kind", ["unigram", "uniform"])


def pairs() -> tuple[Any, Any]:
    found = np.unique(TEXT[:-1] * VOCAB + TEXT[1:], return_counts=True)
    return found[0].astype(np.int64), found[1].astype(np.int64)


def counted(kind: str, objective: str = "rtd", keys: dict[str, Any] | None = None) -> Any:
    """An objective whose generator of this kind has counted the text."""
    model = shaken(tiny(objective, {"generator.kind": kind, **(keys or {})}))
    count_text(model, lambda: COUNTS, pairs)
    return model


# All kinds


@pytest.mark.parametrize("kind", ["unigram", "uniform", "ngram"])
@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_they_work_with_every_objective_at_no_cost(name: str, kind: str) -> None:
    """The generator is not trained or saved, and the cost is that of the main model."""
    model = counted(kind, name, {"encoder.attention": "eager"})
    spec, batch, usual = model.spec, synthetic(model.spec), shaken(tiny(name))(synthetic(model.spec))
    with FlopCounterMode(display=False) as counter:
        loss = plainly(model)(batch)  # otherwise the forward pass contains part of the backward pass
    assert counter.get_total_flops() == len(batch.ids) * objectives.load(spec).cost(spec).matmul
    assert plan(spec).parameters["generator"] == 0 == len(list(model.generator.parameters()))
    assert not model.generator.state_dict()
    assert (loss.metrics.keys(), loss.parts.keys()) == (usual.metrics.keys(), usual.parts.keys())
    loss.total.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_kind_is_part_of_the_name_and_the_width_then_is_not() -> None:
    spec = tiny("rtd")
    assert "kind" not in spec.identity()["generator"]
    cheap = spec.changed({"generator.kind": "unigram"})
    assert cheap.name != spec.name
    assert cheap.name == cheap.changed({"generator.width": 1.0}).name
    assert cheap.name != cheap.changed({"generator.kind": "uniform"}).name


def test_settings_that_need_weights_are_refused() -> None:
    with pytest.raises(InputError, match="which has no weights"):
        tiny("rtd", {"generator.kind": "unigram", "tying": "all"})
    with pytest.raises(InputError, match=r"generator.temperature=2 cannot be combined with generator.kind=ngram"):
        tiny("rtd", {"generator.kind": "ngram", "generator.temperature": 2.0})


def test_a_run_with_such_a_generator_resumes_with_the_same_bits() -> None:
    """As the runs of all objectives do, each of which `workbench check` tries."""
    plug_checks._trained(plug_checks._spec({"objective": "rtd", "generator.kind": "ngram"}))


def test_text_is_counted_before_it_is_used() -> None:
    for kind in ("unigram", "ngram"):
        spec = tiny("rtd", {"generator.kind": kind})
        with pytest.raises(AssertionError, match=r"^an? .*gram generator is used before `count` was called$"):
            build(spec)(synthetic(spec))
    uncounted = [lambda: pytest.fail("a transformer needs no counts")] * 2
    count_text(build(tiny("rtd")), *uncounted)
    assert isinstance(build(spec).generator.words, Ngrams)


# One distribution for all positions


@KINDS
def test_a_generator_of_token_frequencies_samples_and_scores_by_them(kind: str) -> None:
    model = counted(kind)
    batch, generator = synthetic(model.spec, rows=4, lengths=[24, 12, 2, 9]), model.generator
    share = generator.words.log_share
    batch.ids[0, 4:14] = int(share.argmax())
    masked = mask_tokens(batch, model.spec, 1.0)
    guess = generator.guess(batch, masked)
    assert torch.equal(guess.samples, generator.words.sample(uniform(batch.keys, "sample", model.spec.picks)))
    assert float(guess.loss) == pytest.approx(float(-share[masked.targets[masked.weights > 0]].mean()), rel=1e-5)
    assert torch.equal(guess.right, share[masked.targets] == share.max()) and (
        kind == "uniform" or not guess.right.all()
    )
    assert generator.scorers() == {}

    found = generator.score(batch.ids, batch.attention)
    for row, ids in enumerate(batch.ids.tolist()):
        words = [share[word] for word in ids if word not in NEVER]
        assert float(found[row]) == pytest.approx(float(sum(words)), rel=1e-5)
    batch.ids[1, 20] = 9  # a token in the padding
    assert torch.equal(generator.score(batch.ids, batch.attention), found)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@KINDS
def test_samples_follow_the_token_frequencies(kind: str, temperature: float) -> None:
    """A chi-square test of 60,000 samples against the distribution; tokens of probability 0 are never sampled."""
    share = np.full(VOCAB, 1 / VOCAB)
    if kind == "unigram":
        share = (COUNTS + 1.0) ** (1 / temperature)
        share[NEVER] = 0
        share /= share.sum()
    words = counted(kind, keys={"generator.temperature": temperature}).generator.words
    slots = torch.ones(6000, 10)
    picked = Corruption(slots.long(), slots.long(), slots, 7 * slots.long(), torch.zeros(()))
    guess = words.guess(row_keys(3, torch.arange(6000)), picked)
    drawn = np.bincount(guess.samples.flatten().numpy(), minlength=VOCAB)
    possible = share > 0
    assert not drawn[~possible].any()
    assert chisquare(drawn[possible], share[possible] * drawn.sum()).pvalue > 1e-3
    assert guess.loss.item() == pytest.approx(-math.log(share[7]), rel=1e-5)
    np.testing.assert_allclose(guess.sample_nll.numpy(), -np.log(share[guess.samples.numpy()]), rtol=1e-5)


@given(st.lists(st.integers(0, 10**9), min_size=VOCAB, max_size=VOCAB))
def test_probabilities_are_those_of_counts_raised_by_one(counts: list[int]) -> None:
    words = WordFrequencies(tiny("rtd", {"generator.kind": "unigram"}))
    words.count(torch.tensor(counts))
    raised = np.array([0 if token in NEVER else count + 1 for token, count in enumerate(counts)], dtype=float)
    np.testing.assert_allclose(words.log_share.exp().numpy(), raised / raised.sum(), rtol=1e-4, atol=1e-7)
    ends = words.sample(torch.tensor([0.0, 1 - 2**-24]))
    assert all(raised[token] > 0 for token in ends.tolist())  # also where a draw falls on an edge


# Pairs of neighbours


def test_tables_move_to_a_device_with_their_model() -> None:
    words = counted("ngram").to("meta").generator.words
    parts = [words, words.unigram, words.left, words.right]
    tables = [table for part in parts for table in vars(part).values() if isinstance(table, torch.Tensor)]
    assert not tables and all(table.is_meta for table in words.buffers())
    assert [len(list(part.buffers(recurse=False))) for part in parts] == [2, 2, 4, 4]


def slow_side(left: bool) -> dict[int, Counter[int]]:
    """How often each token stands to the right of a context (`left`), or to the left of it."""
    seen: dict[int, Counter[int]] = {}
    for before, after in zip(TEXT[:-1].tolist(), TEXT[1:].tolist(), strict=True):
        context, token = (before, after) if left else (after, before)
        if token not in NEVER:
            seen.setdefault(context, Counter())[token] += 1
    return seen


SIDES = {left: slow_side(left) for left in (True, False)}
UNIGRAM = [0.0 if token in NEVER else float(COUNTS[token] + 1) for token in range(VOCAB)]
UNIGRAM = [count / sum(UNIGRAM) for count in UNIGRAM]


def slow_share(context: int, left: bool) -> list[float]:
    """p(token | context) for all tokens."""
    counts = SIDES[left].get(context, Counter())
    below = counts.total() + len(counts)
    if not below:
        return UNIGRAM
    return [(counts[token] + len(counts) * UNIGRAM[token]) / below for token in range(VOCAB)]


def slow_mixture(left: int, right: int) -> list[float]:
    sides = [slow_share(word, side) for word, side in ((left, True), (right, False)) if word in SIDES[side]]
    return [sum(share) / len(sides) for share in zip(*sides, strict=True)] if sides else UNIGRAM


def slow_sample(context: int, left: bool, draw: float, back: float) -> int:
    """The token at a draw: of the unigram if `back` says so, or else of the tokens counted beside the context."""
    counts = sorted(SIDES[left].get(context, Counter()).items())
    total = sum(count for _, count in counts)
    if not total or back < len(counts) / (total + len(counts)):
        return int(np.searchsorted(np.cumsum(UNIGRAM), draw, side="right"))
    below = np.cumsum([count for _, count in counts])
    return counts[int(np.searchsorted(below, int(draw * total), side="right"))][0]


def at(model: Any, left: int, right: int, rows: int, target: int = 7) -> Any:
    """The guess at one pick of each of `rows` rows, between the same two neighbours."""
    ids = torch.tensor([[left, MASK, right]]).repeat(rows, 1)
    ones = torch.ones(rows, 1)
    picked = Corruption(ids, ones.long(), ones, torch.full((rows, 1), target), torch.zeros(()))
    return model.generator.words.guess(row_keys(3, torch.arange(rows)), picked)


@pytest.mark.parametrize("lengths", [None, (24, 9, 3, 17, 24, 2)])
def test_samples_losses_and_accuracy_are_those_of_the_chosen_neighbour(lengths: tuple[int, ...] | None) -> None:
    model = counted("ngram")
    batch = synthetic(model.spec, rows=6, lengths=lengths)
    batch.ids[:, 4:7] = torch.tensor([6, 9, 6])
    masked = mask_for_generator(batch, model.spec)
    guess = model.generator.words.guess(batch.keys, masked)
    slots = masked.positions.shape[1]
    draws, side, back = (uniform(batch.keys, name, slots) for name in ("sample", "side", "back"))
    losses = []
    for row, slot in (masked.weights > 0).nonzero().tolist():
        place, target = int(masked.positions[row, slot]), int(masked.targets[row, slot])
        left, right = int(masked.ids[row, place - 1]), int(masked.ids[row, min(place + 1, 23)])
        known = left in SIDES[True], right in SIDES[False]
        from_left = known[0] > known[1] or (known[0] == known[1] and float(side[row, slot]) < 0.5)
        share = slow_share(left, True) if from_left else slow_share(right, False)
        losses.append(-math.log(share[target]))
        draw = float(draws[row, slot]), float(back[row, slot])
        assert int(guess.samples[row, slot]) == slow_sample(left if from_left else right, from_left, *draw)
        assert bool(guess.right[row, slot]) == (share[target] >= max(share) - 1e-12)
        assert float(guess.sample_nll[row, slot]) == pytest.approx(-math.log(share[int(guess.samples[row, slot])]))
    assert float(guess.loss) == pytest.approx(np.mean(losses), rel=1e-5)
    assert guess.right.any() and not guess.right.all()


def test_scores_use_both_neighbours_of_every_token() -> None:
    model = counted("ngram")
    batch = synthetic(model.spec, rows=3, lengths=(24, 9, 24))
    found = model.generator.score(batch.ids, batch.attention)
    for row, ids in enumerate(batch.ids.tolist()):
        words = [i for i, token in enumerate(ids) if token not in NEVER]
        want = sum(math.log(slow_mixture(ids[i - 1], ids[i + 1])[ids[i]]) for i in words)
        assert float(found[row]) == pytest.approx(want, rel=1e-6)


def test_the_same_keys_give_the_same_samples_in_any_batch() -> None:
    model = counted("ngram")
    batch = synthetic(model.spec, rows=6)
    whole = model.generator(batch).ids
    for part in (slice(0, 2), slice(2, 6)):
        assert torch.equal(model.generator(Batch(batch.ids[part], batch.keys[part])).ids, whole[part])
    other = Batch(batch.ids, row_keys(9, torch.arange(6)))
    assert not torch.equal(model.generator(other).ids, whole)


def test_text_without_a_single_pair_leaves_the_unigram() -> None:
    model = shaken(tiny("rtd", {"generator.kind": "ngram"}))
    count_text(model, lambda: COUNTS, lambda: (np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)))
    guess = at(model, 6, 9, 50)
    assert float(guess.loss) == pytest.approx(-math.log(UNIGRAM[7]), rel=1e-5)


def test_exported_tables_give_the_same_scores_and_a_missing_one_is_one_sentence(tmp_path: Path) -> None:
    model = counted("ngram")
    batch, fresh = synthetic(model.spec), build(model.spec)
    export_heads(model, tmp_path)
    (tmp_path / "encoder").mkdir()
    model.encoder.save(tmp_path / "encoder")
    fill(fresh, tmp_path / "encoder", tmp_path, model.spec)
    assert torch.equal(fresh.generator.score(batch.ids, None), model.generator.score(batch.ids, None))
    kept = load_file(tmp_path / WEIGHTS)
    save_file({name: weight for name, weight in kept.items() if name != "generator.words.counts"}, tmp_path / WEIGHTS)
    with pytest.raises(InputError, match=r"weights lack generator\.words\.counts, so sentences cannot be scored"):
        fill(model, tmp_path / "encoder", tmp_path, model.spec)
