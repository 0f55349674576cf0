"""Weights that others made: safetensors by their headers alone, and pickled ones copied without running code."""

from __future__ import annotations

import json
import os
import pickle
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refused
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from safetensors.torch import load_file

from workbench.data.model_files import INDEX, SINGLE, check_weights, regular_files, with_safetensors

Found = tuple[dict[str, Path], dict[str, int], frozenset[str]]
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
TENSORS = st.dictionaries(st.text("abc.0", min_size=1), st.tuples(SHAPES, st.sampled_from("defbBhHiIqQ?")), min_size=1)
EXAMPLE = {"layer.weight": np.ones((2, 3), "f"), "layer.bias": np.ones(3, "d"), "places": np.arange(4)}


def check(folder: Path) -> Found:
    return check_weights(folder, regular_files(folder))


def refusal(folder: Path) -> str:
    return refused.refusal(folder, lambda: check(folder))


@given(TENSORS)
def test_what_the_library_writes_is_counted(
    tmp_path_factory: pytest.TempPathFactory, kinds: dict[str, tuple[tuple[int, ...], str]]
) -> None:
    tensors = {name: np.zeros(shape, kind) for name, (shape, kind) in kinds.items()}
    path = tmp_path_factory.getbasetemp() / SINGLE
    path.write_bytes(save(tensors))
    files, elements, whole = check_weights(path.parent, {SINGLE: path})
    assert files == {SINGLE: path}
    assert elements == {name: held.size for name, held in tensors.items() if held.dtype.kind == "f"}
    assert whole == {name for name, held in tensors.items() if held.dtype.kind != "f"}


def test_a_file_that_is_cut_anywhere_or_goes_on_is_refused(tmp_path: Path) -> None:
    content = save(EXAMPLE)
    for end in range(len(content)):
        (tmp_path / SINGLE).write_bytes(content[:end])
        assert SINGLE in refusal(tmp_path)
    (tmp_path / SINGLE).write_bytes(content + b"\0")
    assert SINGLE in refusal(tmp_path)


def with_header(folder: Path, header: Any, data: bytes) -> None:
    text = json.dumps(header).encode()
    (folder / SINGLE).write_bytes(len(text).to_bytes(8, "little") + text + data)


def entry(start: int, end: int, shape: Any = None, dtype: Any = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "header",
    [{"a": entry(0, 5), "b": entry(4, 6)}, {"a": entry(0, 7)}, {}, {"__metadata__": {}}, [], {"a": 3},
     {"a": entry(0, 6, dtype="F8_E5M2")}, {"a": entry(0, 6, [2])}, {"a": entry(0, 6, [-2, -3])}],
    ids=lambda header: json.dumps(header)[:60],
)  # fmt: skip
def test_a_header_that_does_not_describe_its_six_bytes_is_refused(tmp_path: Path, header: Any) -> None:
    with_header(tmp_path, header, b"\0" * 6)
    assert SINGLE in refusal(tmp_path)


def shards(folder: Path, places: Any, **files: dict[str, np.ndarray]) -> None:
    for name, tensors in files.items():
        (folder / f"{name}.safetensors").write_bytes(save(tensors))
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": -3}, "weight_map": places}))


HALVES = {"one": {"a": np.ones((2, 2), "f")}, "two": {"b": np.ones(5, "f"), "c": np.arange(3)}}
PLACES = {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}


def test_shards_hold_their_tensors_together(tmp_path: Path) -> None:
    shards(tmp_path, PLACES, **HALVES, unnamed={"d": np.ones(7, "f")})
    files, elements, whole = check(tmp_path)
    assert files.keys() == {INDEX, "one.safetensors", "two.safetensors"}
    assert all(path == tmp_path.resolve() / name for name, path in files.items())
    assert (elements, whole) == ({"a": 4, "b": 5}, {"c"})


def test_one_file_is_taken_before_an_index(tmp_path: Path) -> None:
    shards(tmp_path, "no mapping")
    (tmp_path / SINGLE).write_bytes(save(EXAMPLE))
    files, elements, whole = check(tmp_path)
    assert (list(files), elements, whole) == ([SINGLE], {"layer.weight": 6, "layer.bias": 3}, {"places"})


@pytest.mark.parametrize(
    "place",
    ["../out.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..", "", ".safetensors", "one.bin",
     "one.safetensors\n", "\ud800.safetensors", "x" * 300 + ".safetensors", "gone.safetensors", 3, None,
     ["one.safetensors"], {"a": 1}],
)  # fmt: skip
def test_an_index_names_shards_of_its_own_folder(tmp_path: Path, place: Any) -> None:
    """Files of these names lie there, and outside: they are not opened."""
    home = tmp_path / "encoder"
    (home / "sub").mkdir(parents=True)
    for path in (tmp_path / "out.safetensors", home / "sub" / "x.safetensors", home / "one.bin"):
        path.write_bytes(save({"a": np.ones((2, 2), "f")}))
    shards(home, PLACES | {"a": place}, **HALVES)
    said = refusal(home)
    assert INDEX in said and (ascii(place)[1:-1] if isinstance(place, str) else ascii(place))[:60] in said


def test_every_shard_is_checked(tmp_path: Path) -> None:
    shards(tmp_path, PLACES, **HALVES)
    os.truncate(tmp_path / "two.safetensors", (tmp_path / "two.safetensors").stat().st_size - 1)
    assert "two.safetensors" in refusal(tmp_path)


@pytest.mark.parametrize("places", [None, {}, [], ["one.safetensors"], "one.safetensors"])
def test_an_index_is_a_mapping(tmp_path: Path, places: Any) -> None:
    shards(tmp_path, places, **HALVES)
    assert INDEX in refusal(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "x.pth", "last.ckpt", "a.pkl", "tf_model.h5"])
def test_pickled_weights_are_named_and_never_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04")
    assert name in refusal(tmp_path)


def test_a_folder_without_weights_is_refused_by_the_name_of_the_file_that_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.bin.txt").write_text("")
    said = refusal(tmp_path)
    assert SINGLE in said and "notes" not in said


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose weights are in the old file alone; two of its tensors share their memory."""
    made = tmp_path / "model"
    made.mkdir()
    shared = torch.arange(6.0).view(2, 3)
    state = {"norm.gamma": torch.ones(3), "norm.beta": torch.zeros(3), "a.weight": shared, "b.weight": shared.T}
    torch.save(state, made / "pytorch_model.bin")
    (made / "config.json").write_text("{}")
    (made / "notes.txt").write_text("kept out of the copy")
    return made


def test_the_copy_holds_the_same_tensors_by_their_names_of_today(folder: Path, cache: Path) -> None:
    copy = with_safetensors(folder)
    assert copy.parent == cache / "converted" and copy != folder
    found = load_file(copy / "model.safetensors")
    assert found.keys() == {"norm.weight", "norm.bias", "a.weight", "b.weight"}
    assert torch.equal(found["b.weight"], torch.arange(6.0).view(2, 3).T) and torch.equal(
        found["norm.weight"], torch.ones(3)
    )
    assert (copy / "config.json").read_text() == "{}" and not (copy / "notes.txt").exists()


def test_it_is_made_once_for_the_same_files(folder: Path) -> None:
    first = with_safetensors(folder)
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert with_safetensors(folder) == first and (first / "model.safetensors").stat().st_mtime_ns == written
    (folder / "config.json").write_text('{"a": 1}')
    assert with_safetensors(folder) != first


def test_a_folder_with_safetensors_is_used_as_it_is(folder: Path, cache: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"any")
    assert with_safetensors(folder) == folder and not cache.exists()


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("was_here"),))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a": Harmful()}, "cannot be read without running code"),
        ([torch.ones(2)], "holds list, not tensors by name"),
        ({}, "holds dict, not tensors by name"),
        ({"a": torch.ones(2), "step": 3}, "holds 'step', which is not a tensor with a name"),
        ({1: torch.ones(2)}, "holds 1, which is not a tensor with a name"),
    ],
)
def test_anything_but_tensors_by_name_is_refused_and_not_run(
    content: object, words: str, folder: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, folder / "pytorch_model.bin", pickle_module=pickle)
    assert words in refused.refusal(folder, lambda: with_safetensors(folder))
    assert not (tmp_path / "was_here").exists() and not list(cache.glob("converted/*"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"w": torch.zeros(1).expand(40_000, 40_000)}, "holds 'w' of 6,400,000,000 bytes, of which 4 are stored"),
        ({"w": torch.zeros(5).as_strided((4, 9), (1, 0))}, "holds 'w' of 144 bytes, of which 20 are stored"),
        (dict.fromkeys("abcdefgh", torch.zeros(10_000)), "more than 4 times as many"),
        ({"w": torch.empty(40_000, 40_000, device="meta")}, "more than 4 times as many"),
        ({"w": bytearray(8)}, "it makes a bytearray"),
    ],
)
def test_tensors_of_more_bytes_than_the_file_explains_take_no_memory(
    content: object, words: str, folder: Path, cache: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.save(content, folder / "pytorch_model.bin")
    assert words in refused.refusal(folder, lambda: with_safetensors(folder))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000 and not list(cache.glob("converted/*"))


def test_packed_records_are_refused_before_they_are_unpacked(folder: Path) -> None:
    path = folder / "pytorch_model.bin"
    torch.save({"w": torch.zeros(1 << 20)}, path)
    with zipfile.ZipFile(path) as old:
        records = {each: old.read(each) for each in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in records.items():
            packed.writestr(name, content)
    assert "its records have more bytes than the file" in refused.refusal(folder, lambda: with_safetensors(folder))


def test_tied_weights_under_three_names_and_the_old_format_are_read(folder: Path) -> None:
    tied = torch.arange(30_000.0)
    torch.save(
        {"a": tied, "b": tied, "c": tied[:10]}, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False
    )
    found = load_file(with_safetensors(folder) / "model.safetensors")
    assert torch.equal(found["b"], tied) and torch.equal(found["c"], tied[:10])
