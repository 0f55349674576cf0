"""Sizes and limits of the encoder in a folder, from its settings alone, without loading weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.data import hugging_face
from workbench.errors import InputError
from workbench.tasks.finetuning.classifier import configured, reads_last, row_length

UNLIMITED = 1 << 30


@dataclass(frozen=True)
class EncoderFacts:
    """Sizes of an encoder, and how it reads texts.

    `longest` is the number of tokens that it can read, None if there is no limit. `reads_last` says that a text is
    read at its last token.
    """

    layers: int
    hidden: int
    longest: int | None
    reads_last: bool


def encoder_facts(folder: Path) -> EncoderFacts:
    """Return the facts of an encoder from config.json and its tokenizer. Raises InputError for a folder without one."""
    config = configured(hugging_face.check_encoder_folder(folder))
    layers, hidden = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    if not isinstance(layers, int) or not isinstance(hidden, int):
        raise InputError(
            f"{folder}: config.json lacks num_hidden_layers or hidden_size, the number and width of layers"
        )
    length = row_length(folder, config, UNLIMITED)
    return EncoderFacts(layers, hidden, None if length == UNLIMITED else length, reads_last(config))
