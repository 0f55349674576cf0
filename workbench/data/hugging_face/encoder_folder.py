"""Checks of a whole encoder folder: its settings, its weights, and whether their sizes agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.data.hugging_face.configuration import check_configuration, first_of, kind_of, layers_of
from workbench.data.hugging_face.entries import read_settings, regular_files
from workbench.data.hugging_face.weights import check_weights
from workbench.errors import InputError

WIDTHS = ("embedding_size", "hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim")
SHARED_LAYERS = ("albert",)  # all layers share the weights of one


@dataclass(frozen=True)
class EncoderFiles:
    """The checked files of an encoder: settings for a library, and files of weights by name.

    `elements` is the number of floating-point numbers in all weights. `whole_numbers` are the names of the integer
    tensors, such as tables of positions.
    """

    folder: Path
    config: Mapping[str, Any]
    weights: Mapping[str, Path]
    elements: int
    whole_numbers: frozenset[str]


def check_encoder_folder(folder: Path) -> EncoderFiles:
    """Return the files of an encoder after checks that it can be built. Only settings and headers are read.

    Raises InputError with one sentence that names the file and what is wrong with it.
    """
    files = regular_files(folder)
    if "config.json" not in files:
        raise InputError(f"{folder} holds no encoder: it has no config.json")
    raw = read_settings(folder, "config.json", files["config.json"])
    if raw.get("model_type") is None:
        raw["model_type"] = kind_of(raw, check_weights(folder, files)[1])
    config = check_configuration(folder, raw)
    weights, elements, whole_numbers = check_weights(folder, files)
    _check_fit(folder, config, elements)
    return EncoderFiles(folder, config, weights, sum(elements.values()), whole_numbers)


def _check_fit(folder: Path, config: Mapping[str, Any], elements: Mapping[str, int]) -> None:
    """Raise InputError if config.json describes a larger model than the weights, so that no such model is built."""
    layers, elements_held = layers_of(config), sum(elements.values())
    if layers and layers > len(elements) and config["model_type"] not in SHARED_LAYERS:
        raise InputError(
            f"{folder}: config.json has {layers} layers, and the weights have {len(elements)} tensors, fewer than "
            f"one for each layer"
        )
    width, vocab = min((config[key] for key in WIDTHS if config.get(key)), default=1), config.get("vocab_size") or 0
    positions = first_of(config, ("n_positions",)) or 0
    if width * max(vocab, positions) > elements_held:
        raise InputError(
            f"{folder}: config.json has a table of {max(vocab, positions):,} rows of width {width}, and all weights "
            f"together have {elements_held:,} numbers"
        )
