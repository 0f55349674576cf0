"""The cache: whatever can be made again, with the SHA-256 of its content, checked whenever it is opened.

An entry is a folder with a `seal.json` that names every file with its size and hash, or a JSON file that holds its own
hash. What does not match, from a single bit to two folders that changed places, is named on standard error and made
anew. Large files are checked by blocks drawn anew every hour; `differences` reads all of everything.

Folders are made in a staging folder beside their place, which holds a lease: its heartbeat tells other containers and
machines that its owner is at work. An owner is judged by its process only on the same boot and in the same process
namespace (`workbench.store.owner`).
"""

from __future__ import annotations

import functools
import hashlib
import io
import logging
import os
import random
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.store import atomic, owner
from workbench.store.lease import LeaseHeld, acquire

log = logging.getLogger("workbench")
SEAL = "seal.json"
BLOCK = 1 << 20  # bytes of a large file that have a hash of their own
WHOLE = 16 << 20  # bytes; a larger file is checked by some of its blocks
SAMPLED = 64  # blocks of large files that are read when a folder is opened
UNCLAIMED = 600.0  # seconds after which a staging folder without a lease is one of a process killed at its beginning
LOOK = 0.2  # seconds between looks at whether another process has finished
FOLDERS, FILES = ("data", "docs", "tokenizers", "kernels"), ("probes", "baselines", "hub")


class Older(ValueError):
    """An entry of an earlier version, which wrote no hashes: it is not used, and nothing shows whether it is whole."""


# ---- entries that are one JSON file ----


def _with_hash(name: str, value: Any) -> bytes:
    content = atomic.dumps({"name": name, "value": value})
    return f'{{"sha256":"{hashlib.sha256(content.encode()).hexdigest()}",{content[1:]}\n'.encode()


def _checked(path: Path) -> Any:
    """The value of a file written by `write_entry`. Raises ValueError where it is not what was written, or OSError."""
    try:
        content = atomic.read_bytes(path, largest=1 << 30)
    except ValueError as error:  # a link, pipe or device
        raise ValueError(f"{path.name} {error}") from None
    try:
        raw = atomic.loads(content)
    except ValueError:
        raw = None
    if isinstance(raw, dict) and "sha256" not in raw and "value" not in raw:
        raise Older(f"{path.name} has no SHA-256, as those made by earlier versions")
    value = raw.get("value") if isinstance(raw, dict) else None
    if value is None or content != _with_hash(path.name, value):
        raise ValueError(f"{path.name} is not what was written, by its SHA-256")
    return value


def write_entry(path: Path, value: Any) -> None:
    """Write a JSON value with its hash, in one step. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        atomic.discard(path)
    atomic.write_atomic(path, _with_hash(path.name, value))


def read_entry(path: Path) -> Any:
    """The value of an entry; None if there is none, or a damaged one, which is said."""
    try:
        return _checked(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        _say(path, str(error))
        return None


@functools.cache
def _say(path: Path, fault: str) -> None:
    """Once a process, though a damaged entry may be looked at twice before it is made anew."""
    log.warning("%s in the cache cannot be used: %s; it is made anew", path, fault)


# ---- entries that are a folder ----


def is_whole(folder: Path) -> bool:
    """Whether a folder of the cache is there and is what was written. A damaged one is said: it is made anew."""
    if not os.path.lexists(folder):
        return False
    fault = next(faults(folder), None)
    if fault:
        _say(folder, fault)
    return fault is None


def faults(folder: Path, full: bool = False) -> Iterator[str]:
    """What is not as it was when the folder was made, a phrase for each file. `full` reads large files to their end."""
    try:
        sealed = _checked(folder / SEAL)
        if sealed["folder"] != folder.name:
            yield f"it was made as {sealed['folder']}"
    except (FileNotFoundError, NotADirectoryError):
        yield f"it has no {SEAL}, as those made by earlier versions"
        return
    except (OSError, ValueError) as error:
        yield str(error)
        return
    there = sealed["files"]
    yield from (f"{name} does not belong to it" for name in sorted(set(_names(folder)) - set(there)))
    large = sum(len(each["blocks"]) > 0 for each in there.values())
    for name, each in there.items():
        try:
            with atomic.open_regular(folder / name) as file:
                if not _matches(file, each, full, max(2, SAMPLED // max(large, 1)), name):
                    yield f"{name} is not what was written, by its SHA-256"
        except FileNotFoundError:
            yield f"{name} is missing"
        except ValueError as error:  # a link, pipe or device
            yield f"{name} {error}"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"


def _matches(file: io.BufferedReader, each: dict[str, Any], full: bool, count: int, name: str) -> bool:
    if os.fstat(file.fileno()).st_size != each["bytes"]:
        return False
    hashes = each["blocks"]
    if full or not hashes:
        return bool(hashlib.file_digest(file, "sha256").hexdigest() == each["sha256"])
    drawn = random.Random(f"{name} {time.time() // 3600:.0f}").sample(range(len(hashes)), min(count, len(hashes)))
    for number in sorted({0, len(hashes) - 1, *drawn}):
        file.seek(number * BLOCK)
        if _short(file.read(BLOCK)) != hashes[number]:
            return False
    return True


def _short(block: bytes) -> str:
    return hashlib.sha256(block).hexdigest()[:16]


def _names(folder: Path) -> Iterator[str]:
    """Every file below, but for the seal and hidden ones, which network disks put there."""
    for place, _, leaves in os.walk(folder):
        for leaf in leaves:
            name = str(Path(place, leaf).relative_to(folder))
            if name != SEAL and not leaf.startswith("."):
                yield name


def _seal(folder: Path, name: str) -> None:
    """Write down what a finished folder holds, which is to be called `name`."""
    there: dict[str, Any] = {}
    for leaf in sorted(_names(folder)):
        whole, blocks = hashlib.sha256(), []
        with atomic.open_regular(folder / leaf) as file:
            while block := file.read(BLOCK):
                whole.update(block)
                blocks.append(_short(block))
            size = file.tell()
        there[leaf] = {"bytes": size, "sha256": whole.hexdigest(), "blocks": blocks if size > WHOLE else []}
    atomic.write_new(folder / SEAL, _with_hash(SEAL, {"folder": name, "files": there}))


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder`, sealed and on disk, when the block ends well, else it is removed.

    When another process finished the same folder meanwhile, theirs stays: equal keys mean equal content. What stands
    damaged in its place is replaced. Raises OSError when the disk does.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = folder.with_name(f".{folder.name}~{uuid.uuid4().hex}")
    stage.mkdir()
    try:
        with atomic.disk_errors(folder):
            lease = acquire(stage)
        try:
            _sweep(stage)
            content = stage / "content"
            with atomic.disk_errors(folder):
                content.mkdir()
                yield content
                _seal(content, folder.name)
                atomic.sync_tree(content)
            _place(content, folder)
        finally:
            lease.release()
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _place(content: Path, folder: Path) -> None:
    """Rename `content` to `folder`, unless an intact one is there."""
    while not atomic.place_first(content, folder):
        if not any(faults(folder, full=True)):
            return
        discard(folder)


def discard(path: Path) -> None:
    """Take an entry out of the cache; nothing happens where another process was faster."""
    with suppress(FileNotFoundError):
        atomic.discard(path)


def _sweep(stage: Path) -> None:
    """Remove what killed processes left beside `stage`, which was made just now, by the clock of its disk."""
    now = stage.stat().st_mtime
    for left in stage.parent.iterdir():
        if left != stage and left.name.startswith((".", atomic.STAGE, atomic.TRASH)) and _is_abandoned(left, now):
            with suppress(OSError):
                atomic.discard(left)


def _is_abandoned(left: Path, now: float) -> bool:
    """Whether the maker of a staging folder is gone for certain, or has given no sign of life for two hours.

    A folder with nothing but a lease in the making is judged after ten minutes: taking a lease takes milliseconds.
    Folders of earlier versions, called `.NAME~HOST~PID~TOKEN`, have no lease: equal names of hosts and numbers of
    processes in two containers say nothing, so only their age counts.
    """
    if left.name.startswith(atomic.TRASH):
        return True
    try:
        if not left.name.startswith(atomic.STAGE) and "~" not in left.name:
            return False
        seen = owner.read(left) if left.is_dir() else None
        if seen is not None and (known := owner.fate(seen)) != "unknown":
            return known == "dead"
        below = list(left.rglob("*"))
        newest = max(place.lstat().st_mtime for place in (left, *below))
    except OSError:
        return False
    unclaimed = seen is None and left.is_dir() and all(atomic.STAGE in str(place.relative_to(left)) for place in below)
    return now - newest > (UNCLAIMED if unclaimed else owner.FORGOTTEN)


@contextmanager
def alone(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Own `folder` inside the block, by a lease (`workbench.store.lease`); `waiting` is called
    while another process does.

    Whoever stands still for so long that another takes over does the work twice: a `staged` folder stays whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            lease = acquire(folder, patience=0)
            break
        except LeaseHeld:
            waiting()
            time.sleep(LOOK)
    try:
        yield
    finally:
        lease.release()


# ---- all of it ----


@dataclass(frozen=True)
class Difference:
    """An entry that is not as it was written. One that is not `covered` has no hash that it could be compared with."""

    entry: Path
    what: str
    covered: bool = True

    def __str__(self) -> str:
        return f"{self.entry}: {self.what}"


def differences(root: Path | None = None) -> Iterator[Difference]:
    """Yield every difference between the cache and what was written to it. All files are read in full."""
    root = root or atomic.cache_root()
    for kind in FOLDERS:
        for folder in _entries(root / kind):
            covered = os.path.lexists(folder / SEAL)
            yield from (Difference(folder, fault, covered) for fault in faults(folder, full=True))
    for kind in FILES:
        for path in _entries(root / kind):
            try:
                _checked(path)
            except ValueError as error:
                yield Difference(path, str(error), not isinstance(error, Older))
            except OSError as error:
                yield Difference(path, f"cannot be read: {error.strerror}")


def _entries(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
