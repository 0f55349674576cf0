"""The lists of `workbench list`: the names that options take, also for the completion of a shell."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from workbench.options import text_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

WORDS = {
    int: "whole number", float: "number", str: "text", bool: "true or false", tuple: "list, separated by commas",
    dict: "keys and values", NoneType: "unset",
}  # fmt: skip


Rows = list[dict[str, Any]]


def plug_rows(package: str) -> Rows:
    """Return a row for each plug-in in the `PLUGS` of a package."""
    return [asdict(each) for each in import_module(package).PLUGS.listing()]


def scale_rows() -> Rows:
    from workbench.spec.presets import OBJECTIVES, PUBLISHED, SCALES, resolve

    rows = []
    for name in SCALES | PUBLISHED:
        spec = resolve(name)
        rows.append({
            "name": name, "layers": spec.encoder.layers, "hidden": spec.encoder.hidden,
            "embedding": spec.encoder.embedding_width, "heads": spec.encoder.head_count, "vocab": spec.encoder.vocab,
            "generator": round(spec.generator.width, 4), "length": spec.data.length, "batch": spec.batch.size,
            "lr": spec.optim.lr, "mask": spec.corruption.rate, "budget": f"{spec.budget.unit}={spec.budget.amount:g}",
            "fine-tuning lr": spec.tasks.lr, "layer decay": spec.tasks.layer_decay,
            "of objectives": "; ".join(
                f"{objective}: {', '.join(f'{key}={value:g}' for key, value in own.items())}"
                for objective, own in OBJECTIVES.get(name, {}).items()
            ),
        })  # fmt: skip
    return rows


CORPORA = {
    "docs": "docstrings and the language reference of Python on this machine; nothing is downloaded",
    "python-code": "source code: the Python files of the packages on this machine",
    "FILE|FOLDER|GLOB": ".txt, .jsonl, .json, .parquet, .csv, BabyLM's .train, each plain or .gz, .xz, .zst, .bz2",
    "OWNER/NAME": "a Hugging Face dataset, streamed; --set data.revision=... pins it",
}


def tracker_rows() -> Rows:
    """Return the rows of `workbench list trackers`; a built-in one says whether its package is installed."""
    from workbench.trackers import installed

    return [row | {"installed": installed(row["name"])} for row in plug_rows("workbench.trackers")]


def experiment_rows() -> Rows:
    from workbench.spec import experiment

    return [{"name": name, "question": question, "source": path} for name, question, path in experiment.listing()]


BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def _takes(field: FieldInfo) -> str:
    """Return which values a field of the spec takes, in words."""
    kinds: list[str] = []
    bounds: list[Any] = []

    def read(kind: Any) -> None:
        """Collect the kinds and bounds of a type, also within Annotated and unions."""
        for each in getattr(kind, "__metadata__", ()):
            bounds.extend(getattr(each, "metadata", ()) or [each])
        kind = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
        if get_origin(kind) is Literal:
            kinds.append(", ".join(map(str, get_args(kind))))
        elif get_origin(kind) in (Union, UnionType):
            for each in get_args(kind):
                read(each)
        else:
            kinds.append(WORDS.get(get_origin(kind) or kind, "text"))

    read(field.annotation)
    limits = [
        f"{word} {value:,.12g}" for each in (*bounds, *field.metadata) for name, word in BOUNDS.items()
        if isinstance(value := getattr(each, name, None), int | float) and abs(value) < 1e9
    ]  # fmt: skip
    return " or ".join(dict.fromkeys(kind for kind in kinds if kind)) + (f", {', '.join(limits)}" if limits else "")


def meanings(part: type) -> dict[str, str]:
    """Return the comment `#: ...` of each field of a class, which stands behind the field or above it."""
    comments, above = dict[str, str](), list[str]()
    for line in inspect.getsource(part).splitlines():
        if comment := re.fullmatch(r"    #: (.+)", line):
            above.append(comment[1])
        elif field := re.fullmatch(r"    (\w+): .*?(?:  #: (.+))?", line):
            comments[field[1]] = " ".join([*above, field[2] or ""]).strip()
            above.clear()
    return comments


def key_rows() -> Rows:
    """Return the rows of `workbench list keys`: what --set takes, with defaults at the scale nano."""
    from workbench.spec.presets import resolve
    from workbench.spec.run_spec import SPELLINGS, flat, part_of, settable_keys

    values = flat(resolve("nano").model_dump(mode="json"))
    rows = []
    for key in settable_keys():
        part, name = part_of(SPELLINGS.get(key, key))
        takes, meaning = _takes(part.model_fields[name]), meanings(part).get(name, "")
        rows.append({"key": key, "default": text_of(values.get(key)), "takes": takes, "meaning": meaning})
    return rows


LISTS: dict[str, Callable[[], Rows]] = {
    "objectives": partial(plug_rows, "workbench.objectives"),
    "scales": scale_rows,
    "corpora": lambda: [{"name": name, "summary": summary} for name, summary in CORPORA.items()],
    "tasks": lambda: list(import_module("workbench.tasks").known()),
    "trackers": tracker_rows,
    "encoders": partial(plug_rows, "workbench.models.families"),
    "experiments": experiment_rows,
    "keys": key_rows,
    "published": lambda: [model.row() for model in import_module("workbench.data.hugging_face").PUBLISHED],
}


def values_of(key: str) -> list[str]:
    """Return the values of a key of --set that can be listed, for the completion of a shell."""
    from workbench.models.families import PLUGS
    from workbench.spec.run_spec import part_of

    if key == "encoder.family":
        return [*PLUGS.built_in, *PLUGS.installed()]
    part, name = part_of(key)
    field = part.model_fields.get(name)
    kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
    choices = [str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    return choices or (["true", "false"] if bool in kinds else [])


def names_in(name: str, store: Path) -> list[str]:
    """Return the names of a list for the completion of a shell; `runs` and `records` are of a store."""
    if name == "runs":
        return sorted(place.parent.name for place in store.glob("*/spec.json"))
    if name == "records":
        records = sorted(place.stem for place in store.glob("experiments/*.json"))
        named = (row["name"] for row in experiment_rows())
        return [name for name in named if any(record.startswith(f"{name}-") for record in records)] + records
    if name == "keys":
        from workbench.spec.run_spec import settable_keys

        return [f"{key}=" for key in settable_keys()]
    names = [str(row["name"]) for row in LISTS[name]()]
    return [each for each in names if not (each.isupper() and set("|/") & set(each))]  # FILE|FOLDER is no name
