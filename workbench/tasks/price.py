"""Cost of measuring an encoder, in FLOPs of matrix products, by which `auto` chooses points during training.

The cost is the same for every objective, so that all arms of an experiment are scored at the same points: minimal
pairs count as much as their most expensive scorer, a pseudo-log-likelihood. The cost follows from numbers of tokens
and is never timed, so every worker and every machine computes the same.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from workbench.models import flops
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.tasks.embeddings.embedding_task import Embedding
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.linear.readout import STRENGTHS
from workbench.tasks.task import Examples, Measure, Tagged
from workbench.tasks.zero_shot.minimal_pairs import PairSet

SPECIAL = 2  # [CLS] and [SEP] of each text
ITERATIONS = 100  # of L-BFGS that one fit of a readout is counted as
SLOWER = 10  # times as slow as products of matrices: a readout multiplies by vectors, limited by memory bandwidth
USUAL_SCORERS = 2  # the objective's and the generator's, which together cost at most one pseudo-log-likelihood


def measured_during_training(measure: Measure) -> bool:
    """Return whether a measure is also taken during training, as all are that train no weights of the encoder."""
    return isinstance(measure, PairSet | LinearProbe | Embedding) and measure.act != "fine-tuning"


def price(measure: Measure, spec: RunSpec, tasks: TasksSpec, tokenizer: Path) -> int:
    """Return the largest cost of one score of an encoder of this spec, in FLOPs (matmul convention)."""
    if isinstance(measure, PairSet):
        return _pairs_price(measure, spec, tasks, tokenizer)
    if isinstance(measure, Embedding):
        return _reading_price(measure, spec, tasks, tokenizer)
    assert isinstance(measure, LinearProbe)
    return _probe_price(measure, spec, tasks, tokenizer)


def _pairs_price(pairs: PairSet, spec: RunSpec, tasks: TasksSpec, tokenizer: Path) -> int:
    """Return the cost of reading each sentence once, and once more for each of its ordinary tokens, then masked."""
    total = 0
    for length, count in _lengths(_key(pairs, tokenizer), pairs, spec.data.length).items():
        one = _forward(spec, length)
        head = flops.lm_head(spec.encoder, length, 1).matmul
        total += count * (one + length * head + (length - SPECIAL) * (one + head))
    return total * max(1, len(tasks.scorers) - USUAL_SCORERS + 1)


def _reading_price(measure: Measure, spec: RunSpec, tasks: TasksSpec, tokenizer: Path) -> int:
    """Return the cost of reading every text once."""
    limit = min(tasks.length, spec.encoder.positions)
    lengths = _lengths(_key(measure, tokenizer), measure, limit)
    return sum(count * flops.encoder(spec.encoder, length).matmul for length, count in lengths.items())


def _forward(spec: RunSpec, length: int) -> int:
    """Return the cost of one forward pass over a text by the larger of encoder and generator."""
    sizes = [spec.encoder] + ([spec.generator_encoder] if spec.generator.kind == "transformer" else [])
    return max(flops.encoder(size, length).matmul for size in sizes)


def _probe_price(probe: LinearProbe, spec: RunSpec, tasks: TasksSpec, tokenizer: Path) -> int:
    """Return the cost of reading every text once, and of fitting a readout of each layer and one of all layers."""
    forward = _reading_price(probe, spec, tasks, tokenizer)
    two = isinstance(probe.train, Examples) and probe.train.second is not None and probe.kind == "texts"
    features = 2 * (spec.encoder.layers + 1) * spec.encoder.hidden * (4 if two else 1)
    labels = len(probe.labels) if probe.kind != "pairs" and len(probe.labels) > 2 else 1
    rows = probe.train.count() if isinstance(probe.train, Tagged) else len(probe.train)
    fits = (len(STRENGTHS) + 1) * (2 if tasks.control and probe.kind == "words" else 1)
    return forward + SLOWER * fits * ITERATIONS * 4 * rows * features * labels


def _key(measure: Measure, tokenizer: Path) -> tuple[str, str]:
    return measure.fingerprint, str(tokenizer)


_known: dict[tuple[str, str, int], Counter[int]] = {}


def _lengths(key: tuple[str, str], measure: Measure, limit: int) -> Counter[int]:
    """Return how many different texts have each number of tokens, at most `limit`; each measure is read once."""
    whole = (*key, limit)
    if whole not in _known:
        _known[whole] = _count(Path(key[1]), list(dict.fromkeys(_texts(measure))), limit)
    return _known[whole]


def _texts(measure: Measure) -> Iterable[str]:
    """Yield the texts that a measure reads."""
    if isinstance(measure, PairSet):
        yield from (*measure.good, *measure.bad)
        return
    if isinstance(measure, Embedding):
        for data in measure.tests.values():
            yield from data.texts()
        return
    assert isinstance(measure, LinearProbe)
    for part in (measure.train, *measure.tests.values()):
        if isinstance(part, Tagged):
            yield from (" ".join(words) for words in part.words)
        else:
            yield from (*part.first, *(part.second or ()))


def _count(folder: Path, texts: Sequence[str], limit: int) -> Counter[int]:
    return Counter(min(limit, SPECIAL + max(1, count)) for count in pieces_of(folder, texts))


def pieces_of(folder: Path, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text, without special ones, by the tokenizer in a folder."""
    return [len(each.ids) for each in _tokenizer(str(folder)).encode_batch(texts, add_special_tokens=False)]


@functools.lru_cache(4)
def _tokenizer(folder: str):  # type: ignore[no-untyped-def]
    from workbench.data.tokenizer import fast

    return fast(Path(folder))
