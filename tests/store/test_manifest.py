"""The manifest of a run: what it lists, and how a difference from it is described."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from workbench.store import manifest
from workbench.store.atomic import sealed

FILES = {
    "spec.json": b"{}",
    "scores/CoLA-0.json": b"[1]",
    "encoder/model.safetensors": b"weights",
    "points/00000100/heads/model.safetensors": b"heads",
}
LEFT_OUT = ("notes.txt", "error.json", "lease", ".tmp-1/spec.json", "scores/.tmp-2", "checkpoints/.trash-3/x")

LATER = 1 << 62  # no file has changed since then, so that sizes alone are compared


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, with files that a manifest lists and some that it does not."""
    for name, data in {**FILES, **dict.fromkeys(LEFT_OUT, b"x")}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_run_s_own_files_are_listed_with_their_sizes_and_hashes(run: Path) -> None:
    listed = manifest.entries(run)
    assert listed == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in FILES.items()
    }
    assert list(listed) == manifest.listing(run) == sorted(FILES)
    assert listed["spec.json"] == manifest.entry(b"{}")
    assert not list(manifest.differences(run, listed))


def test_each_change_has_its_kind_and_its_sentence(run: Path) -> None:
    listed = manifest.entries(run)
    (run / "spec.json").unlink()
    (run / "scores/CoLA-0.json").write_bytes(b"[2]")
    (run / "encoder/model.safetensors").write_bytes(b"weight")
    (run / "scores/CoLA-1.json").write_bytes(b"[3]")
    quick = {each.file: (each.kind, each.what) for each in manifest.differences(run, listed, since=LATER)}
    assert quick == {
        "spec.json": ("missing", "spec.json is missing"),
        "encoder/model.safetensors": ("changed", "encoder/model.safetensors has 6 bytes instead of 7"),
    }
    whole = {each.file: (each.kind, each.what) for each in manifest.differences(run, listed)}
    change = ("changed", "scores/CoLA-0.json has changed since it was written")  # of the same size
    assert whole == quick | {"scores/CoLA-0.json": change}
    assert [name for name in manifest.listing(run) if name not in listed] == ["scores/CoLA-1.json"]


def test_a_folder_of_weights_may_be_deleted_whole_and_one_of_its_files_may_not(run: Path) -> None:
    listed = manifest.entries(run)
    heads = run / "points/00000100/heads"
    (heads / "model.safetensors").unlink()
    assert [(each.kind, each.file) for each in manifest.differences(run, listed, since=LATER)] == [
        ("missing", "points/00000100/heads/model.safetensors")
    ]
    heads.rmdir()
    (run / "scores/CoLA-0.json").unlink()
    for name in (run / "scores").iterdir():
        name.unlink()
    (run / "scores").rmdir()
    told = {each.file: each.kind for each in manifest.differences(run, listed, since=LATER)}
    assert told == {"points/00000100/heads/model.safetensors": "spared", "scores/CoLA-0.json": "missing"}


def test_files_that_are_reached_through_links_are_differences(run: Path) -> None:
    listed = manifest.entries(run)
    (run / "encoder").rename(run / "elsewhere")
    (run / "encoder").symlink_to(run / "elsewhere")
    (run / "spec.json").rename(run / "other.json")
    (run / "spec.json").symlink_to(run / "other.json")
    told = {each.file: each.what for each in manifest.differences(run, listed)}
    assert told == {
        "encoder/model.safetensors": "encoder/model.safetensors is reached through a symbolic link",
        "spec.json": "spec.json is not a regular file",
    }


@pytest.mark.parametrize("name", ["../spec.json", "scores/../../x", "scores//x", "notes.txt", "lease", "scores/./x"])
def test_a_manifest_that_names_other_files_is_refused(run: Path, name: str) -> None:
    assert manifest.read(run) is None
    listed = manifest.entries(run)
    (run / manifest.NAME).write_bytes(sealed(manifest.content(run.name, listed)))
    assert manifest.read(run) == listed
    (run / manifest.NAME).write_bytes(sealed(manifest.content(run.name, listed | {name: manifest.entry(b"")})))
    with pytest.raises(ValueError, match=r"manifest\.json has no usable 'files'"):
        manifest.read(run)


def test_a_manifest_of_another_run_or_without_a_hash_is_refused(run: Path) -> None:
    listed = manifest.entries(run)
    (run / manifest.NAME).write_bytes(sealed(manifest.content("another", listed)))
    with pytest.raises(ValueError, match=r"manifest\.json belongs to the run 'another'"):
        manifest.read(run)
    (run / manifest.NAME).write_text('{"format":1,"run_id":"x","files":{}}')
    with pytest.raises(ValueError, match=r"manifest\.json has changed since it was written"):
        manifest.read(run)


def test_a_link_or_pipe_is_named_when_files_are_listed(run: Path) -> None:
    (run / "heads").mkdir(exist_ok=True)
    os.mkfifo(run / "heads" / "pipe")
    with pytest.raises(ValueError, match="heads/pipe is not a regular file"):
        manifest.entries(run)
