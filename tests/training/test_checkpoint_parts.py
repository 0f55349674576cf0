"""Checkpoints whose parts several processes write, here threads with one store of keys: whole when they are read."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor

from workbench.errors import RankLost
from workbench.store import checkpoint
from workbench.training.checkpointing import Parts

Groups = dict[str, dict[str, Tensor]]
WHOLE: Groups = {
    "model": {"table": torch.randn(7, 3), "bias": torch.randn(2), "scale": torch.randn(1, 4)},
    "optimizer": {
        "table.exp_avg": torch.randn(7, 3), "bias.exp_avg": torch.randn(2), "bias.step": torch.tensor(5.0),
    },
}  # fmt: skip


def divided(index: int, count: int) -> tuple[Groups, dict[str, list[int]]]:
    """The rows of WHOLE that a process has, as FSDP2 divides them, and where they begin."""
    groups: Groups = {}
    offsets: dict[str, list[int]] = {}
    for group, tensors in WHOLE.items():
        groups[group] = {}
        for name, tensor in tensors.items():
            each = -(-tensor.shape[0] // count) if tensor.dim() else 0
            part = tensor[index * each : (index + 1) * each] if tensor.dim() else tensor
            if part.numel() and (tensor.dim() or not index):
                groups[group][name] = part
            offsets[name] = [index * each, *[0] * (tensor.dim() - 1)] if tensor.dim() else []
    return groups, offsets


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "checkpoints"


def processes(count: int, seconds: float = 30.0) -> list[Parts]:
    store = dist.HashStore()  # type: ignore[attr-defined]
    return [Parts(store, index, count, divided(index, count)[1], seconds) for index in range(count)]


def saved(folder: Path, sides: list[Parts], step: int) -> None:
    """A checkpoint that all processes write at the same time."""
    count = len(sides)
    with ThreadPoolExecutor(count) as pool:
        jobs = [pool.submit(sides[0].save, folder, step, divided(0, count)[0], {"step": step})]
        jobs += [pool.submit(side.write, divided(side.index, count)[0]) for side in sides[1:]]
        for job in jobs:
            job.result(60)


def is_whole(found: checkpoint.Checkpoint | None, step: int) -> bool:
    assert found is not None and found.step == step and found.state == {"step": step}
    for group, tensors in WHOLE.items():
        loaded = found.tensors(group)
        assert loaded.keys() == tensors.keys()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    return True


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_parts_is_read_as_whole_tensors(count: int, folder: Path) -> None:
    """One row of a table of four processes, and none of a bias of two."""
    sides = processes(count)
    for step in (5, 10, 15):
        saved(folder, sides, step)
    assert checkpoint.steps(folder) == [10, 15] and is_whole(checkpoint.newest(folder), 15)
    names = sorted(path.name for path in (folder / "step-00000015").glob("*.safetensors"))
    assert names == sorted(
        f"{group}-{index:05d}-of-{count:05d}.safetensors" for group in WHOLE for index in range(1, count + 1)
    )


def test_every_part_is_verified_by_its_hash(folder: Path) -> None:
    sides = processes(2)
    saved(folder, sides, 5)
    saved(folder, sides, 10)
    last = folder / "step-00000010"
    for part in last.glob("*-of-*"):
        content = part.read_bytes()
        part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        found = checkpoint.newest(folder)
        assert is_whole(found, 5) and f"{part.name} has changed" in found.warnings[0]  # type: ignore[union-attr]
        part.unlink()
        assert f"{part.name} is missing" in checkpoint.newest(folder).warnings[0]  # type: ignore[union-attr]
        part.write_bytes(content)
    extra = last / "model-00003-of-00002.safetensors"
    extra.write_bytes((last / "model-00001-of-00002.safetensors").read_bytes())
    assert is_whole(checkpoint.newest(folder), 10), "a file that no manifest lists is not read"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_reads_the_parts(folder: Path) -> None:
    """By its own reader of distributed checkpoints in safetensors, into whole tensors of one process."""
    saved(folder, processes(2), 5)
    place = folder / "step-00000005"
    for path in place.glob("optimizer-*"):
        path.unlink()
    into = {name: torch.zeros_like(tensor) for name, tensor in WHOLE["model"].items()}
    dcp.load(into, storage_reader=dcp.HuggingFaceStorageReader(str(place)), no_dist=True)
    assert all(torch.equal(into[name], tensor) for name, tensor in WHOLE["model"].items())


def test_a_checkpoint_that_is_there_already_is_not_waited_for(folder: Path) -> None:
    saved(folder, processes(2), 5)
    sides, begun = processes(2), time.monotonic()
    saved(folder, sides, 5)
    saved(folder, sides, 10)
    assert time.monotonic() - begun < 20 and is_whole(checkpoint.newest(folder), 10)


def test_a_full_disk_of_another_process_is_an_error_of_the_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides, write = processes(2), checkpoint.write_part
    saved(folder, sides, 5)

    def full(draft: Path, tensors: Any, *rest: Any) -> Any:
        if any("-00002-" in group for group in tensors):
            raise OSError(errno.ENOSPC, "No space left on device", "there")
        return write(draft, tensors, *rest)

    monkeypatch.setattr(checkpoint, "write_part", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        saved(folder, sides, 10)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(folder / "step-00000010"))
    monkeypatch.undo()
    assert is_whole(checkpoint.newest(folder), 5) and checkpoint.steps(folder) == [5]
    saved(folder, sides, 15)
    assert is_whole(checkpoint.newest(folder), 15)


def test_a_process_that_does_not_answer_is_lost_and_leaves_nothing(folder: Path) -> None:
    first, other = processes(2, 0.2)
    saved(folder, [first, other], 5)
    with pytest.raises(RankLost, match="ended or did not answer while a checkpoint was written"):
        first.save(folder, 10, divided(0, 2)[0], {"step": 10})
    assert [path.name for path in folder.iterdir()] == ["step-00000005"]
    fresh = processes(2, 0.2)[1]
    with pytest.raises(RankLost):
        fresh.write(divided(1, 2)[0])


def test_the_error_of_a_run_ends_the_waiting(folder: Path) -> None:
    first, begun = processes(2, 300.0)[0], time.monotonic()
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError), first:
        job = pool.submit(first.save, folder, 10, divided(0, 2)[0], {"step": 10})
        raise ZeroDivisionError
    with pytest.raises(RankLost):
        job.result(60)
    assert time.monotonic() - begun < 60


def test_files_say_where_their_tensors_lie(folder: Path) -> None:
    saved(folder, processes(2), 5)
    content = (folder / "step-00000005" / "model-00002-of-00002.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    places = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
    assert places == {"table": {"saved_offsets": [4, 0]}, "bias": {"saved_offsets": [1]}}
