"""Sizes and limits of the encoder in a folder, from its settings alone, without loading weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from workbench.data import hugging_face
from workbench.errors import InputError
from workbench.models.export import ORIGIN
from workbench.spec.parts import TUNING_FIELDS, TasksSpec
from workbench.tasks.finetuning.classifier import configured, reads_last, row_length

UNLIMITED = 1 << 30
SHORTEST_ROW = 8  # tokens, as `DataSpec.length` allows


@dataclass(frozen=True)
class Origin:
    """How the run of an encoder measures it (`models.export.add_origin`).

    `row_length` are the tokens of a row of pre-training, `scale` is the scale of the run, and `tasks` are its settings
    of fine-tuning.
    """

    row_length: int
    scale: str
    tasks: Mapping[str, Any]


@dataclass(frozen=True)
class EncoderFacts:
    """Sizes of an encoder, and how it reads texts.

    `longest` is the number of tokens that it can read, None if there is no limit. `reads_last` says that a text is
    read at its last token. `origin` is what its run says about measuring it, None of a model that others trained.
    """

    layers: int
    hidden: int
    longest: int | None
    reads_last: bool
    origin: Origin | None = None


def encoder_facts(folder: Path) -> EncoderFacts:
    """Return the facts of an encoder from config.json and its tokenizer. Raises InputError for a folder without one."""
    files = hugging_face.check_encoder_folder(folder)
    config = configured(files)
    layers, hidden = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    if not isinstance(layers, int) or not isinstance(hidden, int):
        raise InputError(
            f"{folder}: config.json lacks num_hidden_layers or hidden_size, the number and width of layers"
        )
    length = row_length(folder, config, UNLIMITED)
    longest = None if length == UNLIMITED else length
    return EncoderFacts(layers, hidden, longest, reads_last(config), origin_of(files))


def origin_of(files: hugging_face.EncoderFiles) -> Origin | None:
    """Return what an encoder's run says about measuring it. Raises InputError for an entry that no run wrote."""
    raw = files.config.get(ORIGIN)
    if raw is None:
        return None
    try:
        origin = TypeAdapter(Origin).validate_python(raw)
        tasks = TasksSpec.model_validate(dict(origin.tasks)).model_dump(include={*TUNING_FIELDS})
        if tasks.keys() != origin.tasks.keys() or origin.row_length < SHORTEST_ROW:
            raise ValueError
    except ValueError:
        raise InputError(
            f"{files.folder}: the entry {ORIGIN!r} of config.json is not one that a run wrote; remove it from the file"
        ) from None
    return replace(origin, tasks=tasks)
