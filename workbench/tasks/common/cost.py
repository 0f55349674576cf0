"""Cost of measuring an encoder: FLOPs by which `auto` chooses points during training, and the time of fine-tuning here.

The FLOPs are the same for every objective, so that all arms of an experiment are scored at the same points. They follow
from numbers of tokens and are never timed, so every worker and machine computes the same. At most SAMPLE
training rows, evenly spread, are counted. The numbers are approximate: words and texts that are tokenized apart in
fine-tuning are counted together here, and the tokens of padding, which are few in batches by length, are not.
"""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import plural
from workbench.models import flops
from workbench.progress import clock
from workbench.spec.host import Host, cores, threads_for_each
from workbench.spec.parts import TasksSpec, size_in_words
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import ResolvedSpec
from workbench.tasks.common.contract import FINE_TUNING, Cost, Measure, Suite
from workbench.training.plan import Plan, Point, log_points, word_points

SPECIAL = 2  # [CLS] and [SEP] of each text
SAMPLE = 1000  # rows whose lengths are counted
BACKWARD = 2  # times the products of a forward pass

_counted: dict[tuple[str, str, int], Counter[int]] = {}


# ---- the cost of one score ----


def text_lengths(fingerprint: str, texts: Iterable[str], limit: int, tokenizer: Path) -> Counter[int]:
    """Return how many different texts have each number of tokens, at most `limit`; each measure is counted once."""
    key = (fingerprint, str(tokenizer), limit)
    if key not in _counted:
        counts = pieces_of(tokenizer, list(dict.fromkeys(texts)))
        _counted[key] = Counter(min(limit, SPECIAL + max(1, count)) for count in counts)
    return _counted[key]


def reading_cost(fingerprint: str, texts: Iterable[str], spec: RunSpec, options: TasksSpec, tokenizer: Path) -> int:
    """Return the FLOPs of reading every different text once."""
    lengths = text_lengths(fingerprint, texts, min(options.length, spec.encoder.positions), tokenizer)
    return sum(count * flops.encoder(spec.encoder, length).matmul for length, count in lengths.items())


@functools.lru_cache(4)
def _tokenizer(folder: Path) -> Any:
    from workbench.data.tokenizer import fast

    return fast(folder)


def pieces_of(tokenizer: Path, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text, without special ones, by the tokenizer in a folder."""
    return [len(each.ids) for each in _tokenizer(tokenizer).encode_batch(texts, add_special_tokens=False)]


def step_count(rows: int, epochs: float, options: TasksSpec) -> int:
    """Return the number of steps of fine-tuning on this many training rows, at least 1."""
    return max(1, round(epochs * math.ceil(rows / options.batch)))


def tuning_cost(
    measure: Measure, spec: RunSpec, options: TasksSpec, tokenizer: Path, train: Sequence[list[str]],
    tests: Iterable[Sequence[list[str]]], rows_of: Callable[[list[int]], list[int]] | None = None, *,
    windows: bool = False, repeats: int = 1, folds: int = 0, passes: int = 1,
) -> Cost:  # fmt: skip
    """Return the cost of one fine-tuning on examples, each a list of texts, and of reading the test examples.

    An example is what a batch counts: a row, a question with all its answers, or a pair of texts; with `windows` each
    window of an example is counted. `rows_of` gives the tokens of the rows of an example from the pieces of its texts,
    by default one row for each text. Each example is trained on `repeats` times an epoch. A step and a test read their
    rows in `passes`.
    """
    limit = min(options.length, spec.encoder.positions)

    def count(examples: Sequence[list[str]]) -> list[list[int]]:
        """Return for at most SAMPLE examples, evenly spread, the tokens of each row."""
        step = max(1.0, len(examples) / SAMPLE)
        some = [examples[int(place * step)] for place in range(min(len(examples), SAMPLE))]
        pieces = iter(pieces_of(tokenizer, [text for texts in some for text in texts]))
        read = rows_of or (lambda counts: [min(limit, max(1, each) + SPECIAL) for each in counts])
        return [read([next(pieces) for _ in texts]) for texts in some]

    def mean_forward(examples: list[list[int]]) -> float:
        total = sum(flops.encoder(spec.encoder, length).matmul for rows in examples for length in rows)
        return total / max(1, len(examples))

    trained, number = count(train), len(train) * repeats
    if windows:
        number = round(number * sum(map(len, trained)) / len(trained))
        trained = [[length] for rows in trained for length in rows]
    share, epochs = (folds - 1) / folds if folds else 1, float(measure.settings(options)["epochs"])
    steps = step_count(round(number * share), epochs, options) * max(1, folds)
    tested = [example for part in tests for example in part]
    training = steps * ((1 + BACKWARD) * options.batch * mean_forward(trained))
    reading = passes * len(tested) * mean_forward(count(tested))
    return Cost(training + reading, steps, passes, [length for rows in trained for length in rows])


# ---- the points of training at which measures are taken ----
# Only measures that train no weights of the encoder are taken: zero-shot pairs, linear probes and embeddings. Measures
# of one suite share their points, because a report shows their mean. `auto` goes from the cheapest suite to the most
# expensive one and gives each the longest of SERIES that keeps the cost of all suites so far within SHARE of the run's
# training FLOPs.

SHARE = 0.05  # of a run's training FLOPs that `auto` may spend on scores before its end
SERIES = (6, 3, 2)  # numbers of points that `auto` tries; the points of each are a part of those before it


@dataclass(frozen=True)
class Series:
    """Measures of one suite and their points, with their cost as shares of the run's training FLOPs."""

    suite: str
    measures: tuple[Measure, ...]
    points: tuple[Point, ...]
    each: float  # cost of one point
    share: float  # cost of all points


def series(spec: RunSpec, plan: Plan, tasks: TasksSpec, suite: Suite, tokenizer: Path) -> list[Series]:
    """Return the points of each suite that can be measured during training, the cheapest suite first.

    A suite may get no points. Raises InputError if the schedule `words` is chosen and the words of the corpus are
    not counted.
    """
    suites: dict[str, list[Measure]] = {}
    for measure in suite.tasks:
        if measure.act != FINE_TUNING:
            suites.setdefault(measure.suite, []).append(measure)
    if not suites or plan.steps == plan.first or tasks.at == "none" or tasks.held_out:
        return []  # a search compares the scores at the ends of its runs
    whole = (plan.steps - plan.first) * plan.flops_per_step["matmul"]
    each = {
        name: sum(measure.cost(spec, tasks, tokenizer).flops for measure in measures) / whole
        for name, measures in suites.items()
    }
    made, spent, convention = [], 0.0, spec.budget.convention
    for name in sorted(suites, key=lambda name: (each[name], name)):
        if tasks.at == "words":
            chosen = word_points(spec, plan)
        elif tasks.at == "auto":
            candidates = (log_points(plan, count, convention) for count in SERIES)
            left = SHARE - spent
            chosen = next((points for points in candidates if points and len(points) * each[name] <= left), [])
        else:
            chosen = log_points(plan, int(tasks.at.removeprefix("log:")), convention)
        spent += each[name] * len(chosen)
        made.append(Series(name, tuple(suites[name]), tuple(chosen), each[name], each[name] * len(chosen)))
    return made


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
    """Return a sentence on the rows of `schedule_rows` under --evaluate-at; "" if there are none."""

    def percent(share: float) -> str:
        return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:,.0f} %"

    taken, left = list[str](), list[str]()
    for row in suites:
        least, most = row["least_points"], row["most_points"]
        if most:
            points = plural(most, "point") if least == most else f"{least} to {most} points"
            taken.append(f"{row['suite']} at {points} (at most {percent(row['all_points'])} of a run's compute)")
        else:
            left.append(f"{row['suite']} (one costs {percent(row['one_point'])})")
    parts = [", ".join(taken)] if taken else []
    if left and setting == "auto":
        parts.append(
            f"no point of {' or '.join(left)} fits into {percent(SHARE)} of a run's compute "
            "(--evaluate-at log:6 takes 6 points whatever they cost)"
        )
    elif left:
        parts.append(f"none, because the run ends before the first point of --evaluate-at {setting}")
    return f"scores during training: {'; '.join(parts)}" if parts else ""


# ---- the time of fine-tuning here ----
# A classifier over an encoder of the run's widths is trained for a few steps on made-up rows, once on short and once
# on long ones; its time is a linear function of the matrix products of a step. An encoder of more than DEEP layers is
# timed with DEEP of them.

DEEP = 4  # layers
TRIES = 3  # steps; the fastest counts, since other processes may disturb some
ENOUGH = 1.0  # seconds of steps, after which no further step is timed
MOST = {"cpu": 4e11, "cuda": 6e13}  # FLOPs of a timed step; with more, it has fewer rows
SHORT = 16  # tokens of the rows of the first timing


def planned_time(
    encoders: Sequence[ResolvedSpec], suite: Suite, options: TasksSpec, tokenizer: Path, host: Host, workers: int
) -> tuple[str, list[dict[str, Any]]]:
    """Return the time of all fine-tunings of some encoders, as a sentence and as a row for each size and task."""
    sizes: dict[str, list[ResolvedSpec]] = {}
    for spec in encoders:
        sizes.setdefault(spec.encoder.model_dump_json(), []).append(spec)
    if workers > 1:
        host = replace(host, threads=host.threads or threads_for_each(workers))
    rows, each, total = list[dict[str, Any]](), dict[str, float](), 0.0
    for alike in sizes.values():
        costs = [task.cost(alike[0], options, tokenizer) for task in suite.tasks]
        for task, cost, seconds in zip(suite.tasks, costs, tuning_seconds(alike[0], costs, options, host), strict=True):
            size = size_in_words(alike[0].encoder.layers, alike[0].encoder.hidden)
            count = len(alike) * task.seeds(options)
            rows.append({"task": task.name, "encoder": size, "steps": cost.steps, "seconds": seconds, "times": count})
            total += count * seconds
            each[task.name] = max(seconds, each.get(task.name, 0.0))
    total /= min(workers, len(encoders))
    shares = ", ".join(f"{name} {clock(seconds)}" for name, seconds in each.items())
    missing = f"; without {', '.join(suite.missing)}, which are not there" if suite.missing else ""
    return (
        f"fine-tuning time for {plural(len(encoders), 'encoder')}, untrained ones included: about {clock(total)} here "
        f"(a few steps timed; one fine-tuning takes {shares}){missing}"
    ), rows


def tuning_seconds(spec: ResolvedSpec, costs: Sequence[Cost], options: TasksSpec, host: Host) -> list[float]:
    """Return the seconds that one fine-tuning at each cost takes here, reading its tests included.

    Steps with rows of two lengths are timed: a step takes a constant time, and more for each FLOP in matrix products.
    """
    device = host.resolved_device()
    precision = host.resolved_precision(spec.encoder.hidden)
    host = replace(host, device=device, precision=precision, threads=host.threads or cores())
    layers = min(DEEP, spec.encoder.layers)
    sizes = {"layers": layers, "dropout": options.dropout, "attention_dropout": options.dropout}
    shallow = spec.changed({f"encoder.{name}": value for name, value in sizes.items()})
    most = MOST.get(device.partition(":")[0], MOST["cpu"])
    lengths = sorted(length for cost in costs for length in cost.lengths) or [2 * SHORT]
    middle = max(2 * SHORT, lengths[len(lengths) * 3 // 4])
    timed = list[tuple[float, float]]()  # FLOPs and seconds of a step
    for length in (SHORT, min(middle, spec.encoder.positions)):
        row = (1 + BACKWARD) * flops.encoder(shallow.encoder, length).matmul
        rows = max(1, min(options.batch, int(most / row)))
        timed.append((float(rows * row), _timed(shallow, options, host, rows, length)))
    (less, fast), (more, slow) = timed
    product = max(0.0, (slow - fast) / (more - less))
    step = max(0.0, slow - product * more) * spec.encoder.layers / layers
    return [cost.steps * cost.passes * step + product * cost.flops for cost in costs]


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
