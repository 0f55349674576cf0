"""Encoder folders that others made, as commands meet them; `test_model_files` and others have every fault by kind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refused import refused_sentence
from safetensors.torch import load_file, save_file

from workbench.data import tokenizer
from workbench.data.hugging_face import check_encoder_folder, check_tokenizer_folder
from workbench.encoders.electra import Config, Electra, to_hub
from workbench.spec.host import Host
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.token_rows import encode

Change = Callable[[Path], object]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TASK = Task(
    "toy", "table", ("a", "b"), "accuracy", ("accuracy",), 0.1, Examples(["bada kego"] * 8, None, [0, 1] * 4),
    {"dev": Examples(["kego"] * 4, None, [0, 1] * 2)},
)  # fmt: skip


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained encoder with a tokenizer, in which nothing is wrong."""
    folder = tmp_path_factory.mktemp("sound")
    words = [f"{a}{b}" for a in ("ba", "ke", "lo") for b in ("da", "go", "ni")]
    trained = tokenizer.train([" ".join(words)] * 20, 60)
    tokenizer.save(trained, folder, True)
    sizes: dict[str, Any] = {"vocab_size": tokenizer.size(trained), "hidden_size": 16, "embedding_size": 8}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Electra(Config(**sizes, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                               max_position_embeddings=24))  # fmt: skip
    to_hub(model, model.state_dict(), folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "encoder"))


def test_a_sound_folder_is_described_and_loaded(folder: Path) -> None:
    found = check_encoder_folder(folder)
    assert found.config["hidden_size"] == 16 and list(found.weights) == [WEIGHTS]
    assert found.elements == sum(p.numel() for p in load_encoder(folder, 0.0).parameters())
    assert {"tokenizer.json", "tokenizer_config.json", "vocab.txt"} == check_tokenizer_folder(folder).keys()
    assert np.isfinite(take(TASK, Model(folder, TasksSpec(length=16), 0), Host(device="cpu")).value)


def settings(**changes: Any) -> Change:
    return lambda folder: edit(folder / "config.json", changes)


def tokens(**changes: Any) -> Change:
    return lambda folder: edit(folder / "tokenizer_config.json", changes)


def edit(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weights(changes: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def change(folder: Path) -> None:
        held = load_file(folder / WEIGHTS)
        changes(held)
        save_file(held, folder / WEIGHTS, {"format": "pt"})

    return change


POSITIONS = "embeddings.position_embeddings.weight"


def poison(value: float) -> Change:
    return weights(lambda held: held[next(iter(sorted(held)))].view(-1)[:1].fill_(value))


UNUSABLE: dict[str, tuple[Change, str]] = {
    "a weight of NaN": (poison(float("nan")), "NaN or infinite"),
    "a weight of infinity": (poison(float("inf")), "NaN or infinite"),
    "weights of another width": (
        settings(intermediate_size=48),
        "layer.0.intermediate.dense.bias has the shape (32,), and config.json describes (48,)",
    ),
    "a layer that lacks": (settings(num_hidden_layers=3), "lacks 16 of the encoder's weights, encoder.layer.2."),
    "weights of whole numbers": (
        weights(lambda held: held.update({name: w.to(torch.int8) for name, w in held.items()})),
        "has 2 layers, and the weights have 0 tensors",
    ),
    "one weight of whole numbers": (
        weights(lambda held: held.update({POSITIONS: held[POSITIONS].to(torch.int32)})),
        f"{POSITIONS} holds whole numbers",
    ),
    "an activation that is none": (settings(hidden_act="os.system"), "it names 'os.system', which is unknown"),
    "a rate that is a word": (settings(layer_norm_eps="small"), "cannot be loaded as an encoder"),
    "a deviation that is a word": (
        settings(hidden_act="gelu_new", initializer_range="small"),  # which is the library's to load
        "field 'initializer_range': TypeError: ",
    ),
    "wider than its weights": (settings(intermediate_size=1 << 20), "describes an encoder of"),
    "a segment table that is empty": (settings(type_vocab_size=0), "token_type_embeddings.weight has the shape (2, 8)"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_weights_that_cannot_be_computed_with_are_refused_in_one_sentence(case: str, folder: Path) -> None:
    change, told = UNUSABLE[case]
    change(folder)
    said = refused_sentence(lambda: load_encoder(folder, 0.0))
    assert told in said and str(folder) in said


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"model": {"type": "X", "vocab": {"a": 0}}}, "no tokenizer"),
        ({"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}}, "no tokenizer that can"),
        ({"model": {"vocab": {}}}, "no tokenizer that can"),
        ({"added_tokens": 3}, "no tokenizer that can"),
        (
            {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "a"}, "added_tokens": []},
            "holds no tokens besides special ones",
        ),
    ],
)
def test_a_bad_tokenizer_is_refused_wherever_it_is_named(
    content: dict[str, Any], told: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(content))
    spec = DataSpec(tokenizer=str(folder))
    for attempt in (lambda: encode(folder, TASK, 16), lambda: tokenizer.train_or_load(spec, 0, [], cache=tmp_path)):
        said = refused_sentence(attempt)
        assert told in said and str(folder) in said


def test_a_tokenizer_that_panics_leaves_nothing_but_a_sentence(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    edit(folder / "tokenizer.json", {"pre_tokenizer": split})
    rows = Examples(["a" * 40 + "!"] * 4, None, [0, 1] * 2)
    said = refused_sentence(lambda: encode(folder, replace(TASK, train=rows), 16))
    assert "cannot encode these texts" in said and "retry-limit" in said and str(folder) in said
    assert capfd.readouterr().err == ""


def test_ids_beyond_the_vocabulary_are_refused_before_training(folder: Path) -> None:
    name = "embeddings.word_embeddings.weight"
    weights(lambda held: held.update({name: held[name][:6].clone()}))(folder)
    settings(vocab_size=6)(folder)
    said = refused_sentence(lambda: take(TASK, Model(folder, TasksSpec(), 0), Host(device="cpu")))
    assert "the encoder has ids 0 to 5" in said


def test_padding_beyond_the_vocabulary_is_refused_before_training(folder: Path) -> None:
    tokens(pad_token="<new>")(folder)
    rows = load_encoder(folder, 0.0).get_input_embeddings().num_embeddings
    said = refused_sentence(lambda: take(TASK, Model(folder, TasksSpec(), 0), Host(device="cpu")))
    assert f"gives the id {rows}, and the encoder has ids 0 to {rows - 1}" in said


def test_tables_of_whole_numbers_beside_the_weights_are_passed_over(folder: Path) -> None:
    weights(lambda held: held.update({"embeddings.position_ids": torch.arange(24)[None]}))(folder)
    assert load_encoder(folder, 0.0)


def test_a_library_sees_checked_files_only(folder: Path) -> None:
    """What else lies in the folder is never looked at: adapters, templates, other weights, paths in settings."""
    expected = load_encoder(folder, 0.0).get_input_embeddings().weight
    settings(hidden_act="gelu_new")(folder)  # which is the library's to load
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "owner/name"}))
    (folder / "pytorch_model.bin").write_bytes(b"no pickle")
    (folder / "chat_template.jinja").write_text("{{ 1 / 0 }}")
    tokens(vocab_file="/dev/zero", tokenizer_file="/dev/zero", chat_template="{{ 1 / 0 }}")(folder)
    assert torch.equal(load_encoder(folder, 0.0).get_input_embeddings().weight, expected)
    assert len(encode(folder, TASK, 16)["train"]) == 8


def test_shards_and_the_layout_of_the_hub_s_cache_are_read(folder: Path, tmp_path: Path) -> None:
    expected = load_encoder(folder, 0.0).get_input_embeddings().weight
    shard = "model-00001-of-00001.safetensors"
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(load_file(folder / WEIGHTS), shard)}))
    (folder / WEIGHTS).rename(folder / shard)
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "0123"
    blobs = snapshot.parents[1] / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.copyfile(path, blobs / str(number))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    assert torch.equal(load_encoder(snapshot, 0.0).get_input_embeddings().weight, expected)
