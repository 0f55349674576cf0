"""A whole encoder folder: settings, weights and their sizes against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.data.foreign.configuration import check_configuration, first_of, layers_of
from workbench.data.foreign.entries import read_settings, regular_files
from workbench.data.foreign.weights import check_weights
from workbench.errors import InputError

WIDTHS = ("embedding_size", "hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim")
SHARED_LAYERS = ("albert",)  # one layer's weights stand for all


@dataclass(frozen=True)
class EncoderFiles:
    """What was found: settings for a library, files of weights by name, and how many fractions they hold.

    `whole_numbers` are the names of the tensors that hold no fractions, such as tables of positions.
    """

    folder: Path
    config: Mapping[str, Any]
    weights: Mapping[str, Path]
    elements: int
    whole_numbers: frozenset[str]


def check_encoder_folder(folder: Path) -> EncoderFiles:
    """Check that a folder holds an encoder that can be built, without opening more than settings and headers.

    Raises InputError, with one sentence that names the file and what is wrong with it.
    """
    files = regular_files(folder)
    if "config.json" not in files:
        raise InputError(f"{folder} holds no encoder: it has no config.json")
    config = check_configuration(folder, read_settings(folder, "config.json", files["config.json"]))
    weights, elements, whole_numbers = check_weights(folder, files)
    _check_fit(folder, config, elements)
    return EncoderFiles(folder, config, weights, sum(elements.values()), whole_numbers)


def _check_fit(folder: Path, config: Mapping[str, Any], elements: Mapping[str, int]) -> None:
    """Raises InputError where config.json describes more than the weights can hold: nothing of that size is built."""
    layers, held = layers_of(config), sum(elements.values())
    if layers and layers > len(elements) and config["model_type"] not in SHARED_LAYERS:
        raise InputError(
            f"{folder}: config.json asks for {layers} layers, and the weights are {len(elements)} tensors, fewer than "
            f"one for each layer"
        )
    width, vocab = min((config[key] for key in WIDTHS if config.get(key)), default=1), config.get("vocab_size") or 0
    positions = first_of(config, ("n_positions",)) or 0
    if width * max(vocab, positions) > held:
        raise InputError(
            f"{folder}: config.json has tables of {max(vocab, positions):,} rows of {width}, and all the weights "
            f"together are {held:,} numbers"
        )
