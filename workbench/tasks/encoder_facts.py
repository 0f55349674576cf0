"""What an encoder folder says of the encoder in it, before its weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.data import foreign
from workbench.errors import InputError
from workbench.tasks.finetuning.classifier import configured, reads_last, row_length

UNLIMITED = 1 << 30


@dataclass(frozen=True)
class EncoderFacts:
    """Sizes of an encoder; `longest` is how many tokens of a text it can read, None without a limit."""

    layers: int
    hidden: int
    longest: int | None
    reads_last: bool


def encoder_facts(folder: Path) -> EncoderFacts:
    """Read config.json and the tokenizer's settings. Raises InputError for a folder without an encoder."""
    config = configured(foreign.check_encoder_folder(folder))
    layers, hidden = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    if not isinstance(layers, int) or not isinstance(hidden, int):
        raise InputError(f"{folder}: config.json does not say how many layers the encoder has, or how wide they are")
    length = row_length(folder, config, UNLIMITED)
    return EncoderFacts(layers, hidden, None if length == UNLIMITED else length, reads_last(config))
