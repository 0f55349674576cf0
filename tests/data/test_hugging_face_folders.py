"""Encoder folders that others made, as commands meet them; `tests/data/hugging_face` has every fault by its kind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
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
from workbench.tasks.common import token_rows
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


def written(name: str, content: str | bytes, size: int = 0) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        os.truncate(path, size) if size else None

    return change


def header(changes: Callable[[dict[str, Any]], object], tail: int | None = None) -> Change:
    """The header of the weights rewritten; with `tail`, only so many bytes of data after it."""

    def change(folder: Path) -> None:
        data = (folder / WEIGHTS).read_bytes()
        length = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8 : 8 + length])
        changes(entries)
        text = json.dumps(entries).encode()
        rest = data[8 + length :]
        (folder / WEIGHTS).write_bytes(
            len(text).to_bytes(8, "little") + text + rest[: len(rest) if tail is None else tail]
        )

    return change


def weights(changes: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def change(folder: Path) -> None:
        held = load_file(folder / WEIGHTS)
        changes(held)
        save_file(held, folder / WEIGHTS, {"format": "pt"})

    return change


def normalised(*steps: dict[str, Any]) -> Change:
    """The tokenizer of the folder, with these steps one after the other as its normaliser."""

    def change(folder: Path) -> None:
        raw = json.loads((folder / "tokenizer.json").read_text())
        raw["normalizer"] = {"type": "Sequence", "normalizers": list(steps)}
        (folder / "tokenizer.json").write_text(json.dumps(raw))

    return change


def writes(letters: int) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * letters}


def index(place: str) -> Change:
    """Shards: the weights of every tensor are said to lie in `place`; what is there is a copy of them."""

    def change(folder: Path) -> None:
        names = list(load_file(folder / WEIGHTS))
        target = folder / place
        if not target.exists() and target.parent.is_dir():
            shutil.copyfile(folder / WEIGHTS, target)
        (folder / WEIGHTS).unlink()
        (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, place)}))

    return change


def replaced(name: str, make: Callable[[Path], object]) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/{path.name}")  # a socket's own path is short
        finally:
            os.close(here)


def first(entries: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for name, entry in entries.items() if name != "__metadata__")
    return found


BAD: dict[str, tuple[Change, str]] = {
    "no config.json": (lambda f: (f / "config.json").unlink(), "it has no config.json"),
    "config.json is huge": (written("config.json", "{", 100 << 20), "config.json cannot be read: has 104857600 bytes"),
    "relative positions": (settings(position_embedding_type="relative_key_query"), "no longer computed"),
    "an epsilon below 0": (settings(layer_norm_eps=-1.0), "layer_norm_eps=-1.0, and it must be above 0 and at most 1"),
    "an epsilon of 0": (settings(layer_norm_eps=0), "layer_norm_eps=0, and it must be above 0"),
    "config.json holds infinity": (written("config.json", '{"layer_norm_eps": 1e999}'), "a number too large"),
    "no kind": (settings(model_type=None, architectures=["Mine"]), "model_type None"),
    "weights are a socket": (replaced(WEIGHTS, listening), f"{WEIGHTS} is not a regular file"),
    "weights are a device": (replaced(WEIGHTS, lambda p: p.symlink_to("/dev/zero")), "not a regular file"),
    "weights of a terabyte of holes": (lambda f: os.truncate(f / WEIGHTS, 1 << 40), "truncated"),
    "a header of 10^18 bytes": (written(WEIGHTS, (10**18).to_bytes(8, "little") + b"{}"), "has no header"),
    "a shape of 10^9 x 10^9": (header(lambda h: first(h).update(shape=[10**9, 10**9])), "does not fit into its bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_encoder_folder_is_refused_in_one_sentence(case: str, folder: Path) -> None:
    change, told = BAD[case]
    change(folder)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = refused_sentence(lambda: check_encoder_folder(folder))
    assert told in said and str(folder) in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200 << 10


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


TOKENIZERS: dict[str, tuple[Change, str]] = {
    "none": (lambda f: [(f / n).unlink() for n in ("tokenizer.json", "vocab.txt")], "holds no tokenizer"),
    "too deep": (written("tokenizer.json", "[" * 200_000), "nested too deep"),
    "an unknown kind": (written("tokenizer.json", '{"model": {"type": "X", "vocab": {"a": 0}}}'), "no tokenizer"),
    "negative ids": (written("tokenizer.json",
                             '{"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}}'),
                     "no tokenizer that can"),
    "letters that become many in steps": (normalised(*[writes(10)] * 9), "may write 1e+09 characters for one"),
    "code of its own": (tokens(auto_map={"AutoTokenizer": ["mine.Mine", None]}), "code of its own (auto_map)"),
}  # fmt: skip


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_bad_tokenizer_is_refused_wherever_it_is_named(case: str, folder: Path, tmp_path: Path) -> None:
    change, told = TOKENIZERS[case]
    change(folder)
    spec = DataSpec(tokenizer=str(folder))
    for attempt in (lambda: encode(folder, TASK, 16), lambda: tokenizer.train_or_load(spec, 0, [], cache=tmp_path)):
        said = refused_sentence(attempt)
        assert told in said and str(folder) in said


def test_a_normaliser_that_writes_as_much_as_is_allowed_is_used(folder: Path) -> None:
    normalised({"type": "Lowercase"}, writes(100))(folder)
    assert encode(folder, TASK, 16)


def split_by(pattern: str) -> Change:
    """A tokenizer whose regular expression is this one."""

    def change(folder: Path) -> None:
        raw = json.loads((folder / "tokenizer.json").read_text())
        raw["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        (folder / "tokenizer.json").write_text(json.dumps(raw))

    return change


def test_a_tokenizer_that_panics_leaves_nothing_but_a_sentence(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    split_by("(a+)+$")(folder)
    rows = Examples(["a" * 40 + "!"] * 4, None, [0, 1] * 2)
    said = refused_sentence(lambda: encode(folder, replace(TASK, train=rows), 16))
    assert "cannot encode these texts" in said and "retry-limit" in said and str(folder) in said
    assert capfd.readouterr().err == ""


def test_texts_are_read_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces change nothing, whether rows or characters end them."""
    pairs = Examples([f"word {n}" * n for n in range(9)], ["other word"] * 9, [0] * 9)
    task, first = replace(TASK, train=pairs, fingerprint=""), None
    for piece, characters in ((1000, 1 << 20), (2, 1 << 20), (1000, 40)):
        monkeypatch.setattr(token_rows, "PIECE", piece)
        monkeypatch.setattr(token_rows, "CHARACTERS", characters)
        found = encode(folder, task, 16)["train"]
        now = [[row.tolist() for row in rows] for rows in (found.ids, found.types or [])]
        assert len(found) == 9 and now == (first or now)
        first = now


def test_ids_beyond_the_vocabulary_are_refused_before_training(folder: Path) -> None:
    held = load_file(folder / WEIGHTS)
    held["embeddings.word_embeddings.weight"] = held["embeddings.word_embeddings.weight"][:6].clone()
    save_file(held, folder / WEIGHTS, {"format": "pt"})
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
    (folder / "tokenizer.model").symlink_to("vocab.txt")
    (folder / "tokenizer.model").unlink()
    tokens(vocab_file="/dev/zero", tokenizer_file="/dev/zero", chat_template="{{ 1 / 0 }}")(folder)
    assert torch.equal(load_encoder(folder, 0.0).get_input_embeddings().weight, expected)
    assert len(encode(folder, TASK, 16)["train"]) == 8


def test_shards_and_the_layout_of_the_hub_s_cache_are_read(folder: Path, tmp_path: Path) -> None:
    expected = load_encoder(folder, 0.0).get_input_embeddings().weight
    index("model-00001-of-00001.safetensors")(folder)
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "0123"
    blobs = snapshot.parents[1] / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.copyfile(path, blobs / str(number))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    assert torch.equal(load_encoder(snapshot, 0.0).get_input_embeddings().weight, expected)
