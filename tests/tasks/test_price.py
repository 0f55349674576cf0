"""The cost of a measure, by which points during training are chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from priced_tasks import LENGTH, WORDS, sentences, spec_of
from torch.utils.flop_counter import FlopCounterMode

from workbench.data import tokenizer
from workbench.models.sentence_scores import Sentences
from workbench.spec.presets import resolve
from workbench.tasks.common.examples import Examples
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.linear_probe import fingerprinted as sealed_probe
from workbench.tasks.minimal_pairs import PairSet, pair_set
from workbench.training.loop import build


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    tokenizer.save(tokenizer.train([" ".join(WORDS)] * 300, 80), folder, True)
    return folder


@pytest.fixture(scope="module")
def pairs() -> PairSet:
    return pair_set("toy", "pairs", sentences(50), sentences(50, 400), {"kind": ["a"] * 50})


@pytest.fixture(scope="module")
def probe() -> LinearProbe:
    rows = Examples(sentences(40), None, [i % 2 for i in range(40)])
    spec = resolve("nano").tasks
    return sealed_probe(
        LinearProbe("linear:x", "texts", ("a", "b"), "accuracy", ("accuracy",), rows, {"t": rows}), spec
    )


@pytest.mark.parametrize("name", ["bert-mlm", "rtd", "replace-mlm", "all-tokens-mlm", "electra-15"])
def test_pairs_cost_no_more_than_their_price_whoever_scores(name: str, words: Path, pairs: PairSet) -> None:
    """Compared with torch's own counter for both usual scorers of every objective, at real sizes."""
    spec = spec_of(name, encoder__attention="eager", encoder__vocab=8192)
    model: Any = build(spec).eval()
    tokens = LENGTH + 2
    ids = torch.randint(5, 8000, (10, tokens))
    ids[:, 0], ids[:, -1] = spec.data.special.cls, spec.data.special.sep
    text = Sentences(ids, None, torch.arange(tokens).repeat(10, 1))
    usual = list(model.scorers().items())
    own, beside = usual[0][1], dict(usual).get("generator-pll")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for scorer in (own, *([beside] if beside else [])):
            scorer(text)
    stated = pairs.cost(spec, spec.tasks, words).flops / len({*pairs.good, *pairs.bad}) * 10
    assert 0 < counter.get_total_flops() <= stated
    if name == "bert-mlm":
        assert counter.get_total_flops() > 0.4 * stated, "an upper bound, but no empty one"


def test_the_price_is_the_same_for_every_objective(words: Path, pairs: PairSet, probe: LinearProbe) -> None:
    for measure in (pairs, probe):
        found = {
            measure.cost(spec_of(name), spec_of().tasks, words).flops for name in ("bert-mlm", "rtd", "electra-15")
        }
        assert len(found) == 1


def test_a_word_more_costs_the_square(words: Path) -> None:
    def of(length: int) -> float:
        texts = [" ".join(text.split()[:length]) for text in sentences(10)]
        made = pair_set("toy", "pairs", texts, texts, {"kind": ["a"] * 10})
        return made.cost(spec_of(), spec_of().tasks, words).flops / len(set(texts))

    assert of(6) / of(3) == pytest.approx((7 * 8) / (4 * 5), rel=0.15)
