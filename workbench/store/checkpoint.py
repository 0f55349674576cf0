"""Checkpoints, each complete or absent: folders of safetensors and JSON, never pickle; and the log, metrics.jsonl.

    step-00000200/   model.safetensors optimizer.safetensors state.json manifest.json
    step-00000200/   model-00001-of-00002.safetensors model-00002-of-00002.safetensors ...

In the second kind, each process of a run whose weights are split wrote its own parts, which lie one after another along
the first dimension. Whoever reads it gets whole tensors, so that their number may be another afterwards.

A checkpoint is written under a temporary name, with all files flushed to disk and the manifest of sizes and SHA-256
last; then it is renamed and read back. Only after that are older ones deleted. A checkpoint that differs from its
manifest is not loaded, since safetensors alone does not detect a changed bit.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import DamagedRun, InputError
from workbench.store import atomic
from workbench.store.atomic import LONGEST_LINE, disk_errors, draft_in, dumps, line_start, loads, place, write_all
from workbench.store.lease import Lease
from workbench.store.manifest import pruned

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
RESERVE = 1 << 16  # bytes for state.json and manifest.json
_STEP = re.compile(r"step-(\d{8,})")
_PART = re.compile(r"(.+)-\d{5}-of-\d{5}\.safetensors")
Files = dict[str, dict[str, Any]]  # the size and SHA-256 of each file
Offsets = Mapping[str, Sequence[int]]
Digest = Callable[[io.BufferedReader], str]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that matches its manifest; `warnings` are sentences about newer ones that are damaged."""

    path: Path
    step: int
    state: dict[str, Any]
    warnings: tuple[str, ...] = ()

    def tensors(self, group: str) -> dict[str, Tensor]:
        """Return the tensors of a group such as "model", on the CPU. Raises InputError if they cannot be read."""
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        listed = atomic.read_object(self.path / "manifest.json", format=FORMAT)["files"]
        parts = sorted(name for name in listed if (match := _PART.fullmatch(name)) and match[1] == group)
        pieces: dict[str, list[Tensor]] = {}
        try:
            for part in parts or [f"{group}.safetensors"]:
                for name, tensor in load_file(self.path / part).items():
                    pieces.setdefault(name, []).append(tensor)
        except FileNotFoundError:
            raise InputError(f"{self.path} has no tensors called {group!r}: they were pruned or deleted") from None
        except SafetensorError as error:
            raise InputError(f"{self.path} has no readable tensors called {group!r}: {error}") from None
        return {name: each[0] if len(each) == 1 else torch.cat(each) for name, each in pieces.items()}


def room(folder: Path, needed: int) -> None:
    """Raise OSError with path, needed and free bytes if the disk of `folder` has fewer than `needed` bytes free."""
    existing = next(filter(Path.is_dir, (folder, *folder.absolute().parents)))
    if shutil.disk_usage(existing).free < needed:
        raise atomic.no_room(folder, needed)


def save(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    owner: Lease | None = None,
    beside: Callable[[Path], Callable[[], Files]] = lambda draft: dict,
    offsets: Offsets | None = None,
) -> Path:
    """Write the checkpoint `folder`/step-N, read it back, delete all but the newest two, and return it.

    An undamaged checkpoint of the same step is not written again. With `owner`, nothing is renamed or deleted after
    that lease was lost. If other processes write parts (`write_part`), `beside` tells them the folder, and returns a
    function that waits for their files; `offsets` say where this process's part begins. Raises OSError if the
    checkpoint cannot be written; older ones are unchanged then.
    """
    atomic.own_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:08d}"
    try:
        if owner is not None:
            owner.check()
        atomic.sweep(folder)
        if final.exists() and problem(final) is None:
            return final
        draft = atomic.draft_in(owner.stage if owner else folder)
        try:
            with atomic.disk_errors(final):
                draft.mkdir()
                others = beside(draft)
                files = write_part(draft, tensors, offsets, final) | others()
                with atomic.disk_errors(final, RESERVE):
                    record = {"format": FORMAT, "step": step}
                    files["state.json"] = _write(draft / "state.json", [_bytes(record | {"state": state})])
                    _write(draft / "manifest.json", [_bytes(record | {"files": files})])
                    atomic.sync_folder(draft)
            atomic.place(draft, final, owner.check if owner is not None else None, draft.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        fault = problem(final)
        if fault is not None:
            atomic.discard(final, draft.parent)
            raise OSError(errno.EIO, f"a checkpoint that was just written differs when it is read: {fault}", str(final))
        _prune(folder, step, draft.parent)
    except FileNotFoundError:
        if owner is not None:
            owner.check()
        raise
    return final


def newest(folder: Path, run_id: str = "") -> Checkpoint | None:
    """Return the newest undamaged checkpoint, or None without any.

    Raises DamagedRun if all are damaged, or this one belongs to another run than `run_id`.
    """
    atomic.own_folder(folder)
    warnings: list[str] = []
    for step in reversed(steps(folder)):
        path = folder / f"step-{step:08d}"
        fault = problem(path, atomic.sha256_unless_stopped)
        if fault is None:
            state = atomic.read_object(path / "state.json")["state"]
            if run_id and state.get("run_id") != run_id:
                raise DamagedRun(f"{path} belongs to run {state.get('run_id')}, not to {run_id}; move it away")
            return Checkpoint(path, step, state, tuple(warnings))
        warnings.append(f"{path} is damaged ({fault}); the previous checkpoint is used")
    if warnings:
        raise DamagedRun(
            f"every checkpoint in {folder} is damaged ({warnings[0].partition('(')[2].rpartition(')')[0]}); "
            f"delete that folder to start this run again from step 0"
        )
    return None


def problem(path: Path, sha256: Digest | None = atomic.sha256_of) -> str | None:
    """Return how a checkpoint is damaged, or None; without `sha256` only presence and sizes of files are checked."""
    try:
        if path.is_symlink():
            return "it is a symbolic link"
        content = atomic.read_bytes(path / "manifest.json")
        manifest = atomic.read_object(path / "manifest.json", format=FORMAT)
        if content != _bytes(manifest) or f"step-{manifest['step']:08d}" != path.name:
            return "manifest.json has changed since it was written"
        for name, entry in manifest["files"].items():
            if not os.path.lexists(path / name) and f"{path.parent.name}/{path.name}/{name}" in pruned(path.parents[1]):
                continue
            with atomic.open_regular(path / atomic.checked_name(name, "a file of a checkpoint")) as file:
                if os.fstat(file.fileno()).st_size != entry["bytes"]:
                    return f"{name} has {os.fstat(file.fileno()).st_size} bytes instead of {entry['bytes']}"
                if sha256 is not None and sha256(file) != entry["sha256"]:
                    return f"{name} has changed since it was written"
        stated = "state.json" in manifest["files"]
        if not stated or not isinstance(atomic.read_object(path / "state.json")["state"], dict):
            return "state.json has no state"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{Path(str(error.filename)).name} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"manifest.json is not a manifest of a checkpoint: {error}"
    return None


def faults(folder: Path, hashes: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the name of each damaged checkpoint in `folder` and how it is damaged, as `problem` says."""
    for step in steps(folder):
        name = f"step-{step:08d}"
        if fault := problem(folder / name, atomic.sha256_unless_stopped if hashes else None):
            yield name, fault


def steps(folder: Path) -> list[int]:
    """Return the steps of all checkpoints in `folder`, also of damaged ones, in ascending order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := _STEP.fullmatch(name)))


def _prune(folder: Path, step: int, trash: Path) -> None:
    """Delete all checkpoints before `step` but the newest good one, and damaged ones after it."""
    kept = False
    for other in reversed(steps(folder)):
        path = folder / f"step-{other:08d}"
        if other < step and not kept and problem(path, None) is None:
            kept = True
        elif other < step or (other > step and problem(path) is not None):
            atomic.discard(path, trash)


def write_part(
    draft: Path, tensors: Mapping[str, Mapping[str, Tensor]], offsets: Offsets | None, final: Path | None = None
) -> Files:
    """Write groups of tensors into a checkpoint's `draft`; return its files. Raises OSError naming `final` if given."""
    groups = {f"{group}.safetensors": content(some, offsets) for group, some in tensors.items()}
    needed = sum(size for size, _ in groups.values()) + RESERVE
    room((final or draft).parent, needed)
    with atomic.disk_errors(final or draft, needed):
        files = {name: _write(draft / name, parts) for name, (_, parts) in groups.items()}
        atomic.sync_folder(draft)
    return files


def _bytes(value: Any) -> bytes:
    return (atomic.dumps(value) + "\n").encode()


def _write(path: Path, parts: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write a file and return its size and SHA-256, which is computed in the same pass over the bytes."""
    sha, size = hashlib.sha256(), 0

    def hashed() -> Iterator[bytes | memoryview]:
        nonlocal size
        for part in parts:
            yield part
            sha.update(part)
            size += len(part)

    atomic.write_parts(path, hashed())
    return {"bytes": size, "sha256": sha.hexdigest()}


# ----------------------------------------
# Writers of safetensors files: one tensor at a time, and by the safetensors library.
#
# The library's writer refuses tensors that share storage, and hides errors of the disk in its own exception. So it is
# used only for folders that transformers reads; all reading is done by the library. Format: header length (8 bytes,
# little-endian), header (JSON), data.


_DTYPES = {
    "float64": "F64", "int64": "I64", "uint64": "U64", "float32": "F32", "int32": "I32", "uint32": "U32",
    "float16": "F16", "bfloat16": "BF16", "int16": "I16", "uint16": "U16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


PLACES = "DCP_SHARDING_INFO"  # the key under which torch's distributed checkpoints say where the tensors of a part lie


def content(
    tensors: Mapping[str, Tensor], offsets: Mapping[str, Sequence[int]] | None = None
) -> tuple[int, Iterator[bytes | memoryview]]:
    """Return the size in bytes and the parts of a file with these tensors, of any device, strides and storage.

    With `offsets`, each tensor is a part of one, and begins there at this index of each dimension. The file has these
    as torch's distributed checkpoints have them in safetensors.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # keeps every tensor aligned
    header: dict[str, Any] = {}
    if offsets is not None:
        places = {name: {"saved_offsets": list(offsets[name])} for name in order}
        header["__metadata__"] = {"format": "pt", PLACES: json.dumps(places)}
    end = 0
    for name in order:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        kind = _DTYPES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def parts() -> Iterator[bytes | memoryview]:
        import torch

        yield len(text).to_bytes(8, "little") + text
        for name in order:  # elements in order, which are copied only if necessary
            flat = tensors[name].detach().cpu().contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy().data if flat.numel() else b""

    return 8 + len(text) + end, parts()


def save_copies(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a copy of each tensor with the library, which marks the file as transformers expects it."""
    from safetensors.torch import save_file

    apart = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(apart, path, metadata={"format": "pt"})


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Raise the OSError that is hidden in an exception of the safetensors library's writer; `path` is what it names."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from None


# ----------------------------------------
# The log of a run: one JSON object a line, appended in whole lines, and cut back to a step when the run is resumed.

COPIED = 1 << 24  # bytes that are copied at once


@dataclass(eq=False)
class Metrics:
    """Writer that appends to the log at `path`. With `owner`, nothing is written after the lease was lost.

    The first write, or `rewind`, copies the rows that are kept to a new file and puts it in place of the old one. A
    former owner that was paused and still has the old file open then writes into a file that nobody reads.
    """

    path: Path
    owner: Lease | None = None
    _file: int = field(default=-1, init=False)
    _bytes: int = field(default=0, init=False)  # of all rows in the file
    _sha: Any = field(default_factory=hashlib.sha256, init=False)  # of all rows in the file

    def content(self) -> dict[str, Any]:
        """Return the size and the SHA-256 of all rows so far."""
        return {"bytes": self._bytes, "sha256": self._sha.hexdigest()}

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows as whole lines in one write; NaN and infinity become null.

        Once this returns, the rows survive the end of this process; after `sync` they also survive a failure of the
        machine. Raises OSError if not all rows can be written. Raises InputError, and writes no row, if a row is
        longer than readers accept.
        """
        lines = [dumps(row).encode() + b"\n" for row in rows]
        if (longest := max(map(len, lines), default=0)) > LONGEST_LINE:
            raise InputError(
                f"{self.path}: a row of metrics has {longest:,} bytes, and {LONGEST_LINE:,} are allowed; let the "
                f"objective return fewer metrics, or shorter names"
            )
        data = b"".join(lines)
        if self._file < 0:
            self.rewind(sys.maxsize)
        if self.owner is not None:
            self.owner.check()
        before = os.fstat(self._file).st_size
        try:
            with disk_errors(self.path, len(data)):
                write_all(self._file, data)
            self._count(data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise

    def rewind(self, step: int) -> int:
        """Open the file without rows past `step` and without a torn end; return the last step kept, 0 without rows."""
        self.close()
        self._sha, self._bytes = hashlib.sha256(), 0
        draft = draft_in(self.owner.stage if self.owner else self.path.parent)
        try:
            self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            last = self._copy(step) if os.path.lexists(self.path) else 0
            place(draft, self.path, self.owner.check if self.owner is not None else None)
        except BaseException as error:
            self.close()
            draft.unlink(missing_ok=True)
            if isinstance(error, FileNotFoundError) and self.owner is not None:
                self.owner.check()
            raise
        return last

    def sync(self) -> None:
        """Wait until all rows are on disk; called before a checkpoint, so that no checkpoint is newer than its rows."""
        if self._file >= 0:
            with disk_errors(self.path):
                os.fsync(self._file)

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    def _count(self, data: bytes) -> None:
        self._sha.update(data)
        self._bytes += len(data)

    def _copy(self, step: int) -> int:
        """Copy the rows up to `step` to the new file and return the last step."""
        old = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            end, last = _cut(old, os.fstat(old).st_size, step)
            with disk_errors(self.path, end):
                for start in range(0, end, COPIED):
                    part = os.pread(old, min(COPIED, end - start), start)
                    write_all(self._file, part)
                    self._count(part)
                os.fsync(self._file)
            return last
        finally:
            os.close(old)


def _cut(log: int, size: int, step: int) -> tuple[int, int]:
    """Return where the last row up to `step` ends in an open log, and its step; 0 and 0 if there is none.

    The log is read from its end, because all rows that are dropped are there.
    """
    end = line_start(log, size)
    while end:
        start = line_start(log, end - 1)
        try:
            row = loads(os.pread(log, min(end - start, LONGEST_LINE), start))
            if row["step"] <= step:
                return end, int(row["step"])
        except (ValueError, TypeError, KeyError):
            pass  # a power cut may leave a line that is not a row
        end = start
    return 0, 0
