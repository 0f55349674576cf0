"""Cost of measuring an encoder, in FLOPs of matrix products, by which `auto` chooses points during training.

The cost is the same for every objective, so that all arms of an experiment are scored at the same points: minimal
pairs count as much as their most expensive scorer, a pseudo-log-likelihood. The cost follows from numbers of tokens
and is never timed, so every worker and every machine computes the same.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import plural
from workbench.models import flops
from workbench.progress import clock
from workbench.spec.host import Host, cores, threads_for_each
from workbench.spec.parts import EncoderSpec, TasksSpec, size_in_words
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import ResolvedSpec
from workbench.tasks._linear_readout import STRENGTHS
from workbench.tasks.common.examples import Examples, Measure, Suite, Tagged, Task
from workbench.tasks.embeddings import Embedding, Relevant, Similar
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.minimal_pairs import PairSet
from workbench.tasks.squad import LENGTH, QUERY, STRIDE, Questions, Squad
from workbench.tasks.tagging import Tagging
from workbench.training import points
from workbench.training.plan import Plan
from workbench.training.points import Point

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


# ---- the points of training at which measures are taken ----
# Only measures that train no weights of the encoder are taken: zero-shot pairs, linear probes and embeddings. Those of
# one suite share their points, because a report shows their mean. `auto` goes from the cheapest suite to the most
# expensive one and gives each the longest of SERIES whose cost, added to that of the suites before it, is within SHARE
# of the run's training FLOPs.

SHARE = 0.05  # of a run's training FLOPs that `auto` may spend on scores before its end
SERIES = (6, 3, 2)  # numbers of points that `auto` tries; the points of each are a part of those before it


@dataclass(frozen=True)
class Series:
    """Measures of one suite and their points.

    `each` is the cost of one point, as a share of the run's training FLOPs.
    """

    suite: str
    measures: tuple[Measure, ...]
    points: tuple[Point, ...]
    each: float

    @property
    def share(self) -> float:
        """Return the cost of all points, as a share of the run's training FLOPs."""
        return self.each * len(self.points)


def series(spec: RunSpec, plan: Plan, tasks: TasksSpec, suite: Suite, tokenizer: Path) -> list[Series]:
    """Return the points of each suite that can be measured during training, the cheapest suite first.

    A suite may get no points. Raises InputError if the schedule `words` is chosen and the words of the corpus are
    not counted.
    """
    suites: dict[str, list[Measure]] = {}
    for measure in suite.tasks:
        if measured_during_training(measure):
            suites.setdefault(measure.suite, []).append(measure)
    if not suites or plan.steps == plan.first or tasks.at == "none" or tasks.held_out:
        return []  # a search compares the scores at the ends of its runs
    whole = (plan.steps - plan.first) * plan.flops_per_step["matmul"]
    each = {name: sum(price(m, spec, tasks, tokenizer) for m in measures) / whole for name, measures in suites.items()}
    made, spent = [], 0.0
    for name in sorted(suites, key=lambda name: (each[name], name)):
        chosen = _chosen(spec, plan, tasks.at, each[name], SHARE - spent)
        spent += each[name] * len(chosen)
        made.append(Series(name, tuple(suites[name]), tuple(chosen), each[name]))
    return made


def _chosen(spec: RunSpec, plan: Plan, setting: str, each: float, left: float) -> list[Point]:
    """Return the points of a suite; `each` is the cost of one, and `auto` may spend at most `left`."""
    if setting == "words":
        return points.word_points(spec, plan)
    convention = spec.budget.convention
    if setting != "auto":
        return points.log_points(plan, points.count_of(setting), convention)
    candidates = (points.log_points(plan, count, convention) for count in SERIES)
    return next((one for one in candidates if one and len(one) * each <= left), [])


def schedule_points(series_of_suites: Iterable[Series]) -> list[Point]:
    """Return every point at which some suite is measured, in the order of training."""
    return sorted({point for one in series_of_suites for point in one.points}, key=lambda point: point.step)


def schedule_rows(runs: Iterable[Sequence[Series]]) -> list[dict[str, Any]]:
    """Return for each suite how many points the runs of an experiment get, and the largest cost of a run.

    `one_point` and `all_points` are shares of a run's training FLOPs.
    """
    by_suite: dict[str, list[Series]] = {}
    for one in (one for run in runs for one in run):
        by_suite.setdefault(one.suite, []).append(one)
    return [
        {
            "suite": suite, "least_points": min(len(one.points) for one in several),
            "most_points": max(len(one.points) for one in several), "one_point": max(one.each for one in several),
            "all_points": max(one.share for one in several),
        }
        for suite, several in by_suite.items()
    ]  # fmt: skip


def schedule_sentence(suites: Sequence[Mapping[str, Any]], setting: str) -> str:
    """Return a sentence on the `rows` of a setting of --evaluate-at; "" if nothing can be measured during training."""
    taken = [
        f"{row['suite']} at {_span(row['least_points'], row['most_points'])} "
        f"(at most {_percent(row['all_points'])} of a run's compute)"
        for row in suites
        if row["most_points"]
    ]
    left = [f"{row['suite']} (one costs {_percent(row['one_point'])})" for row in suites if not row["most_points"]]
    parts = [", ".join(taken)] if taken else []
    if left and setting == "auto":
        parts.append(
            f"no point of {' or '.join(left)} fits into {_percent(SHARE)} of a run's compute "
            "(--evaluate-at log:6 takes 6 points whatever they cost)"
        )
    elif left:
        parts.append(f"none, because the run ends before the first point of --evaluate-at {setting}")
    return f"scores during training: {'; '.join(parts)}" if parts else ""


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:,.0f} %"


def _span(least: int, most: int) -> str:
    """Return `1 point`, `6 points` or `1 to 2 points`."""
    return plural(most, "point") if least == most else f"{least} to {most} points"


# ---- the workload of a fine-tuning ----
# Lengths are those of at most SAMPLE rows, evenly spread. They are approximate: words and texts that are tokenized
# apart in fine-tuning are counted together here, and the tokens of padding, which are few in batches by length, are
# not.

SAMPLE = 1000
Rows = list[list[int]]  # for each example the tokens of each of its rows
T = TypeVar("T")


@dataclass(frozen=True)
class Workload:
    """One fine-tuning: its steps, the examples of a step, and the tokens of the rows of some examples.

    An example is what a batch counts: a row, a window, a question with all its answers, or a pair of texts. `tested` is
    the number of examples that are read besides, and `test` some of them. A step reads its rows in `passes`.
    """

    steps: int
    batch: int
    train: Rows
    test: Rows
    tested: int
    passes: int = 1


def workload(measure: Measure, spec: TasksSpec, tokenizer: Path, positions: int) -> Workload:
    """Return what one fine-tuning of an encoder with so many positions computes, at these settings."""
    from workbench.tasks.common.fine_tuning import step_count

    count = _reader(measure, spec, tokenizer, positions)
    texts, repeats = _train(measure, spec)
    train, number = count(_some(texts)), len(texts) * repeats
    if isinstance(measure, Tagging | Squad):  # a batch counts windows
        number = round(number * sum(map(len, train)) / len(train))
        train = [[length] for rows in train for length in rows]
    folds = len(measure.folds) if isinstance(measure, Task) else 0
    share = (folds - 1) / folds if folds else 1
    steps = step_count(round(number * share), float(measure.settings(spec)["epochs"]), spec)
    tests = [example for part in _tests(measure) for example in part]
    twice = (
        2 if isinstance(measure, Embedding) else 1
    )  # it is tested before and after training, on both texts of a pair
    return Workload(steps * max(1, folds), spec.batch, train, count(_some(tests)), twice * len(tests), twice)


def _some(examples: Sequence[T]) -> list[T]:
    """Return at most SAMPLE examples, evenly spread."""
    step = max(1.0, len(examples) / SAMPLE)
    return [examples[int(place * step)] for place in range(min(len(examples), SAMPLE))]


def _train(measure: Measure, spec: TasksSpec) -> tuple[Sequence[list[str]], int]:
    """Return the texts of each training example, and how often each is in the training rows."""
    if isinstance(measure, Task):
        return _examples(measure, measure.train), 2 if spec.doubled and measure.symmetric else 1
    if isinstance(measure, Embedding):
        return [list(pair) for pair in measure.train.pairs()] if measure.train is not None else [], 1
    assert isinstance(measure, Tagging | Squad)
    return _of_part(measure.train), 1


def _tests(measure: Measure) -> list[Sequence[list[str]]]:
    """Return the texts of the examples of each part that is tested on."""
    assert isinstance(measure, Task | Embedding | Tagging | Squad)
    if isinstance(measure, Task):
        return [_examples(measure, part) for part in measure.tests.values()]
    return [_of_part(part) for part in measure.tests.values()]


def _examples(task: Task, rows: Examples) -> list[list[str]]:
    """Return the texts of the rows of each question, a row being all that is read together."""
    texts = [" ".join(pair) for pair in zip(rows.first, rows.second or [""] * len(rows), strict=True)]
    return [[texts[row] for row in unit] for unit in task.units(rows)]


def _of_part(part: Tagged | Questions | Similar | Relevant) -> list[list[str]]:
    """Return the texts of each sentence, of each question with its paragraph, or each text of an embedding."""
    if isinstance(part, Tagged):
        return [[" ".join(words)] for words in part.words]
    if isinstance(part, Questions):
        return [[row.text, part.paragraphs[row.paragraph]] for row in part.rows]
    return [[text] for text in part.texts()]


def _reader(measure: Measure, spec: TasksSpec, tokenizer: Path, positions: int) -> Callable[[list[list[str]]], Rows]:
    """Return the function that gives the tokens of the rows of examples, from their texts."""
    limit = min(spec.length, positions)
    if isinstance(measure, Squad):
        limit = min(spec.squad_length or LENGTH, positions)

    def rows_of(pieces: list[int]) -> list[int]:
        if isinstance(measure, Squad):
            return _windows(pieces, limit, spec)
        if isinstance(measure, Tagging):
            return [end - start + SPECIAL for start, end in _cut(pieces[0], limit - SPECIAL)]
        return [min(limit, max(1, count) + SPECIAL) for count in pieces]

    def count(examples: list[list[str]]) -> Rows:
        pieces = iter(pieces_of(tokenizer, [text for texts in examples for text in texts]))
        return [rows_of([next(pieces) for _ in texts]) for texts in examples]

    return count


def _cut(pieces: int, room: int) -> list[tuple[int, int]]:
    """Return the first piece and the end of each window of a sentence."""
    from workbench.tasks.common.token_rows import cuts

    return [(start, min(start + room, pieces)) for start, _, _ in cuts(pieces, room)]


def _windows(pieces: list[int], limit: int, spec: TasksSpec) -> list[int]:
    """Return the tokens of the windows of a question and its paragraph, which have these numbers of pieces."""
    asked = min(pieces[0], QUERY, limit // 4)
    stride, room = spec.squad_stride or max(1, min(STRIDE, limit // 2)), limit - asked - SPECIAL - 1
    starts = range(0, max(1, pieces[1] - room + stride), stride)
    return [limit - room + min(room, pieces[1] - start) for start in starts]


# ---- the time of fine-tuning here ----
# A classifier over an encoder of the run's widths is trained for a few steps on made-up rows, once on short and once
# on long ones; its time is a linear function of the matrix products of a step. An encoder of more than DEEP layers is
# timed with DEEP of them.

DEEP = 4  # layers
TRIES = 3  # steps, of which the fastest counts: other processes may disturb some
ENOUGH = 1.0  # seconds of steps, after which no further step is timed
MOST = {"cpu": 4e11, "cuda": 6e13}  # FLOPs of a timed step; with more, it has fewer rows
SHORT = 16  # tokens of the rows of the first timing
BACKWARD = 2  # times the products of a forward pass


@dataclass(frozen=True)
class Speed:
    """The time of a step: `step` seconds, and `product` more for each FLOP in matrix products."""

    step: float
    product: float


def planned_time(
    encoders: Sequence[ResolvedSpec], suite: Suite, tasks: TasksSpec, tokenizer: Path, host: Host, workers: int
) -> tuple[str, list[dict[str, Any]]]:
    """Return the time of all fine-tunings of some encoders, as a sentence and as a row for each size and task."""
    sizes: dict[str, list[ResolvedSpec]] = {}
    for spec in encoders:
        sizes.setdefault(spec.encoder.model_dump_json(), []).append(spec)
    if workers > 1:
        host = replace(host, threads=host.threads or threads_for_each(workers))
    rows, each, total = list[dict[str, Any]](), dict[str, float](), 0.0
    for alike in sizes.values():
        works = [workload(task, tasks, tokenizer, alike[0].encoder.positions) for task in suite.tasks]
        for task, work, seconds in zip(suite.tasks, works, tuning_seconds(alike[0], works, tasks, host), strict=True):
            size = size_in_words(alike[0].encoder.layers, alike[0].encoder.hidden)
            count = len(alike) * task.seeds(tasks)
            rows.append({"task": task.name, "encoder": size, "steps": work.steps, "seconds": seconds, "times": count})
            total += count * seconds
            each[task.name] = max(seconds, each.get(task.name, 0.0))
    total /= min(workers, len(encoders))
    shares = ", ".join(f"{name} {clock(seconds)}" for name, seconds in each.items())
    missing = f"; without {', '.join(suite.missing)}, which are not there" if suite.missing else ""
    return (
        f"fine-tuning time for {plural(len(encoders), 'encoder')}, untrained ones included: about {clock(total)} here "
        f"(a few steps timed; one fine-tuning takes {shares}){missing}"
    ), rows


def tuning_seconds(spec: ResolvedSpec, works: Sequence[Workload], tasks: TasksSpec, host: Host) -> list[float]:
    """Return the seconds that one fine-tuning of each workload takes here, reading its tests included."""
    longest = [length for work in works for rows in work.train for length in rows]
    middle = max(2 * SHORT, sorted(longest)[len(longest) * 3 // 4])
    speed = measured(spec, tasks, host, (SHORT, min(middle, spec.encoder.positions)))
    return [_seconds(spec.encoder, work, speed) for work in works]


def _seconds(encoder: EncoderSpec, work: Workload, speed: Speed) -> float:
    """Return the seconds of a fine-tuning at a speed."""
    step = (1 + BACKWARD) * work.batch * _mean_forward(encoder, work.train)
    tests = work.tested * _mean_forward(encoder, work.test)
    return work.steps * (work.passes * speed.step + speed.product * step) + speed.product * tests


def _mean_forward(encoder: EncoderSpec, examples: Rows) -> float:
    """Return the mean FLOPs of reading one of the examples."""
    total = sum(flops.encoder(encoder, length).matmul for rows in examples for length in rows)
    return total / max(1, len(examples))


def measured(spec: ResolvedSpec, tasks: TasksSpec, host: Host, lengths: Sequence[int]) -> Speed:
    """Return the speed of the fine-tuner here with an encoder of a spec, by steps with rows of two lengths."""
    device = host.resolved_device()
    precision = host.resolved_precision(spec.encoder.hidden)
    host = replace(host, device=device, precision=precision, threads=host.threads or cores())
    layers = min(DEEP, spec.encoder.layers)
    sizes = {"layers": layers, "dropout": tasks.dropout, "attention_dropout": tasks.dropout}
    shallow = spec.changed({f"encoder.{name}": value for name, value in sizes.items()})
    most = MOST.get(device.partition(":")[0], MOST["cpu"])
    works, seconds = list[float](), list[float]()
    for length in lengths:
        row = (1 + BACKWARD) * flops.encoder(shallow.encoder, length).matmul
        rows = max(1, min(tasks.batch, int(most / row)))
        works.append(float(rows * row))
        seconds.append(_timed(shallow, tasks, host, rows, length))
    product = max(0.0, (seconds[1] - seconds[0]) / (works[1] - works[0]))
    start = max(0.0, seconds[1] - product * works[1])
    return Speed(start * spec.encoder.layers / layers, product)


def _timed(spec: ResolvedSpec, tasks: TasksSpec, host: Host, rows: int, length: int) -> float:
    """Return the seconds of a step of fine-tuning on made-up rows: the fastest of a few, after one that warms up."""
    import torch
    from torch import nn

    from workbench import cpu
    from workbench.models.encoder import build_encoder
    from workbench.tasks.common.encoder_folders import Classifier
    from workbench.tasks.common.fine_tuning import layerwise_optimizer

    cpu.prepare(host.threads, host.plain, host.device)
    autocast = torch.autocast(host.device.partition(":")[0], torch.bfloat16, enabled=host.precision == "bf16")
    taken = list[float]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Classifier(build_encoder(spec).model, 2, tasks.dropout).to(host.device).train()
        optimizer = layerwise_optimizer(model, tasks)
        ids = torch.randint(spec.encoder.vocab, (rows, length)).to(host.device)
        real = torch.ones_like(ids)
        real[0, -1] = 0
        labels = torch.zeros(rows, dtype=torch.int64, device=host.device)
        inputs = {"input_ids": ids, "attention_mask": real}
        while len(taken) <= TRIES and sum(taken[1:]) < ENOUGH and (not taken or taken[0] < 5 * ENOUGH):
            begun = time.perf_counter()
            with autocast:
                outputs = model(inputs)
            nn.functional.cross_entropy(outputs.float(), labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), tasks.clip, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            next(model.parameters()).flatten()[0].item()  # waits for the device
            taken.append(time.perf_counter() - begun)
    return min(taken[1:] or taken)
