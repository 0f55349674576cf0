"""Sentence scores against slow loops in float64; scores must not depend on padding, order or special tokens."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_oracle import PAD, score, shaken, tiny
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench import objectives
from workbench.models.heads import Scorer, Sentences, pseudo_log_likelihood
from workbench.objectives import rtd
from workbench.spec.parts import Special
from workbench.tensors import ordinary
from workbench.training.loop import plainly

LENGTH = 9
REGISTRY = [name for name in objectives.names() if hasattr(objectives.load(tiny(name)).Objective, "scorers")]


def made(name: str, **changes: Any) -> tuple[Any, Any]:
    """Return an objective in float64 without dropout, whose weights differ from their initial values."""
    spec = tiny(name, changes)
    return spec, plainly(shaken(spec).double().eval())


kept = functools.cache(made)  # for tests that change no weight


def sentence(spec: Any, seed: int, length: int = LENGTH) -> Tensor:
    """Return one row of ids: [CLS], the tokens, [SEP]."""
    special = spec.data.special
    words = torch.randint(8, spec.encoder.vocab, (length - 2,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.tensor([special.cls]), words, torch.tensor([special.sep])])


def by_hand(encoder: Any, head: Any, ids: Tensor, mask: int, words: list[int] | None = None) -> float:
    """Return the pseudo-log-likelihood of one row, with a pass and a full softmax for each token."""
    total = 0.0
    for place in range(1, len(ids) - 1):
        copy = ids.clone()
        copy[place] = mask
        for later in range(place + 1, len(ids) - 1):
            if words is not None and words[later] == words[place]:
                copy[later] = mask
        distribution = head(encoder(copy[None]))[0, place].softmax(-1)
        total += float(distribution[ids[place]].log())
    return total


@pytest.mark.parametrize("words", [None, [-1, 0, 0, 1, 2, 2, 2, 3, -1]], ids=["original", "word-l2r"])
def test_pseudo_log_likelihood_agrees_with_a_slow_loop(words: list[int] | None) -> None:
    spec, model = kept("bert-mlm")
    rows = torch.stack([sentence(spec, seed) for seed in range(3)])
    name = "pll" if words is None else "pll-word-l2r"
    given = torch.tensor([words or [-1] * LENGTH] * 3)
    with torch.no_grad():
        found = model.scorers()[name](Sentences(rows, None, given))
        expected = [by_hand(model.encoder, model.head, row, spec.data.special.mask, words) for row in rows]
    assert found.dtype == torch.float64 and found.tolist() == pytest.approx(expected, rel=1e-6)


def test_the_generator_s_own_score_is_its_pseudo_log_likelihood() -> None:
    for name in ("rtd", "electra-15", "replace-mlm", "all-tokens-mlm"):
        spec, model = kept(name)
        row = sentence(spec, 1)
        with torch.no_grad():
            found = model.scorers()["generator-pll"](Sentences(row[None], None, torch.zeros(1, LENGTH).long()))
            expected = by_hand(model.generator.body, model.generator.head, row, spec.data.special.mask)
        assert float(found) == pytest.approx(expected, rel=1e-6)


WAYS = {
    "adversarial": ["originality", "electric"],
    "all-tokens-mlm": ["copy-mixture"],
    "electra-15": ["originality", "electric"],
    "replace-mlm": ["one-pass"],
    "rtd": ["originality", "electric"],
}


@pytest.mark.parametrize("name", WAYS)
def test_an_objective_s_own_score_is_first(name: str) -> None:
    """The first way to score is that of the objective; those of its generator follow."""
    spec, model = kept(name)
    ways, row = model.scorers(), sentence(spec, 4)[None]
    assert list(ways)[: len(WAYS[name])] == WAYS[name]
    assert all(way.startswith("generator-") for way in list(ways)[len(WAYS[name]) :])
    if "electric" in ways:
        given = Sentences(row, None, torch.zeros_like(row))
        ways["electric"](given)
        assert list(given.kept) == ["generator-pll"]  # which the generator's own way to score uses again


def test_replace_mlm_predicts_every_token_in_one_pass() -> None:
    spec, model = kept("replace-mlm")
    row = sentence(spec, 2)
    with torch.no_grad():
        logs = model.head(model.encoder(row[None]))[0].log_softmax(-1)
        expected = sum(float(logs[place, row[place]]) for place in range(1, LENGTH - 1))
        assert float(score(model, row[None])) == pytest.approx(expected, rel=1e-6)


def test_all_tokens_mlm_uses_its_mixture() -> None:
    """The probability is D + (1 - D) q at every token, since the input contains the token itself."""
    spec, model = kept("all-tokens-mlm")
    row = sentence(spec, 3)
    with torch.no_grad():
        hidden = model.encoder(row[None])
        copy, q = model.gate(hidden)[0].sigmoid(), model.head(hidden)[0].softmax(-1)
        inner = range(1, LENGTH - 1)
        expected = sum(float((copy[t] + (1 - copy[t]) * q[t, row[t]]).log()) for t in inner)
        assert float(score(model, row[None])) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["adversarial", "electra-15", "rtd"])
def test_scores_of_detectors_fall_with_their_logits(name: str) -> None:
    """Logits above 0 mean replaced: larger logits lower originality, and also the corrected score of the generator."""
    spec, model = kept(name)
    row = sentence(spec, 5)[None]
    with torch.no_grad():
        logits = model.head(model.encoder(row))[0, 1:-1]
        expected = sum(float((1 - logit.sigmoid()).log()) for logit in logits)
        assert float(score(model, row)) == pytest.approx(expected, rel=1e-4)
        own = float(model.generator.score(row, None))
        assert float(score(model, row, way="electric")) == pytest.approx(own - float(logits.sum()), rel=1e-5)
        attention = torch.tensor([[True] * LENGTH + [False] * 4])
        padded = float(score(model, F.pad(row, (0, 4), value=9), attention, way="electric"))
        assert padded == pytest.approx(own - float(logits.sum()), rel=1e-5)


def scorers_of(logits: list[float], dtype: torch.dtype = torch.float32) -> dict[str, Scorer]:
    """Scorers of a detector whose logits are a table by token; its generator scores by minus the sum of ids."""
    table, special = torch.tensor(logits, dtype=dtype), Special(pad=0, unk=1, cls=2, sep=3, mask=4)

    def own(ids: Tensor, attention: Tensor | None) -> Tensor:
        return -ids.double().sum(1)

    generator = SimpleNamespace(score=own, scorers=lambda: {"generator-pll": lambda s: own(s.ids, s.attention)})
    detector: Any = SimpleNamespace(
        encoder=lambda ids, attention: ids, head=lambda ids: table[ids], generator=generator,
        spec=SimpleNamespace(data=SimpleNamespace(special=special)),
    )  # fmt: skip
    return rtd.Objective.scorers(detector)


def test_logits_of_any_size_and_width_keep_their_order() -> None:
    """Of a detector that is sure, 1 - sigmoid(logit) would be 0 and its logarithm infinite; bf16 sums would round."""
    known, ids = scorers_of([0.0] * 5 + [1e4, -1e4, 90.0], torch.bfloat16), torch.tensor([[5], [6], [7]])
    assert known["originality"](Sentences(ids, None, ids)).tolist() == [pytest.approx(-1e4, rel=4e-3), 0.0, -90.0]
    known, ids = scorers_of([0.0] * 5 + [0.0, 0.0, 1.0], torch.bfloat16), torch.full((1, 3000), 7)
    assert float(known["electric"](Sentences(ids, None, ids))) == -7 * 3000 - 3000


@pytest.mark.parametrize("kind", ["transformer", "unigram", "uniform"])
def test_electric_corrects_the_generator_by_the_head(kind: str) -> None:
    """The score is log q - logit; with equal logits it ranks sentences of one length as the generator does."""
    spec, model = made("rtd", **({"generator.kind": kind} | ({} if kind == "transformer" else {"tying": "none"})))
    if kind == "unigram":
        model.generator.words.count(torch.arange(spec.encoder.vocab))
    rows = torch.stack([sentence(spec, seed) for seed in range(4)])
    with torch.no_grad():
        logits = model.head(model.encoder(rows))[:, 1:-1].sum(1)
        own = model.generator.score(rows, None)
        assert score(model, rows, way="electric").tolist() == pytest.approx((own - logits).tolist(), rel=1e-6)
        for weight in model.head.parameters():
            weight.zero_()
        assert score(model, rows, way="electric").tolist() == pytest.approx(own.tolist(), rel=1e-6)
        assert score(model, rows).tolist() == pytest.approx([(LENGTH - 2) * F.logsigmoid(torch.tensor(0.0)).item()] * 4)
    if kind == "uniform":
        assert own.unique().numel() == 1
    assert ("generator-pll" in model.scorers()) == (kind == "transformer")


@pytest.mark.parametrize("name", REGISTRY)
@given(
    lengths=st.lists(st.integers(3, LENGTH), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    filling=st.sampled_from([PAD, 9]),  # only the attention mask marks the end of a sentence
)
@settings(max_examples=8, deadline=None)
def test_padding_and_neighbours_change_no_score(name: str, lengths: list[int], seed: int, filling: int) -> None:
    spec, model = kept(name)
    rows = [sentence(spec, seed + number, length) for number, length in enumerate(lengths)]
    width = max(lengths) + 2
    ids = torch.stack([F.pad(row, (0, width - len(row)), value=filling) for row in rows])
    attention = torch.arange(width) < torch.tensor(lengths)[:, None]
    words = torch.arange(width).expand(len(rows), -1)
    with torch.no_grad():
        for scorer in model.scorers().values():
            together = scorer(Sentences(ids, attention, words))
            alone = [float(scorer(Sentences(row[None], None, words[:1, : len(row)]))) for row in rows]
            assert together.shape == (len(rows),) and together.tolist() == pytest.approx(alone, rel=1e-6, abs=1e-6)


def test_special_tokens_and_padding_are_never_scored() -> None:
    spec = tiny("bert-mlm")
    s = spec.data.special
    ids = torch.tensor([[s.cls, 9, s.mask, s.unk, s.sep, s.pad, 9]])
    attention = torch.tensor([[1, 1, 1, 1, 1, 1, 0]])
    assert ordinary(ids, attention, s).tolist() == [[False, True, False, True, False, False, False]]
    assert ordinary(ids, None, s).tolist() == [[False, True, False, True, False, False, True]]


def test_a_sentence_without_tokens_scores_0() -> None:
    spec, model = made("bert-mlm")
    ids = torch.tensor([[spec.data.special.cls, spec.data.special.sep]])
    assert float(pseudo_log_likelihood(model.encoder, model.head, ids, None, spec.data.special)) == 0.0
