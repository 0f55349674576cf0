"""Checkpoints that a thread or several processes write: of the moment when they were begun, whole or absent."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tiny_runs import begun
from torch import Tensor

from workbench.errors import Diverged, Interrupted, LeaseLost, RankLost
from workbench.store import checkpoint
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import RunDir
from workbench.training import checkpointing
from workbench.training.checkpointing import CheckpointWriter, Parts

CPU = torch.device("cpu")
SAVE = checkpointing.save


class Gate:
    """`checkpointing.save`, which waits until the gate is open, or raises what it is told to."""

    def __init__(self) -> None:
        self.open, self.entered = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def save(self, *words: Any) -> None:
        self.entered.set()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        SAVE(*words)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(checkpointing, "save", made.save)
    yield made
    made.open.set()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "run").mkdir()
    return RunDir(tmp_path / "run")


def tensors(value: float, count: int = 5) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {"w": torch.full((count,), value, dtype=torch.bfloat16)},
        "optimizer": {"w.exp_avg": torch.full((count,), -value), "w.step": torch.tensor(value)},
    }


def writer_of(run: RunDir) -> CheckpointWriter:
    metrics = Metrics(run.path / "metrics.jsonl")
    metrics.append([{"step": 1}])
    return CheckpointWriter(CPU, run, metrics)


def value_of(run: RunDir, step: int) -> float:
    found = checkpoint.newest(run.path / "checkpoints")
    assert found is not None and found.step == step
    kinds = {name: kept.dtype for group in ("model", "optimizer") for name, kept in found.tensors(group).items()}
    assert kinds == {"w": torch.bfloat16, "w.exp_avg": torch.float32, "w.step": torch.float32}
    return float(found.tensors("model")["w"][0])


def test_a_checkpoint_is_of_the_moment_when_it_was_begun(run: RunDir, gate: Gate) -> None:
    """Weights, and the rows of metrics up to it."""
    with writer_of(run) as writer:
        given, before = tensors(1.0), writer.metrics.content()
        writer.save(1, 2.0, 0.5, given, time.monotonic())
        for named in given.values():
            for tensor in named.values():
                tensor.fill_(9)
        writer.metrics.append([{"step": 2}])
        gate.open.set()
    assert value_of(run, 1) == 1.0
    state = checkpoint.newest(run.path / "checkpoints").state  # type: ignore[union-attr]
    assert (state["seconds"], state["saving"], state["log"]) == (2.0, 0.5, before)


def test_training_waits_for_the_copy_alone_and_for_the_checkpoint_before(run: RunDir, gate: Gate) -> None:
    with writer_of(run) as writer:
        assert writer.took == 0.0
        writer.save(1, 0.0, 0.0, tensors(1.0), time.monotonic())
        assert gate.entered.wait(30) and writer.took == math.inf and not checkpoint.steps(run.path / "checkpoints")
        second = threading.Thread(target=writer.save, args=(2, 0.0, 0.0, tensors(2.0), time.monotonic()))
        second.start()
        second.join(0.2)
        assert second.is_alive(), "it does not wait for the first, whose copies it writes into"
        gate.open.set()
        second.join(30)
        writer.wait()
        assert writer.took < math.inf
    assert checkpoint.steps(run.path / "checkpoints") == [1, 2] and value_of(run, 2) == 2.0


def test_processor_time_of_the_thread_counts_where_training_shares_the_cores(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any) -> None:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.2:
            pass

    monkeypatch.setattr(checkpointing, "save", busy)
    with writer_of(run) as writer:
        for step in (1, 2):  # the same thread writes both
            writer.save(step, 0.0, 0.0, tensors(1.0), time.monotonic() - 5)
            writer.wait()
            assert 5.0 <= writer.stall < 30 and 0.2 <= round(writer.took - writer.stall, 6) < 0.4
        writer.device = torch.device("cuda")
        assert writer.took == writer.stall


@pytest.mark.parametrize("how", ["begin", "wait", "end"])
def test_an_error_of_the_thread_ends_training(how: str, run: RunDir, gate: Gate) -> None:
    gate.error = OSError(28, "No space left on device")
    gate.open.set()
    with pytest.raises(OSError, match="No space left"), writer_of(run) as writer:
        writer.save(1, 0.0, 0.0, tensors(1.0), time.monotonic())
        if how == "begin":
            writer.save(2, 0.0, 0.0, tensors(2.0), time.monotonic())
        if how == "wait":
            writer.wait()


def test_a_full_disk_ends_training_at_the_next_step_and_not_at_the_next_checkpoint(tmp_path: Path, gate: Gate) -> None:
    gate.error = OSError(28, "No space left on device")
    gate.open.set()
    seen: list[int] = []

    def at(step: int) -> None:
        seen.append(step)
        time.sleep(0.2)

    run, ended = trained(tmp_path, at, every=4)
    assert isinstance(ended, OSError) and ended.errno == 28 and seen[-1] <= 6, seen
    assert not checkpoint.steps(run.path / "checkpoints")


def test_another_error_is_not_hidden_by_one_of_the_thread(
    run: RunDir, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.error = OSError(28, "No space left on device")
    gate.open.set()
    with pytest.raises(Interrupted), writer_of(run) as writer:
        writer.save(1, 0.0, 0.0, tensors(1.0), time.monotonic())
        raise Interrupted(signal.SIGTERM)
    (told,) = caplog.messages
    assert told.startswith("the last checkpoint was not written: [Errno 28] No space left")


def test_without_memory_for_copies_the_tensors_themselves_are_written(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(*_: Any, **__: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with writer_of(run) as writer:
        monkeypatch.setattr(checkpointing.torch, "empty", none_left)
        given = tensors(1.0)
        writer.save(1, 0.0, 0.0, given, time.monotonic())
        given["model"]["w"].fill_(9)
    assert value_of(run, 1) == 1.0
    assert caplog.messages == [
        "training waits for checkpoints, as there is no memory for a copy of weights and moments"
    ]


def test_other_errors_of_copies_are_raised(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: device-side assert")

    monkeypatch.setattr(checkpointing.torch, "empty", broken)
    with pytest.raises(RuntimeError, match="device-side"), writer_of(run) as writer:
        writer.save(1, 0.0, 0.0, tensors(1.0), time.monotonic())


@pytest.mark.gpu
def test_copies_of_a_gpus_tensors_are_pinned_and_of_the_moment(run: RunDir) -> None:
    """Work that the GPU has not done yet when a checkpoint is begun is done in it, and later work is not."""
    with CheckpointWriter(torch.device("cuda"), run, Metrics(run.path / "metrics.jsonl")) as writer:
        given = {"model": {"w": torch.zeros(1 << 22, device="cuda")}}
        for _ in range(100):
            given["model"]["w"].add_(1)
        writer.save(1, 0.0, 0.0, given, time.monotonic())
        given["model"]["w"].fill_(9)
        assert writer.copies["model"]["w"].is_pinned()
    found = checkpoint.newest(run.path / "checkpoints")
    assert found is not None and bool((found.tensors("model")["w"] == 100).all())


# ---- in training ----

TINY = {
    "objective": "bert-mlm", "encoder.hidden": 32, "encoder.layers": 1, "encoder.heads": 2, "encoder.vocab": 60,
    "data.length": 16, "batch.size": 8, "budget.steps": 8,
}  # fmt: skip


def trained(
    folder: Path, at: Callable[[int], None], every: int = 2, **keys: Any
) -> tuple[RunDir, BaseException | None]:
    """A run of eight steps with a checkpoint every second one, `at` each of its steps; how it ended."""
    job = begun(folder, TINY | keys)
    try:
        job.train(precision="fp32", save_every=every, log_every=1, progress=lambda step, *_: at(step))
    except (Diverged, Interrupted, OSError) as error:
        return job.run, error
    return job.run, None


def test_steps_are_taken_while_a_checkpoint_is_written(tmp_path: Path, gate: Gate) -> None:
    """The checkpoint of step 2 cannot be written before step 3 is done, and has the weights of step 2."""
    seen: list[int] = []

    def at(step: int) -> None:
        seen.append(step)
        if step == 3:
            assert gate.entered.wait(30) and not checkpoint.steps(run_in(tmp_path) / "checkpoints")
            gate.open.set()

    run, ended = trained(tmp_path, at)
    assert ended is None and seen == list(range(1, 9)) and checkpoint.steps(run.path / "checkpoints") == [6, 8]
    (run.path / "checkpoints" / "step-00000008").rename(tmp_path / "elsewhere")
    rows = (run.path / "metrics.jsonl").read_text().splitlines()
    _, ended = trained(tmp_path, lambda step: None)
    again = (run.path / "metrics.jsonl").read_text().splitlines()
    assert ended is None and [json.loads(row)["loss"] for row in again] == [json.loads(row)["loss"] for row in rows]
    for name in ("model", "optimizer"):
        one, other = (
            (folder / f"{name}.safetensors").read_bytes()
            for folder in (tmp_path / "elsewhere", run.path / "checkpoints" / "step-00000008")
        )
        assert one == other


def run_in(folder: Path) -> Path:
    return next((folder / "runs").glob("bert-mlm-*"))


def test_a_signal_waits_for_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*words: Any) -> None:
        time.sleep(0.5)
        SAVE(*words)

    monkeypatch.setattr(checkpointing, "save", slow)
    run, ended = trained(tmp_path, lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 4 else None)
    assert isinstance(ended, Interrupted)
    saved = checkpoint.newest(run.path / "checkpoints")
    last = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert saved is not None and saved.step == last >= 4 and not saved.warnings


def test_divergence_names_the_checkpoint_that_was_being_written(tmp_path: Path, gate: Gate) -> None:
    def at(step: int) -> None:
        if step == 1:
            threading.Timer(0.3, gate.open.set).start()

    run, ended = trained(tmp_path, at, every=1, **{"optim.lr": 1e30})
    assert isinstance(ended, Diverged)
    assert str(ended).endswith("the last checkpoint is of step 1")
    assert checkpoint.steps(run.path / "checkpoints") == [1]


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


def test_parts_are_not_saved_after_the_lease_was_lost(run: RunDir) -> None:
    with run.lease(), pytest.raises(LeaseLost):
        (run.path / "lease").unlink()
        processes(1)[0].save(run.path / "checkpoints", 5, divided(0, 1)[0], {"step": 5}, owner=run.owner)
    assert not checkpoint.steps(run.path / "checkpoints")


def test_the_writer_of_the_first_process_writes_its_part(run: RunDir) -> None:
    metrics, (parts,) = Metrics(run.path / "metrics.jsonl"), processes(1)
    with CheckpointWriter(CPU, run, metrics, parts) as writer:
        writer.save(5, 0.0, 0.0, divided(0, 1)[0], time.monotonic())
    assert (run.path / "checkpoints" / "step-00000005" / "model-00001-of-00001.safetensors").is_file()


def test_a_checkpoint_that_is_there_already_is_not_waited_for(folder: Path) -> None:
    saved(folder, processes(2), 5)
    sides, begun = processes(2), time.monotonic()
    saved(folder, sides, 5)
    assert not sides[0].store.check(["part/1/1"]), "the other process is told that nothing is written"
    saved(folder, sides, 10)
    assert time.monotonic() - begun < 20 and is_whole(checkpoint.newest(folder), 10)


@pytest.mark.parametrize(("code", "named"), [(errno.ENOSPC, "step-00000010"), (errno.EIO, "there")])
def test_a_failing_disk_of_another_process_is_an_error_of_the_first(
    code: int, named: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides, write = processes(2), checkpoint.write_part
    saved(folder, sides, 5)

    def full(draft: Path, tensors: Any, *rest: Any) -> Any:
        if any("-00002-" in group for group in tensors):
            raise OSError(code, os.strerror(code), str(folder / "there"))
        return write(draft, tensors, *rest)

    monkeypatch.setattr(checkpoint, "write_part", full)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        saved(folder, sides, 10)
    assert (caught.value.errno, caught.value.filename) == (code, str(folder / named))
    monkeypatch.undo()
    assert is_whole(checkpoint.newest(folder), 5) and checkpoint.steps(folder) == [5]
    saved(folder, sides, 15)
    assert is_whole(checkpoint.newest(folder), 15)


def test_a_process_that_does_not_answer_is_lost_and_leaves_nothing(folder: Path) -> None:
    first, other = processes(2, 0.2)
    saved(folder, [first, other], 5)
    lost = "^another process of this run ended or did not answer while a checkpoint was written$"
    with pytest.raises(RankLost, match=lost):
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
