"""A checkpoint is either as it was written or is not used; killing, filling the disk and rot cannot change that."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import limits
import pytest
import torch
from drills.disk import some
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from workbench.errors import InputError, LeaseLost
from workbench.store import atomic, checkpoint
from workbench.store.checkpoint import content, library_errors, save_copies
from workbench.store.lease import acquire


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def holds(found: checkpoint.Checkpoint | None, step: int) -> bool:
    return (
        found is not None
        and found.step == step
        and found.state == {"step": step}
        and torch.equal(found.tensors("model")["w"], some(step)["model"]["w"])
    )


# -- what is stored


def test_shared_storage_views_scalars_and_parameters(tmp_path: Path) -> None:
    table = torch.randn(6, 4)
    model = {
        "table": torch.nn.Parameter(table), "tied": table, "turned": table.t(), "part": table[2:, 1:3],
        "step": torch.tensor(7.0), "none": torch.empty(0, 3), "nan": torch.tensor([float("nan"), float("inf")]),
    }  # fmt: skip
    checkpoint.save(tmp_path, 1, {"model": model, "empty": {}}, {"seconds": 1.5, "big": 2**62})
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.state == {"seconds": 1.5, "big": 2**62} and found.warnings == ()
    loaded = found.tensors("model")
    for name, tensor in model.items():
        assert loaded[name].shape == tensor.shape
        assert torch.equal(loaded[name], tensor) or (name == "nan" and loaded[name].isnan()[0] and loaded[name][1] > 1)
    assert found.tensors("empty") == {}
    with pytest.raises(InputError, match="optimizer"):
        found.tensors("optimizer")


def test_the_manifest_vouches_for_every_byte(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 12, some(12), {"step": 12})
    assert path.name == "step-00000012"
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(manifest["files"]) | {"manifest.json"} == set(names(path))
    for name, entry in manifest["files"].items():
        data = (path / name).read_bytes()
        assert entry == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_flushed_and_the_manifest_last_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, some(1), {})
    events: list[str] = []
    sync, rename, remove = os.fsync, os.rename, shutil.rmtree

    def note_sync(fd: int) -> None:
        events.append("sync " + Path(os.readlink(f"/proc/self/fd/{fd}")).name.split("-")[0])
        sync(fd)

    def note_rename(a: Path, b: Path) -> None:
        events.append(f"rename to {Path(b).name.partition('-')[0]}")
        rename(a, b)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    monkeypatch.setattr(shutil, "rmtree", lambda *a, **k: (events.append("delete"), remove(*a, **k)))
    checkpoint.save(tmp_path, 2, some(2), {})
    checkpoint.save(tmp_path, 3, some(3), {})
    committed = events.index("rename to step")
    before = events[:committed]
    assert before[-2:] == ["sync manifest.json", "sync .tmp"]
    assert {"sync model.safetensors", "sync optimizer.safetensors", "sync state.json"} <= set(before)
    assert events[committed + 1] in ("sync " + tmp_path.name.split("-")[0], "delete")
    # of a pruned checkpoint nothing is deleted before it was renamed, and that after the new one is in place
    second = len(events) - 1 - events[::-1].index("rename to step")
    assert "rename to .trash" in events[second:] and "rename to .trash" not in events[:second]
    assert "delete" in events[events.index("rename to .trash") :]


def test_the_last_two_stay(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10, 100_000_000):
        checkpoint.save(tmp_path, step, some(step), {"step": step})
    assert names(tmp_path) == ["step-00000010", "step-100000000"]
    assert holds(checkpoint.newest(tmp_path), 100_000_000)


def test_leftovers_of_killed_writers_go_with_the_next_save(tmp_path: Path) -> None:
    (tmp_path / ".tmp-abc").mkdir()
    (tmp_path / ".tmp-abc" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".trash-def").mkdir()
    assert checkpoint.newest(tmp_path) is None is checkpoint.newest(tmp_path / "checkpoints")
    checkpoint.save(tmp_path, 1, some(1), {})
    assert names(tmp_path) == ["step-00000001"]


def test_a_step_saved_again_stays_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, some(1), {"step": 1})
    path = checkpoint.save(tmp_path, 2, some(2), {"step": 2})
    assert checkpoint.save(tmp_path, 2, some(9), {"step": 9}) == path and holds(checkpoint.newest(tmp_path), 2)
    (path / "state.json").unlink()
    checkpoint.save(tmp_path, 2, some(2), {"step": 2})
    assert holds(checkpoint.newest(tmp_path), 2) and len(names(tmp_path)) == 2


def test_a_damaged_one_from_beyond_is_taken_away(tmp_path: Path) -> None:
    """After falling back from 30 to 20, the next save at 25 must count; the damaged 30 must not be met again."""
    for step in (20, 30):
        checkpoint.save(tmp_path, step, some(step), {"step": step})
    (tmp_path / "step-00000030" / "model.safetensors").write_bytes(b"")
    assert holds(checkpoint.newest(tmp_path), 20)
    checkpoint.save(tmp_path, 25, some(25), {"step": 25})
    assert names(tmp_path) == ["step-00000020", "step-00000025"]
    assert holds(checkpoint.newest(tmp_path), 25)


# -- damage


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, some(step, size=400), {"step": step})
    return tmp_path


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("how", ["missing", "a folder", "a link", "a pipe", "another's"])
def test_what_is_not_our_file_is_not_read(pair: Path, name: str, how: str) -> None:
    path = pair / "step-00000002" / name
    path.rename(pair / "kept")
    if how == "a folder":
        path.mkdir()
    elif how == "a link":
        path.symlink_to(pair / "kept")
    elif how == "a pipe":
        os.mkfifo(path)
    elif how == "another's":
        shutil.copy(pair / "step-00000001" / name, path)
    found = checkpoint.newest(pair)
    assert found is not None and found.step == 1 and len(found.warnings) == 1


def test_all_damaged_is_refused_with_a_way_out(pair: Path) -> None:
    for step in (1, 2):
        (pair / f"step-0000000{step}" / "manifest.json").write_text("{}")
    with pytest.raises(InputError) as caught:
        checkpoint.newest(pair)
    assert str(pair) in str(caught.value) and "delete that folder" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "manifest",
    [
        {"format": 2, "step": 2, "files": {}},
        {"format": 1, "step": 2, "files": {}},
        {"format": 1, "step": 3, "files": {}},
        {"format": 1, "step": 2, "files": {"../../secret": {"bytes": 1, "sha256": ""}}},
        {"format": 1, "step": 2, "files": []},
        {"format": 1, "step": "2", "files": {}},
        [1],
    ],
)
def test_hostile_manifests(pair: Path, manifest: Any) -> None:
    (pair / "step-00000002" / "manifest.json").write_text(atomic.dumps(manifest) + "\n")
    found = checkpoint.newest(pair)
    assert found is not None and found.step == 1


def test_a_pickle_with_a_true_manifest_is_refused_and_not_run(tmp_path: Path) -> None:
    """Whoever can write the manifest too still cannot make us run anything."""

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "ran"),))

    path = checkpoint.save(tmp_path, 1, some(1), {})
    data = pickle.dumps(Bomb())
    (path / "model.safetensors").write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["model.safetensors"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_text(atomic.dumps(manifest) + "\n")
    found = checkpoint.newest(tmp_path)
    assert found is not None
    with pytest.raises(InputError, match="model"):
        found.tensors("model")
    assert not (tmp_path / "ran").exists()


# -- disks and owners


@pytest.mark.parametrize("limit", [0, 900])
def test_a_write_that_fails_halfway_leaves_the_old_one(tmp_path: Path, limit: int) -> None:
    checkpoint.save(tmp_path, 1, some(1), {"step": 1})
    with limits.files_of_at_most(limit), pytest.raises(OSError) as caught:
        checkpoint.save(tmp_path, 2, some(2, size=400), {"step": 2})
    assert caught.value.errno == errno.EFBIG
    for part in (str(tmp_path), "are needed", "(ulimit -f)"):
        assert part in str(caught.value)
    assert names(tmp_path) == ["step-00000001"] and holds(checkpoint.newest(tmp_path), 1)
    checkpoint.save(tmp_path, 2, some(2), {"step": 2})
    assert holds(checkpoint.newest(tmp_path), 2)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with limits.small_disk(tmp_path, "size=1m") as disk:
        yield disk


@pytest.mark.parametrize("free", [0, 300_000])
@pytest.mark.parametrize("foreseen", [True, False])
def test_a_full_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch, free: int, foreseen: bool) -> None:
    folder = small_disk / "checkpoints"
    checkpoint.save(folder, 1, some(1), {"step": 1})
    info = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(b"x" * max(0, info.f_bavail * info.f_frsize - free))
    if not foreseen:  # as where free space is not what the system says: quotas, others writing at the same time
        monkeypatch.setattr(checkpoint, "room", lambda folder, needed: None)
    with pytest.raises(OSError) as caught:
        checkpoint.save(folder, 2, some(2, size=90_000), {"step": 2})
    assert caught.value.errno == errno.ENOSPC
    for part in (str(folder), "are needed", "are free"):
        assert part in str(caught.value)
    assert names(folder) == ["step-00000001"] and holds(checkpoint.newest(folder), 1)
    (small_disk / "filler").unlink()
    checkpoint.save(folder, 2, some(2), {"step": 2})
    assert holds(checkpoint.newest(folder), 2)


@pytest.mark.parametrize("full", ["the folder", "the last files", "another process"])
def test_a_full_disk_names_the_checkpoint_and_not_its_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    checkpoint.save(tmp_path, 1, some(1), {})
    write, mkdir = checkpoint._write, Path.mkdir

    def no_room(path: Path) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def written(path: Path, parts: Any) -> Any:
        return no_room(path) if full == "the last files" and path.name == "state.json" else write(path, parts)

    def made(path: Path, **options: Any) -> Any:
        return no_room(path) if full == "the folder" and path.name.startswith(".tmp-") else mkdir(path, **options)

    monkeypatch.setattr(checkpoint, "_write", written)
    monkeypatch.setattr(Path, "mkdir", made)
    beside = {"beside": lambda draft: lambda: no_room(draft / "part")} if full == "another process" else {}
    with pytest.raises(OSError, match=r"bytes are needed and .* are free") as caught:
        checkpoint.save(tmp_path, 2, some(2), {}, **beside)
    assert caught.value.filename == str(tmp_path / "step-00000002") and names(tmp_path) == ["step-00000001"]
    assert full != "the last files" or f"{checkpoint.RESERVE} bytes are needed" in str(caught.value)


def test_room(tmp_path: Path) -> None:
    checkpoint.room(tmp_path / "not" / "there" / "yet", 1000)
    with pytest.raises(OSError) as caught:
        checkpoint.room(tmp_path / "not", 1 << 60)
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(tmp_path / "not")
    assert str(1 << 60) in str(caught.value)


@pytest.mark.parametrize("checked", [True, False])
def test_a_late_owner_neither_saves_nor_prunes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: bool) -> None:
    """Taken over while it stood still; in the second case even after its last look at the lease."""
    folder = tmp_path / "checkpoints"
    late = acquire(tmp_path)
    for step in (1, 2):
        checkpoint.save(folder, step, some(step), {"step": step}, owner=late)
    (tmp_path / "lease").unlink()  # as if it had been silent for long
    new = acquire(tmp_path)
    if not checked:
        monkeypatch.setattr(late, "check", lambda: None)
    with pytest.raises((LeaseLost, FileNotFoundError)):
        checkpoint.save(folder, 3, some(3), {"step": 3}, owner=late)
    assert names(folder) == ["step-00000001", "step-00000002"]
    checkpoint.save(folder, 4, some(4), {"step": 4}, owner=new)
    assert names(folder) == ["step-00000002", "step-00000004"]
    late.release()
    new.check()
    new.release()
    assert names(tmp_path) == ["checkpoints"]


# ---- files of tensors as the safetensors library reads them ----


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 3)),
        max_size=6,
    )
)
def test_the_library_reads_what_we_write(tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    tensors = {}
    for name, (dtype, shape, way) in shapes.items():
        tensor = (torch.randn([*shape]) * 9).to(dtype)
        views = (tensor, tensor.transpose(0, -1) if shape else tensor, tensor[1:] if shape else tensor, tensor.flip([]))
        tensors[name] = views[way]
    size, parts = content(tensors)
    path.write_bytes(b"".join(parts))
    assert path.stat().st_size == size
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
        assert torch.equal(loaded[name], tensor)


def test_every_tensor_begins_at_a_multiple_of_the_size_of_its_elements() -> None:
    """A reader maps the file into memory; libraries read numbers there only at such places."""
    tensors = {"a": torch.zeros(3, dtype=torch.int8), "b": torch.zeros(5, dtype=torch.float64), "c": torch.zeros(1)}
    whole = b"".join(content(tensors)[1])
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    for name, tensor in tensors.items():
        start, end = header[name]["data_offsets"]
        assert (8 + length + start) % tensor.element_size() == 0 and end - start == tensor.nbytes


def test_tied_weights_are_copied_for_the_library(tmp_path: Path) -> None:
    table = torch.randn(4, 3, requires_grad=True)
    save_copies({"table": table, "tied": table, "turned": table.t()}, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert torch.equal(file.get_tensor("tied"), table) and torch.equal(file.get_tensor("turned"), table.t())


def test_an_error_of_the_disk_is_taken_out_of_the_library_s(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, library_errors(tmp_path / "x"):
        raise SafetensorError(f"I/O error: No space left on device (os error {errno.ENOSPC})")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "x"))
    with pytest.raises(SafetensorError, match="something else"), library_errors(tmp_path / "x"):
        raise SafetensorError("something else")
