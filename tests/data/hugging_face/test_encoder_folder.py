"""A whole encoder folder: its settings describe no more than its weights hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refused
from safetensors.numpy import save

from workbench.data.hugging_face.checks import check_encoder_folder

SIZES: dict[str, Any] = {"model_type": "bert", "hidden_size": 4, "num_hidden_layers": 3, "vocab_size": 10}
# 40 + 12 + 8 = 60 fractions in three tensors, and one tensor of whole numbers
TENSORS = {
    "words": np.ones((10, 4), "f"), "first": np.ones((3, 4), "e"), "second": np.ones(8, "d"), "ids": np.arange(9),
}  # fmt: skip


def encoder(folder: Path, **changes: Any) -> Path:
    """Write an encoder with these changes of its settings; those of None are left out."""
    settings = {key: value for key, value in (SIZES | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(save(TENSORS))
    return folder


def refusal(folder: Path) -> str:
    return refused.refusal(folder, lambda: check_encoder_folder(folder))


def test_what_is_found_is_told(tmp_path: Path) -> None:
    found = check_encoder_folder(encoder(tmp_path, torch_dtype="float16"))
    assert found.folder == tmp_path and found.config == SIZES
    assert found.weights == {"model.safetensors": tmp_path.resolve() / "model.safetensors"}
    assert found.elements == 60 and found.whole_numbers == {"ids"}


def test_layers_are_as_many_as_tensors_of_fractions_at_most(tmp_path: Path) -> None:
    assert check_encoder_folder(encoder(tmp_path, num_hidden_layers=3))
    assert check_encoder_folder(encoder(tmp_path, num_hidden_layers=None))
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        said = refusal(encoder(tmp_path, **{"num_hidden_layers": None, key: 4}))
        assert " 4 " in said and " 3 " in said
    albert = encoder(tmp_path, model_type="albert", num_hidden_layers=12)  # whose layers share their weights
    assert check_encoder_folder(albert)


@pytest.mark.parametrize(
    ("fits", "exceeds"),
    [
        ({"vocab_size": 15}, {"vocab_size": 16}),
        ({"embedding_size": 2, "vocab_size": 30}, {"embedding_size": 2, "vocab_size": 31}),
        ({"n_positions": 15}, {"n_positions": 16}),
        ({"vocab_size": None, "n_positions": 15}, {"vocab_size": None, "n_positions": 16}),
        ({"hidden_size": 60, "vocab_size": 1}, {"hidden_size": 61, "vocab_size": 1}),
        ({"hidden_size": 10**6, "vocab_size": None}, {"hidden_size": 10**6, "vocab_size": 1}),
        ({"hidden_size": None, "vocab_size": 60}, {"hidden_size": None, "vocab_size": 61}),
    ],
)
def test_no_table_is_larger_than_all_weights_together(
    tmp_path: Path, fits: dict[str, Any], exceeds: dict[str, Any]
) -> None:
    """60 numbers, as rows of the smallest width that the settings name, for tokens or for positions."""
    assert check_encoder_folder(encoder(tmp_path, **fits)).elements == 60
    assert " 60 " in refusal(encoder(tmp_path, **exceeds))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_lacks_neither_settings_nor_weights(tmp_path: Path, name: str) -> None:
    (encoder(tmp_path) / name).unlink()
    assert name in refusal(tmp_path)
    (tmp_path / name).mkdir()
    assert name in refusal(tmp_path)


def test_settings_are_checked_before_weights_are_opened(tmp_path: Path) -> None:
    (encoder(tmp_path, hidden_size=-1) / "model.safetensors").write_text("no weights")
    assert "hidden_size=-1" in refusal(tmp_path)
