"""The cache of files that can be made again, such as prepared text; their SHA-256 is checked whenever they are opened.

An entry is a folder with a `seal.json` that lists every file with its size and hash, or a JSON file that contains its
own hash. An entry that does not match, be it in one bit or because two folders were exchanged, is reported on standard
error and made again. Of large files only some blocks are checked, other ones every hour; `differences` reads all files
completely.

Folders are made in a staging folder beside their final place. It holds a lease, whose heartbeat shows other containers
and machines that its owner is running. Whether the owner's process exists is checked only on the same boot and in the
same process namespace (`workbench.store.owner`).
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError, LeaseHeld
from workbench.progress import warn_once
from workbench.store import atomic, owner
from workbench.store.lease import Lease, acquire

SEAL = "seal.json"
DAMAGED = "{} in the cache cannot be used: {}; it will be made again"
BLOCK = 1 << 20  # bytes of each block of a large file, which has its own hash
WHOLE = 16 << 20  # bytes; of a larger file only some blocks are checked
SAMPLED = 64  # blocks of large files that are read when a folder is opened
UNCLAIMED = 600.0  # seconds after which a staging folder without a lease counts as left by a killed process
LOOK = 0.2  # seconds between checks of whether another process has finished
FOLDERS = ("data", "slices", "signatures", "duplicates", "docs", "tokenizers", "kernels", "converted", "submissions")
FILES = ("probes", "baselines", "hub", "texts", "plans")


# ---- entries that are one JSON file ----


def checked_entry(path: Path) -> Any:
    """Return the value in a file written by `write_entry`. Raises ValueError if the file has changed, or OSError."""
    entry = atomic.read_object(path, largest=1 << 30, needs_seal=True)
    if entry.get("name") != path.name:
        raise ValueError(f"{path.name} has changed since it was written (its name differs)")
    return entry["value"]


def write_entry(path: Path, value: Any) -> None:
    """Write a JSON value with its hash, in one step, and remove old drafts of killed processes. Raises OSError."""
    make_folder(path.parent)
    atomic.sweep_old(path.parent)
    if path.is_dir() and not path.is_symlink():
        atomic.discard(path)
    atomic.write_atomic(path, atomic.sealed({"name": path.name, "value": value}))


def read_entry(path: Path) -> Any:
    """Return the value of an entry, or None if there is none; a warning is logged if it is damaged."""
    try:
        return checked_entry(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        warn_once(DAMAGED.format(path, error.strerror))  # str(error) repeats the path, which may be long
    except ValueError as error:
        warn_once(DAMAGED.format(path, error))
    return None


# ---- entries that are a folder ----


def is_whole(folder: Path, blocks: int | None = None) -> bool:
    """Return whether a folder of the cache is there and unchanged, by `blocks` blocks of large files; warn if not."""
    if not os.path.lexists(folder):
        return False
    fault = next(faults(folder, blocks=blocks), None)
    if fault:
        warn_once(DAMAGED.format(folder, fault))
    return fault is None


def faults(folder: Path, full: bool = False, blocks: int | None = None) -> Iterator[str]:
    """Yield a phrase about each changed file of a folder, by `blocks` blocks of large files in all unless `full`."""
    try:
        sealed = checked_entry(folder / SEAL)
        if sealed["folder"] != folder.name:
            yield f"it was made under the name {sealed['folder']}"
    except (FileNotFoundError, NotADirectoryError):
        yield f"it has no {SEAL}"
        return
    except (OSError, ValueError) as error:
        yield str(error)
        return
    entries = sealed["files"]
    for name in sorted({*_names(folder)} - {*entries}):
        yield f"{name} does not belong to it"
    large = 0
    for each in entries.values():
        large += len(each["blocks"]) > 0
    count = max(2, (SAMPLED if blocks is None else blocks) // max(large, 1))
    for name, each in entries.items():
        try:
            with atomic.open_regular(folder / name) as file:
                if not _matches(file, each, full, count, name):
                    yield f"{name} has changed since it was written, according to its SHA-256"
        except FileNotFoundError:
            yield f"{name} is missing"
        except ValueError as error:  # a link, pipe or device
            yield f"{name} {error}"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"


def _matches(file: io.BufferedReader, each: dict[str, Any], full: bool, count: int, name: str) -> bool:
    """Return whether a file has the size and hash of its entry, by all of it, or by `count` random blocks if large."""
    if os.fstat(file.fileno()).st_size != each["bytes"]:
        return False
    hashes = each["blocks"]
    if full or not hashes:
        return bool(atomic.sha256_of(file) == each["sha256"])
    drawn = random.Random(f"{name} {time.time() // 3600:.0f}").sample(range(len(hashes)), min(count, len(hashes)))
    for number in sorted({0, len(hashes) - 1, *drawn}):
        file.seek(number * BLOCK)
        if hashlib.sha256(file.read(BLOCK)).hexdigest()[:16] != hashes[number]:
            return False
    return True


def _names(folder: Path) -> Iterator[str]:
    """Yield the names of all files below a folder, except for the seal and hidden files, which network disks create."""
    for place, _, leaves in os.walk(folder):
        for leaf in leaves:
            name = str(Path(place, leaf).relative_to(folder))
            if name != SEAL and not leaf.startswith("."):
                yield name


def _seal(folder: Path, name: str) -> None:
    """Write the sizes and hashes of all files of a finished folder, whose final name is `name`, into its seal."""
    entries: dict[str, Any] = {}
    for leaf in sorted(_names(folder)):
        whole, blocks = hashlib.sha256(), []
        with atomic.open_regular(folder / leaf) as file:
            while block := file.read(BLOCK):
                whole.update(block)
                blocks.append(hashlib.sha256(block).hexdigest()[:16])
            size = file.tell()
        entries[leaf] = {"bytes": size, "sha256": whole.hexdigest(), "blocks": blocks if size > WHOLE else []}
    value = {"folder": name, "files": entries}
    atomic.write_new(folder / SEAL, atomic.sealed({"name": SEAL, "value": value}))


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which becomes `folder`, sealed and flushed to disk, if the block ends without an error.

    Otherwise it is removed. If another process finished the same folder in the meantime, that one stays, since folders
    of the same name have the same content; a damaged one is replaced. Raises OSError if the disk fails.
    """
    stage = folder.with_name(f".{folder.name}~{uuid.uuid4().hex}")
    with atomic.disk_errors(folder):
        make_folder(folder.parent)
        stage.mkdir()
        try:
            with acquire(stage):
                now = stage.stat().st_mtime  # of a new folder: the present by the disk's clock
                for left in stage.parent.iterdir():  # what killed processes left
                    hidden = left.name.startswith((".", atomic.STAGE, atomic.TRASH))
                    if left != stage and hidden and _is_abandoned(left, now):
                        with suppress(OSError):
                            atomic.discard(left)
                content = stage / "content"
                content.mkdir()
                yield content
                _seal(content, folder.name)
                atomic.sync_tree(content)
                while not atomic.place_first(content, folder) and any(faults(folder, full=True)):
                    discard(folder)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Make a folder of the cache, unless there is one. Raises InputError if a file is in its place, or OSError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} must be a folder of the cache, but a file is in the way; move it away") from None


def discard(path: Path) -> None:
    """Remove an entry from the cache, unless another process has already removed it."""
    with suppress(FileNotFoundError):
        atomic.discard(path)


def _is_abandoned(left: Path, now: float) -> bool:
    """Return whether a staging folder's owner has ended, or wrote nothing for two hours (10 minutes unleased)."""
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
def alone(folder: Path, waiting: Callable[[], None]) -> Iterator[Lease]:
    """Hold and yield the lease of `folder` inside the block (`workbench.store.lease`).

    `waiting` is called repeatedly while another process holds it. If a process is paused for so long that another one
    takes the lease over, the work is done twice; a folder made by `staged` is complete in this case too.
    """
    make_folder(folder)
    while True:
        try:
            lease = acquire(folder, patience=0)
            break
        except LeaseHeld:
            waiting()
            time.sleep(LOOK)
    with lease:
        yield lease


# ---- the whole cache ----


def differences(root: Path | None = None) -> Iterator[str]:
    """Yield a phrase on each entry of the cache that has changed since it was written; every file is read fully."""
    root = root or atomic.cache_root()
    for folder in _entries(root, FOLDERS):
        yield from (f"{folder}: {fault}" for fault in faults(folder, full=True))
    for path in _entries(root, FILES):
        try:
            checked_entry(path)
        except ValueError as error:
            yield f"{path}: {error}"
        except OSError as error:
            yield f"{path}: cannot be read: {error.strerror}"


@dataclass(frozen=True)
class Unused:
    """An entry, or what a killed process left, that nobody uses; `why` says how this is known."""

    entry: Path
    why: str
    bytes: int


def unused(root: Path, days: float) -> list[Unused]:
    """Return what can be removed from a cache: what killed processes left, and entries not used for some days.

    An entry is used when it is written or read, by the times that its disk keeps; on a disk that keeps no times of
    reading, it is the time of writing.
    """
    found, now = [], time.time()
    for kind in (*FOLDERS, *FILES):
        for path in sorted((root / kind).iterdir()) if (root / kind).is_dir() else ():
            with suppress(FileNotFoundError):  # another process removes it
                used, size = _use(path)
                if path.name.startswith("."):
                    if _is_abandoned(path, now):
                        found.append(Unused(path, "left by a process that ended", size))
                elif now - used >= days * 86400:
                    day = time.strftime("%Y-%m-%d", time.localtime(used))
                    found.append(Unused(path, f"last used on {day}", size))
    return found


def _use(path: Path) -> tuple[float, int]:
    """Return when a file, or any file below a folder, was read or written last, and the size of all of them."""
    used, size = path.lstat().st_mtime, 0
    for place in path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,):
        with suppress(FileNotFoundError):
            info = place.lstat()
            if not place.is_dir():  # a folder counts as read when a command lists it
                used, size = max(used, info.st_atime, info.st_mtime), size + info.st_size
    return used, size


def _entries(root: Path, kinds: Sequence[str]) -> Iterator[Path]:
    for kind in kinds:
        yield from sorted(path for path in (root / kind).glob("*") if not path.name.startswith("."))
