"""Reading of one run directory whose files may be missing, incomplete or of the wrong type.

Faults are returned as sentences. `records` are the JSON files that a check of the run has read, by name; a file that
is not among them is read here.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.report.load import training_curves
from workbench.spec.parts import CONVENTIONS, UNITS, DataSpec
from workbench.spec.words_seen import epochs_of_words, words_of_tokens
from workbench.store.atomic import read_object
from workbench.store.redact import redact_addresses
from workbench.store.run_store import RunDir, RunStore, of_each

Records = Mapping[str, dict[str, Any]]
NONE: Records = {}
END = "end"  # the mark of the last point of a run, the end of training
NO_CURVE = training_curves.Curve([], {}, 1, 1, 0)
AT_A_TIME = 64  # runs
FINISHED = ("trained", "done")  # states of a run whose pre-training is over, so that its encoder may be scored


def optional(path: Path, records: Records = NONE) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty dictionary if it is missing or damaged."""
    try:
        return content(path.parent, path.name, records)
    except (OSError, ValueError):
        return {}


def content(folder: Path, name: str, records: Records = NONE) -> dict[str, Any]:
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
    """What a report has read of one run: its state with a remark, its JSON files by name, and its training curve."""

    run_id: str
    state: str
    note: str
    records: Records
    curve: training_curves.Curve
    fault: str  # of the curve


def every_run(store: RunStore, run_ids: Iterable[str], verify: bool, most_rows: int = 0) -> Iterator[RunFiles]:
    """Yield the files of each of these runs that exists, in order; with `verify`, each is compared with its hash.

    About `most_rows` rows of each log are read. Several runs are read at the same time, and few are in memory.
    """
    runs = (RunDir(store.root / run_id) for run_id in run_ids)
    existing = (run for run in runs if os.path.lexists(run.path))
    read = partial(_files, verify=verify, most_rows=most_rows)
    while some := list(itertools.islice(existing, AT_A_TIME)):
        yield from of_each(read, some)


def _files(run: RunDir, verify: bool, most_rows: int) -> RunFiles:
    """Return the files of a run, which may change while they are read."""
    try:
        state, note, records = run.examine(verify)
    except (InputError, OSError) as error:
        state, note, records = "damaged", str(error), {}
    curve, fault = curve_of(run.path, most_rows) if most_rows and state != "damaged" else (NO_CURVE, "")
    return RunFiles(run.run_id, state, note, records, curve, fault)


def spec_of(folder: Path, records: Records = NONE) -> tuple[dict[str, Any], str]:
    """Return the run's spec as plain data, and the digest of its identity. Raises ValueError if it cannot be used."""
    try:
        raw = content(folder, "spec.json", records)
    except OSError:
        raise ValueError("spec.json cannot be read") from None
    spec = part(raw, "spec")
    budget = part(spec, "budget")
    given = [k for k in UNITS if not math.isnan(number(budget.get(k)))]
    if len(given) != 1 or not isinstance(spec.get("seed"), int):
        raise ValueError("spec.json holds no usable spec")
    return spec, str(raw.get("identity_sha") or "")


def totals(folder: Path, last: Mapping[str, float], records: Records = NONE) -> dict[str, float]:
    """Return steps, tokens, seconds and FLOPs spent: from done.json, or from the last logged row of an unfinished run.

    Raises ValueError if done.json exists and is damaged.
    """
    try:
        done = content(folder, "done.json", records)
    except FileNotFoundError:
        spent = {k: last.get(k, math.nan) for k in ("steps", "tokens", "seconds")}
        flops = {f"flops_{c}": last.get(f"flops.{c}", math.nan) for c in CONVENTIONS}
        return spent | flops | {"steps": last.get("step", math.nan)}
    recorded = {k: number(done.get(k)) for k in ("steps", "tokens", "seconds")}
    recorded |= {f"flops_{c}": number(part(done, "flops").get(c)) for c in CONVENTIONS}
    missing = [k for k, v in recorded.items() if math.isnan(v)]
    if missing:
        raise ValueError(f"done.json has no usable {', '.join(missing)}")
    return recorded


def seen(spec: Mapping[str, Any], tokens: float) -> dict[str, float]:
    """Return how many words `tokens` tokens of a run's text contain, rounded, and how many epochs of the text they are.

    Both are NaN if the words of the text were not counted.
    """
    try:
        data = DataSpec.model_validate(part(spec, "data"))
        words = words_of_tokens(tokens, data)
    except ValueError:  # also for NaN tokens
        return {"words": math.nan, "epochs": math.nan}
    return {"words": float(round(words)), "epochs": epochs_of_words(words, data)}


def floors(folder: Path, records: Records = NONE) -> dict[str, float]:
    """Return the value of each loss that token frequencies alone reach, if a trained run recorded it."""
    recorded = part(optional(folder / "done.json", records), "floors")
    return {metric: value for metric, raw in recorded.items() if not math.isnan(value := number(raw))}


def curve_of(folder: Path, most: int) -> tuple[training_curves.Curve, str]:
    """Return the training curve from about `most` rows, empty if nothing was logged, and its fault ("" for none)."""
    path = folder / "metrics.jsonl"
    if path.is_symlink() or not path.is_file():
        return NO_CURVE, "metrics.jsonl is not a regular file and is not read" if os.path.lexists(path) else ""
    try:
        curve = training_curves.read(path, most)
    except OSError as error:
        return NO_CURVE, f"metrics.jsonl cannot be read ({error.strerror})"
    lines = "line was" if curve.skipped == 1 else "lines were"
    return curve, f"{curve.skipped} unreadable {lines} left out of metrics.jsonl" if curve.skipped else ""


def scores_of(folder: Path, records: Records = NONE, place: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each score file as a checked mapping and "", or an empty mapping and the fault.

    They are those of the end of training, or of the point at `place`, such as "points/00000100/".
    """
    for name in _json_names(folder / place / "scores"):
        try:
            yield _score(content(folder, f"{place}scores/{name}", records)) | {"path": name}, ""
        except (OSError, ValueError) as error:
            yield {}, f"scores/{name} is left out: {error}"


def _json_names(folder: Path) -> list[str]:
    """Return the names of the JSON files in a folder, sorted; none if there is no folder."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return []


def points_of(folder: Path, records: Records = NONE) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], str]]:
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
    words = {k: raw.get(k) for k in ("task", "suite", "metric")}
    if not all(isinstance(word, str) and word for word in words.values()) or not isinstance(raw.get("seed"), int):
        raise ValueError("a score needs task, suite, metric and seed")
    numbers = {k: number(raw.get(k)) for k in ("value", "seconds", "train_rows", "test_rows", "ties")}
    values = {str(s): {str(m): number(v) for m, v in part(part(raw, "values"), s).items()} for s in part(raw, "values")}
    baselines = {str(k): number(v) for k, v in part(raw, "baselines").items()}
    settings = {k: part(raw, "finetune").get(k) for k in part(raw, "finetune")}
    notes = raw.get("notes") if isinstance(raw.get("notes"), list) else []
    return words | numbers | {"seed": raw["seed"], "digest": str(raw.get("digest") or ""), "values": values,
                              "data": str(raw.get("data") or ""),
                              "scorer": str(raw.get("scorer") or ""), "items": _items(raw),
                              "baselines": baselines, "finetune": settings,
                              "notes": [str(note) for note in notes or ()]}  # fmt: skip


def _items(raw: Mapping[str, Any]) -> str:
    """Return a sign for each test item of a score, in order: "+" right, "-" wrong, "=" half; "" if they were not kept.

    Scores of minimal pairs that can be exported keep the signs of every scorer.
    """
    items = raw["items"] if "items" in raw else part(raw, "chosen").get(str(raw.get("scorer")))
    return items if isinstance(items, str) and set(items) <= set("+-=") else ""
