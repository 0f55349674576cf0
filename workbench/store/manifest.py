"""The manifest of a finished run: the size and SHA-256 of each of its files, and the name of the run.

It is written before done.json and also lists that file, so a run that has done.json but no manifest has lost the
manifest. A file that is added later is written before it is listed, and a file that is to be replaced is first removed
from the list: a command that is killed in between leaves a file that is not listed, never one that seems changed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.store.atomic import open_regular, read_object, sha256_of, sha256_unless_stopped

NAME = "manifest.json"
PRUNED = "pruned.json"  # names the files that `workbench prune` deletes; written before they are deleted
FORMAT = 1
PLUGS = ("objective.py", "encoder.py")  # copies of files that a command named
FILES = ("spec.json", "plan.json", "env.json", "metrics.jsonl", *PLUGS, "wanted.json", "done.json")
FOLDERS = ("checkpoints", "encoder", "failures", "heads", "points", "predictions", "scores")
COPIES = ("mirrors", "tensorboard", "wandb")  # folders of trackers, whose files no manifest lists
# Folders that a user may delete to save space, also those of a point.
SPARED = ("checkpoints", "encoder", "heads", "predictions")
SETTLED = 2.0  # seconds; a file may change twice within the resolution of its times

Entries = dict[str, dict[str, Any]]  # name below the run's folder -> {"bytes": ..., "sha256": ...}


@dataclass(frozen=True)
class Difference:
    """A file that differs from its entry; kind `spared`: it was pruned, or the user deleted a folder of SPARED."""

    file: str
    kind: Literal["changed", "missing", "unexpected", "spared"]
    what: str


def covers(name: str) -> bool:
    """Return whether the manifest of a finished run lists a file of this name."""
    return name in FILES or name.partition("/")[0] in FOLDERS


def entry(data: bytes) -> dict[str, Any]:
    """Return the entry of a file with this content in a manifest."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def entries(folder: Path) -> Entries:
    """Return the entries of all files that are in a run's folder now. Raises ValueError or OSError."""
    result = {}
    for name in listing(folder):
        try:
            file = open_regular(folder / name)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
        with file:
            result[name] = {"bytes": os.fstat(file.fileno()).st_size, "sha256": sha256_of(file)}
    return result


def listing(folder: Path) -> list[str]:
    """Return the names of all files of a run that a manifest lists, without temporary files of killed processes."""
    paths = [name for name in FILES if os.path.lexists(folder / name)]
    for top in FOLDERS:
        for path, inner, names in os.walk(folder / top):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            paths += [os.path.relpath(os.path.join(path, name), folder) for name in names if name[0] != "."]
    return sorted(paths)


def content(run_id: str, files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of a manifest, without its hash."""
    return {"format": FORMAT, "run_id": run_id, "files": dict(sorted(files.items()))}


def read(folder: Path) -> Entries | None:
    """Return the entries of a run's manifest, None if it has none. Raises ValueError if it is damaged, or OSError."""
    try:
        value = read_object(folder / NAME, format=FORMAT, needs_seal=True)
    except FileNotFoundError:
        return None
    files = value.get("files")
    if not isinstance(files, dict):
        raise ValueError(f"{NAME} has changed since it was written")
    if value.get("run_id") != folder.name:
        raise ValueError(f"{NAME} belongs to the run {ascii(value.get('run_id'))[:80]}")
    for name, listed in files.items():
        inside = covers(name) and not {"", ".", ".."} & set(name.split("/"))
        kinds = {"bytes": int, "sha256": str}
        if not inside or not isinstance(listed, dict) or not all(isinstance(listed.get(k), kinds[k]) for k in kinds):
            raise ValueError(f"{NAME} has no usable 'files'")
    return files


def pruned(folder: Path) -> set[str]:
    """Return the names of the files of a run that were pruned; none if their list is missing or damaged."""
    try:
        value = read_object(folder / PRUNED, format=FORMAT, needs_seal=True)
    except (OSError, ValueError):
        return set()
    files = value.get("files")
    return set(map(str, files)) if value.get("run_id") == folder.name and isinstance(files, list) else set()


def differences(folder: Path, files: Entries, since: int = 0, known: Entries | None = None) -> Iterator[Difference]:
    """Yield each listed file that is missing or changed, by its size and SHA-256.

    A file whose inode has not changed at the time `since` (in nanoseconds, by the clock of the disk) or later is not
    read, and only its size is compared. Files in `known` have just been read, and have these sizes and hashes.
    """
    known = known or {}
    gone = {place for place in map(_spared, files) if place and not os.path.lexists(folder / place)}
    folders = {name[: slash.start()] for name in files for slash in re.finditer("/", name)}
    links = tuple(f"{inner}/" for inner in folders if os.path.islink(folder / inner))
    for name, listed in files.items():
        if _spared(name) in gone:
            yield Difference(name, "spared", f"{name} was deleted with its folder")
            continue
        try:
            what = f"{name} is reached through a symbolic link" if name.startswith(links) else ""
            what = what or _change(f"{folder}/{name}", name, listed, since, known.get(name))
        except FileNotFoundError:
            kind, how = ("spared", "was pruned") if name in pruned(folder) else ("missing", "is missing")
            yield Difference(name, kind, f"{name} {how}")  # type: ignore[arg-type]
            continue
        except OSError as error:
            what = f"{name} cannot be read: {error.strerror}"
        if what:
            yield Difference(name, "changed", what)


def _spared(name: str) -> str:
    """Return a file's folder if a user may delete it, such as "encoder" or "points/00000100/heads", else ""."""
    match = re.match(rf"(?:points/[^/]+/)?(?:{'|'.join(SPARED)})(?=/)", name)
    return match[0] if match else ""


def _change(path: str, name: str, listed: Mapping[str, Any], since: int, known: Mapping[str, Any] | None) -> str:
    """Return how a file differs from its entry, "" if it does not; `known` is its entry now. Raises OSError."""
    if known is None:
        info = os.lstat(path)
        if not stat.S_ISREG(info.st_mode):
            return f"{name} is not a regular file"
        if info.st_size != listed["bytes"] or info.st_ctime_ns < since:
            sha = listed["sha256"]
        elif not since or time.time() - info.st_ctime < SETTLED:
            sha = _sha256(path)
        else:  # the file is not read again by this process while its state is the same
            sha = _sha256_in_state(path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        known = {"bytes": info.st_size, "sha256": sha}
    if known["bytes"] != listed["bytes"]:
        return f"{name} has {known['bytes']} bytes instead of {listed['bytes']}"
    return "" if known["sha256"] == listed["sha256"] else f"{name} has changed since it was written"


@functools.lru_cache(1 << 12)
def _sha256_in_state(path: str, *state: int) -> str:
    return _sha256(path)


def _sha256(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return sha256_unless_stopped(file)
