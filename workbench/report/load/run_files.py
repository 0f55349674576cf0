"""Reading of one run directory: its JSON files, its scores, and its training curve in bounded memory.

Files may be missing, incomplete or of the wrong type; faults are returned as sentences. `records` are the JSON files
that a check of the run has read, by name; a file that is not among them is read here.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError
from workbench.spec.parts import CONVENTIONS, UNITS, DataSpec
from workbench.store.atomic import LONGEST_LINE, lines_of, read_object
from workbench.store.redact import redact_addresses
from workbench.store.run_store import RunDir, RunStore, of_each
from workbench.store.validation import last_line

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

Records = Mapping[str, dict[str, Any]]
NO_RECORDS: Records = {}
END = "end"  # the mark of the last point of a run, the end of training
AT_A_TIME = 64  # runs
FINISHED = ("trained", "done")  # states of a run whose pre-training is over, so that its encoder may be scored


def optional(path: Path, records: Records = NO_RECORDS) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty dictionary if it is missing or damaged."""
    try:
        return content(path.parent, path.name, records)
    except (OSError, ValueError):
        return {}


def content(folder: Path, name: str, records: Records = NO_RECORDS) -> dict[str, Any]:
    """Return the content of a JSON file of a run. Raises ValueError if it is damaged, or OSError."""
    return records[name] if name in records else read_object(folder / name)


def number(value: Any) -> float:
    """Return a finite number as a float, and NaN for any other value."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if good and math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def part(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the dictionary under a key; an empty one if there is none."""
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings with dotted keys: {"a": {"b": 1}} becomes {"a.b": 1}. Lists become text with commas.

    Secrets in addresses, which runs of older versions may have, are removed.
    """
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat |= flatten(item, f"{prefix}{key}.")
        else:
            text = ", ".join(map(str, item)) if isinstance(item, list) else item
            flat[f"{prefix}{key}"] = redact_addresses(text) if isinstance(text, str) else text
    return flat


@dataclass(frozen=True)
class RunFiles:
    """The files of one run: its state with a remark, its JSON files by name, and its training curve."""

    run_id: str
    state: str
    note: str
    records: Records
    curve: Curve
    fault: str  # of the curve


def every_run(store: RunStore, run_ids: Iterable[str], verify: bool, most_rows: int = 0) -> Iterator[RunFiles | None]:
    """Yield the files of each of these runs, in order; None for a run without a folder.

    With `verify`, each file is compared with its hash. About `most_rows` rows of each log are read. Several runs are
    read at the same time, and few are in memory.
    """
    runs = (RunDir(store.root / run_id) for run_id in run_ids)
    read = partial(_files, verify=verify, most_rows=most_rows)
    while some := list(itertools.islice(runs, AT_A_TIME)):
        yield from of_each(read, some)


def _files(run: RunDir, verify: bool, most_rows: int) -> RunFiles | None:
    if not os.path.lexists(run.path):
        return None
    try:
        state, note, records = run.examine(verify)
    except (InputError, OSError) as error:  # a run may change while it is read
        state, note, records = "damaged", str(error), {}
    curve, fault = curve_of(run.path, most_rows) if most_rows and state != "damaged" else (NO_CURVE, "")
    return RunFiles(run.run_id, state, note, records, curve, fault)


def spec_of(folder: Path, records: Records = NO_RECORDS) -> tuple[dict[str, Any], str]:
    """Return the run's spec as plain data, and the digest of its identity. Raises ValueError if it cannot be used."""
    try:
        raw = content(folder, "spec.json", records)
    except OSError:
        raise ValueError("spec.json cannot be read") from None
    spec = part(raw, "spec")
    given = [k for k in UNITS if not math.isnan(number(part(spec, "budget").get(k)))]
    if len(given) != 1 or not isinstance(spec.get("seed"), int):
        raise ValueError("spec.json holds no usable spec")
    return spec, str(raw.get("identity_sha") or "")


def totals(folder: Path, last: Mapping[str, float], records: Records = NO_RECORDS) -> dict[str, float]:
    """Return steps, tokens, seconds and FLOPs of done.json, or of the `last` logged row. Raises ValueError."""
    try:
        done = content(folder, "done.json", records)
    except FileNotFoundError:
        names = {"steps": "step", "tokens": "tokens", "seconds": "seconds"}
        names |= {f"flops_{c}": f"flops.{c}" for c in CONVENTIONS}
        return {name: last.get(logged, math.nan) for name, logged in names.items()}
    recorded = {k: number(done.get(k)) for k in ("steps", "tokens", "seconds")}
    recorded |= {f"flops_{c}": number(part(done, "flops").get(c)) for c in CONVENTIONS}
    missing = [k for k, v in recorded.items() if math.isnan(v)]
    if missing:
        raise ValueError(f"done.json has no usable {', '.join(missing)}")
    return recorded


def words_and_epochs(spec: Mapping[str, Any], tokens: float) -> dict[str, float]:
    """Return the words in this number of tokens of a run, and their epochs; NaN if words were not counted."""
    try:
        data = DataSpec.model_validate(part(spec, "data"))
        words = data.words_of(tokens)
    except ValueError:  # also for NaN tokens
        return {"words": math.nan, "epochs": math.nan}
    return {"words": float(round(words)), "epochs": words / data.words}


def floors(folder: Path, records: Records = NO_RECORDS) -> dict[str, float]:
    """Return the floor of each loss: its value for predictions from token frequencies alone; {} if not recorded."""
    recorded = part(optional(folder / "done.json", records), "floors")
    return {metric: value for metric, raw in recorded.items() if not math.isnan(value := number(raw))}


def curve_of(folder: Path, most: int) -> tuple[Curve, str]:
    """Return the training curve from about `most` rows, empty if nothing was logged, and its fault ("" for none)."""
    path = folder / "metrics.jsonl"
    if path.is_symlink() or not path.is_file():
        return NO_CURVE, "metrics.jsonl is not a regular file and is not read" if os.path.lexists(path) else ""
    try:
        curve = read_curve(path, most)
    except OSError as error:
        return NO_CURVE, f"metrics.jsonl cannot be read ({error.strerror})"
    lines = "line was" if curve.skipped == 1 else "lines were"
    return curve, f"{curve.skipped} unreadable {lines} left out of metrics.jsonl" if curve.skipped else ""


def scores_of(folder: Path, records: Records = NO_RECORDS, place: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each checked score and "", or {} and the fault: of the end, or of a `place` such as "points/00000100/"."""
    names: list[str] = []
    with contextlib.suppress(OSError):  # there is no folder
        names = sorted(name for name in os.listdir(folder / place / "scores") if name.endswith(".json"))
    for name in names:
        try:
            yield _score(content(folder, f"{place}scores/{name}", records)) | {"path": name}, ""
        except (OSError, ValueError) as error:
            yield {}, f"scores/{name} is left out: {error}"


def points_of(
    folder: Path, records: Records = NO_RECORDS
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], str]]:
    """Yield the facts of each point of a run, its scores, and its fault ("" for none)."""
    for path in sorted((folder / "points").glob("*/point.json"), key=lambda path: (len(path.parent.name), path)):
        place = f"points/{path.parent.name}"
        try:
            raw = content(folder, f"{place}/point.json", records)
        except (OSError, ValueError) as error:
            yield {}, [], f"{place} is left out: {error}"
            continue
        point = {"mark": str(raw.get("mark") or ""), "steps": number(raw.get("step"))}
        point |= {key: number(raw.get(key)) for key in ("tokens", "seconds")}
        point |= {f"flops_{c}": number(part(raw, "flops").get(c)) for c in CONVENTIONS}
        score_files = list(scores_of(folder, records, f"{place}/"))
        scores = [score | {"path": f"{place}/scores/{score['path']}"} for score, _ in score_files if score]
        yield point, scores, "; ".join(f"{place}/{fault}" for _, fault in score_files if fault)


def _score(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the checked fields of one score. Raises ValueError if a required one is missing."""
    words = {key: raw.get(key) for key in ("task", "suite", "metric")}
    if not all(isinstance(word, str) and word for word in words.values()) or not isinstance(raw.get("seed"), int):
        raise ValueError("a score needs task, suite, metric and seed")
    numbers = {key: number(raw.get(key)) for key in ("value", "seconds", "train_rows", "test_rows", "ties")}
    texts = {key: str(raw.get(key) or "") for key in ("digest", "data", "scorer")}
    splits = part(raw, "values")
    # A sign for each test item: "+" right, "-" wrong, "=" half. Minimal pairs for export keep those of every scorer.
    items = raw["items"] if "items" in raw else part(raw, "chosen").get(texts["scorer"])
    notes = raw.get("notes")
    return words | numbers | texts | {
        "seed": raw["seed"], "finetune": part(raw, "finetune"),
        "values": {str(s): {str(m): number(v) for m, v in part(splits, s).items()} for s in splits},
        "items": items if isinstance(items, str) and set(items) <= set("+-=") else "",
        "baselines": {str(name): number(value) for name, value in part(raw, "baselines").items()},
        "notes": [str(note) for note in notes] if isinstance(notes, list) else [],
    }  # fmt: skip


MOST_BINS = 120
MOST_ROWS = 20_000  # rows read from one file; of a longer one, every k-th row is read
MOST_IN_ALL = 120_000  # rows read from all files of a report together, but at least FEWEST_ROWS from each
FEWEST_ROWS = 16
END_ROWS = 8  # of a thinned curve, in the last tenth of the log, by which the end of training is judged
END_SHARE = 0.1
TYPICAL_ROW = 500  # bytes

LOGGED_FLOPS = {name: f"flops.{name}" for name in CONVENTIONS}
NUMBERS = (int, float)
LARGEST = sys.float_info.max
PEAK = "device_memory_bytes"  # the largest amount since the process began, so a mean over a resumption means nothing


@dataclass
class Bin:
    """Sums of the metrics logged in neighbouring steps, with a count for each, since some rows may lack a metric.

    `peak` is the largest value of the metric PEAK, 0 if no row has it.
    """

    first: float = math.inf
    last: int = 0
    rows: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    peak: float = 0.0

    def add(self, other: Bin) -> None:
        """Add the rows of another bin."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.rows += other.rows
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] += other.counts[name]
        self.peak = max(self.peak, other.peak)

    def row(self) -> dict[str, float]:
        """Return the mean of each metric over the rows that have it, the largest value of PEAK, and the steps."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        means |= {PEAK: self.peak} if PEAK in means else {}
        return means | {"first_step": self.first, "last_step": self.last, "rows": self.rows}


@dataclass(frozen=True)
class Curve:
    """A training curve as means over bins: `rows` of {"step", "first_step", "last_step", "rows", metric...}.

    `last` is the last row that was read. `skipped` counts unreadable lines, except the last line of the file: a killed
    run may leave it incomplete, which is not a fault.
    """

    rows: list[dict[str, float]]
    last: dict[str, float]
    skipped: int


NO_CURVE = Curve([], {}, 0)


def flat_row(row: Any) -> dict[str, float] | None:
    """Return the finite numbers of one logged row, FLOPs as `flops.<convention>`; None if it is not a row."""
    if not isinstance(row, dict):
        return None
    # A large report has millions of numbers, hence no call for each. Infinity, NaN and bool are dropped.
    numbers = {k: float(v) for k, v in row.items() if type(v) in NUMBERS and -LARGEST <= v <= LARGEST}
    if "step" not in numbers:
        return None
    flops = row.get("flops")
    if isinstance(flops, dict):
        for name, value in flops.items():
            if name in LOGGED_FLOPS and type(value) in NUMBERS and -LARGEST <= value <= LARGEST:
                numbers[LOGGED_FLOPS[name]] = float(value)
    return numbers


def rows_of_each(files: int) -> int:
    """Return how many rows of each log a report on so many runs reads."""
    return min(MOST_ROWS, max(FEWEST_ROWS, MOST_IN_ALL // max(1, files)))


def read_curve(path: Path, most: int = MOST_ROWS) -> Curve:
    """Return the curve of a metrics.jsonl file of any length, from about `most` of its rows.

    With fewer than MOST_BINS rows, the curve is thinned: END_ROWS of them are from the last tenth of the log, and the
    others are spread over all that comes before. Raises OSError if the file cannot be read.
    """
    every = max(1, math.ceil(path.stat().st_size / (most * TYPICAL_ROW)))
    if every > 1 and most < MOST_BINS:
        return _thinned(path, most)
    bins: dict[int, Bin] = {}
    width, skipped, last = 1, 0, {}
    bad_tail = False
    with path.open("rb") as file:
        for line in itertools.islice(lines_of(file), 0, None, every):
            skipped += bad_tail  # the bad line before was not the last one
            row = _parse(line)
            bad_tail = row is None
            if row is None:
                continue
            last, step = row, int(row["step"])
            one = Bin(step, step, 1, row, Counter(row.keys()), row.get(PEAK, 0.0))
            bins.setdefault(max(0, step - 1) // width, Bin()).add(one)
            while len(bins) > MOST_BINS:
                width *= 2
                halved: dict[int, Bin] = {}
                for key in sorted(bins):
                    halved.setdefault(key // 2, Bin()).add(bins[key])
                bins = halved
    return Curve([bins[key].row() for key in sorted(bins)], last, skipped)


def _thinned(path: Path, most: int) -> Curve:
    """Return a curve of single rows; only the lines at some places of the file are read."""
    size = path.stat().st_size
    end = int((1 - END_SHARE) * size)
    before = most - END_ROWS
    places = [end * number // before for number in range(before)]
    places += [end + (size - end) * number // END_ROWS for number in range(END_ROWS - 1)]
    lines = []
    with path.open("rb") as file:
        for place in places:  # the first line that begins there or later
            file.seek(max(0, place - 1))
            if place:
                file.readline(LONGEST_LINE)
            lines.append(file.readline(LONGEST_LINE))
        lines = [*(line for line in lines if line.endswith(b"\n")), *filter(None, [last_line(file)[0]])]
    parsed = [_parse(line) for line in lines]
    by_step = {int(row["step"]): row for row in parsed if row is not None}
    rows = [by_step[step] | {"first_step": step, "last_step": step, "rows": 1} for step in sorted(by_step)]
    last = by_step[max(by_step)] if by_step else {}
    return Curve(rows, last, sum(row is None for row in parsed))


def _parse(line: bytes) -> dict[str, float] | None:
    try:
        return flat_row(json.loads(line))
    except (ValueError, RecursionError):
        return None


STEP_COLUMNS = ("first_step", "last_step", "rows")  # integer columns, present in every row
STRETCH = ("run_id", "step", *STEP_COLUMNS)


Packed = tuple[tuple[str, ...], "npt.NDArray[np.float64]"]  # columns, and values (rows, columns), NaN for none


def packed(rows: Sequence[Mapping[str, float]]) -> Packed:
    """Return rows of numbers as their columns and an array, which takes an eighth of their memory."""
    import numpy as np

    names = tuple(dict.fromkeys(name for row in rows for name in row))
    return names, np.array([[row.get(name, math.nan) for name in names] for row in rows])


def curve_table(logged: Mapping[str, Packed]) -> pd.DataFrame:
    """Return the rows of all runs as one table, with a column for each metric that any run logged."""
    import pandas as pd

    if not logged:
        return pd.DataFrame(columns=list(STRETCH))
    tables = {run_id: pd.DataFrame(values, columns=list(names)) for run_id, (names, values) in logged.items()}
    table = pd.concat(tables, names=["run_id", None]).reset_index("run_id").reset_index(drop=True)
    return table.astype(dict.fromkeys(STEP_COLUMNS, "int64"))
