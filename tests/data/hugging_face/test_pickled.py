"""Weights in pytorch_model.bin: copied once as safetensors, and never by running code of the file."""

from __future__ import annotations

import pickle
import resource
import zipfile
from pathlib import Path

import pytest
import torch
from refused import refusal
from safetensors.torch import load_file

from workbench.data.model_files import with_safetensors


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
    assert words in refusal(folder, lambda: with_safetensors(folder))
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
    assert words in refusal(folder, lambda: with_safetensors(folder))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000 and not list(cache.glob("converted/*"))


def test_packed_records_are_refused_before_they_are_unpacked(folder: Path) -> None:
    path = folder / "pytorch_model.bin"
    torch.save({"w": torch.zeros(1 << 20)}, path)
    with zipfile.ZipFile(path) as old:
        records = {each: old.read(each) for each in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in records.items():
            packed.writestr(name, content)
    assert "its records have more bytes than the file" in refusal(folder, lambda: with_safetensors(folder))


def test_tied_weights_under_three_names_and_the_old_format_are_read(folder: Path) -> None:
    tied = torch.arange(30_000.0)
    torch.save(
        {"a": tied, "b": tied, "c": tied[:10]}, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False
    )
    found = load_file(with_safetensors(folder) / "model.safetensors")
    assert torch.equal(found["b"], tied) and torch.equal(found["c"], tied[:10])
