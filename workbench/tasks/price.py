"""What measuring an encoder costs, in the matrix products of its texts: the unit in which points of a curve are paid.

The price is the same for every objective, so that the arms of an experiment get the same points: minimal pairs are
priced as the dearest scorer, a pseudo-log-likelihood, takes them. It is arithmetic on token counts, so that every
worker and every machine finds the same; no clock is asked.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from workbench.models import flops
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.tasks.linear.problem import LinearProbe, Tagged
from workbench.tasks.linear.readout import STRENGTHS
from workbench.tasks.task import Examples, Measure
from workbench.tasks.zero_shot.minimal_pairs import PairSet

SPECIAL = 2  # [CLS] and [SEP] of each text
ITERATIONS = 100  # of L-BFGS in one fit of a readout
SLOWER = 10  # times: products with a vector, of which a readout consists, run at the speed of memory
USUAL_SCORERS = 2  # the objective's own and the generator's, which together cost one pseudo-log-likelihood at most


def measured_along(measure: Measure) -> bool:
    """Return whether a measure is taken during training as well: whatever trains none of the encoder's weights."""
    return isinstance(measure, PairSet | LinearProbe)


def price(measure: Measure, spec: RunSpec, tasks: TasksSpec, tokenizer: Path) -> int:
    """Return the FLOPs (matmul convention) that one score of an encoder of this spec costs at most."""
    if isinstance(measure, PairSet):
        return _pairs_price(measure, spec, tasks, tokenizer)
    assert isinstance(measure, LinearProbe)
    return _probe_price(measure, spec, tasks, tokenizer)


def _pairs_price(pairs: PairSet, spec: RunSpec, tasks: TasksSpec, tokenizer: Path) -> int:
    """Return the price of each sentence in one pass, and in as many masked copies as it has ordinary tokens."""
    total = 0
    for length, count in _lengths(_key(pairs, tokenizer), pairs, spec.data.length).items():
        one = _forward(spec, length)
        head = flops.lm_head(spec.encoder, length, 1).matmul
        total += count * (one + length * head + (length - SPECIAL) * (one + head))
    return total * max(1, len(tasks.scorers) - USUAL_SCORERS + 1)


def _forward(spec: RunSpec, length: int) -> int:
    """Return the price of one pass over a text by the larger of encoder and generator."""
    sizes = [spec.encoder] + ([spec.generator_encoder] if spec.generator.kind == "transformer" else [])
    return max(flops.encoder(size, length).matmul for size in sizes)


def _probe_price(probe: LinearProbe, spec: RunSpec, tasks: TasksSpec, tokenizer: Path) -> int:
    """Return the price of one pass over every text and of fitting every layer's readout, and that of all layers."""
    limit = min(tasks.length, spec.encoder.positions)
    lengths = _lengths(_key(probe, tokenizer), probe, limit)
    forward = sum(count * flops.encoder(spec.encoder, length).matmul for length, count in lengths.items())
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
    """Return how many different texts have how many tokens, none above `limit`; each measure is read once."""
    whole = (*key, limit)
    if whole not in _known:
        _known[whole] = _count(Path(key[1]), list(dict.fromkeys(_texts(measure))), limit)
    return _known[whole]


def _texts(measure: Measure) -> Iterable[str]:
    """Yield the texts that a measure reads."""
    if isinstance(measure, PairSet):
        yield from (*measure.good, *measure.bad)
        return
    assert isinstance(measure, LinearProbe)
    for part in (measure.train, *measure.tests.values()):
        if isinstance(part, Tagged):
            yield from (" ".join(words) for words in part.words)
        else:
            yield from (*part.first, *(part.second or ()))


def _count(folder: Path, texts: Sequence[str], limit: int) -> Counter[int]:
    encodings = _tokenizer(str(folder)).encode_batch(texts, add_special_tokens=False)
    return Counter(min(limit, SPECIAL + max(1, len(each.ids))) for each in encodings)


@functools.lru_cache(4)
def _tokenizer(folder: str):  # type: ignore[no-untyped-def]
    from workbench.data.tokenizer import fast

    return fast(Path(folder))
