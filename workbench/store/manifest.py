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

from workbench.store.atomic import open_regular, read_sealed, sha256_unless_stopped

NAME = "manifest.json"
PRUNED = "pruned.json"  # names files that `workbench prune` deletes; it is written before they are
FORMAT = 1
FILES = ("spec.json", "plan.json", "env.json", "metrics.jsonl", "objective.py", "wanted.json", "done.json")
FOLDERS = ("checkpoints", "encoder", "failures", "heads", "points", "predictions", "scores")
# Folders that a user may delete to save space, also those of a point.
SPARED = ("checkpoints", "encoder", "heads", "predictions")
SETTLED = 2.0  # seconds; a file may change twice within the resolution of its times

Entries = dict[str, dict[str, Any]]  # name below the run's folder -> {"bytes": ..., "sha256": ...}


@dataclass(frozen=True)
class Difference:
    """A file that differs from its entry in the manifest; `what` describes the difference.

    The kind is `spared` if the file was pruned, or its whole folder was deleted and no report needs it.
    """

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
            size = os.fstat(file.fileno()).st_size
            result[name] = {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
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
        value = read_sealed(folder / NAME, format=FORMAT)
    except FileNotFoundError:
        return None
    files = value.get("files")
    if not isinstance(files, dict):
        raise ValueError(f"{NAME} has changed since it was written")
    if value.get("run_id") != folder.name:
        raise ValueError(f"{NAME} belongs to the run {ascii(value.get('run_id'))[:80]}")
    if not all(_usable(name, listed) for name, listed in files.items()):
        raise ValueError(f"{NAME} has no usable 'files'")
    return files


def pruned(folder: Path) -> set[str]:
    """Return the names of the files of a run that were pruned; none if their list is missing or damaged."""
    try:
        value = read_sealed(folder / PRUNED, format=FORMAT)
    except (OSError, ValueError):
        return set()
    files = value.get("files")
    return set(map(str, files)) if value.get("run_id") == folder.name and isinstance(files, list) else set()


def _usable(name: str, listed: Any) -> bool:
    """Return whether an entry names a file of a run and has a size and a hash."""
    inside = covers(name) and not {"", ".", ".."} & set(name.split("/"))
    whole = isinstance(listed, dict) and isinstance(listed.get("bytes"), int) and isinstance(listed.get("sha256"), str)
    return inside and whole


def differences(folder: Path, files: Entries, since: int = 0, known: Entries | None = None) -> Iterator[Difference]:
    """Yield each listed file that is missing or changed, by its size and SHA-256.

    A file whose inode has not changed at the time `since` (in nanoseconds, by the clock of the disk) or later is not
    read, and only its size is compared. Files in `known` have just been read, and have these sizes and hashes.
    """
    known = known or {}
    gone = {place for place in map(_spared, files) if place and not os.path.lexists(folder / place)}
    links = {inner for inner in _folders_of(files) if os.path.islink(folder / inner)}
    for name, listed in files.items():
        if _spared(name) in gone:
            yield Difference(name, "spared", f"{name} was deleted with its folder")
            continue
        try:
            what = _linked(name, links) or _change(f"{folder}/{name}", name, listed, since, known.get(name))
        except FileNotFoundError:
            if name in pruned(folder):
                yield Difference(name, "spared", f"{name} was pruned")
            else:
                yield Difference(name, "missing", f"{name} is missing")
            continue
        except OSError as error:
            what = f"{name} cannot be read: {error.strerror}"
        if what:
            yield Difference(name, "changed", what)


def unexpected(folder: Path, files: Entries) -> list[str]:
    """Return the files of a finished run that its manifest does not list."""
    return [name for name in listing(folder) if name not in files]


def _spared(name: str) -> str:
    """Return a file's folder if a user may delete it, such as "encoder" or "points/00000100/heads", else ""."""
    match = re.match(rf"(?:points/[^/]+/)?(?:{'|'.join(SPARED)})(?=/)", name)
    return match[0] if match else ""


def _folders_of(files: Entries) -> set[str]:
    """Return all folders of listed files, as paths relative to the run's folder."""
    parts = [name.split("/") for name in files]
    return {"/".join(words[:depth]) for words in parts for depth in range(1, len(words))}


def _linked(name: str, links: set[str]) -> str:
    """Return a phrase about a file below one of the symbolic links, "" if it is not."""
    linked = bool(links) and any(name.startswith(f"{link}/") for link in links)
    return f"{name} is reached through a symbolic link" if linked else ""


def _change(path: str, name: str, listed: Mapping[str, Any], since: int, known: Mapping[str, Any] | None) -> str:
    """Return how a file differs from its entry, "" if it does not; `known` is its entry now. Raises OSError."""
    info = os.lstat(path) if known is None else None
    if info is not None and not stat.S_ISREG(info.st_mode):
        return f"{name} is not a regular file"
    size = info.st_size if info is not None else known["bytes"]  # type: ignore[index]
    if size != listed["bytes"]:
        return f"{name} has {size} bytes instead of {listed['bytes']}"
    if info is not None and info.st_ctime_ns < since:
        return ""
    sha = _sha256_of(path, info, bool(since)) if info is not None else known["sha256"]  # type: ignore[index]
    return "" if sha == listed["sha256"] else f"{name} has changed since it was written"


def _sha256_of(path: str, info: os.stat_result, once: bool) -> str:
    """Return the SHA-256 of a file; if `once`, it is not read again by this process while its `info` stays the same."""
    if not once or time.time() - info.st_ctime < SETTLED:
        return _sha256(path)
    return _sha256_in_state(path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


@functools.lru_cache(1 << 12)
def _sha256_in_state(path: str, *state: int) -> str:
    return _sha256(path)


def _sha256(path: str) -> str:
    """Return the SHA-256 of a file. Raises OSError, or the exception of a signal to the command."""
    with open(path, "rb", buffering=0) as file:
        return sha256_unless_stopped(file)
