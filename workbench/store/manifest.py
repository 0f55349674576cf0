"""The manifest of a finished run: the size and SHA-256 of each of its files, and the name of the run that they are of.

It is written before done.json, which it covers, so a run that is done and has none lost it. A file that is added later
is written before the manifest names it, and one that is replaced is taken out of the manifest first: a command killed
between the two leaves a file that is not named yet, never one that seems to have changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.store.atomic import open_regular, read_sealed

NAME = "manifest.json"
FORMAT = 1
FILES = ("spec.json", "plan.json", "env.json", "metrics.jsonl", "objective.py", "wanted.json", "done.json")
FOLDERS = ("checkpoints", "encoder", "failures", "heads", "points", "scores")
SPARED = ("checkpoints", "encoder", "heads")  # may be deleted whole to save room, also those of a point

Entries = dict[str, dict[str, Any]]  # name below the run's folder -> {"bytes": ..., "sha256": ...}


@dataclass(frozen=True)
class Difference:
    """One file that is not as the manifest says, and how it differs in a few words.

    `spared` is a file of a folder that is gone as a whole and that no report needs.
    """

    file: str
    kind: Literal["changed", "missing", "unexpected", "spared"]
    what: str


def covers(name: str) -> bool:
    """Return whether the manifest of a finished run lists a file of this name."""
    return name in FILES or name.partition("/")[0] in FOLDERS


def entry(data: bytes) -> dict[str, Any]:
    """Return what the manifest says of a file with this content."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def entries(folder: Path) -> Entries:
    """Return what a manifest says of the files that are in a run's folder now. Raises ValueError or OSError."""
    found = {}
    for name in listing(folder):
        with open_regular(folder / name) as file:
            size = os.fstat(file.fileno()).st_size
            found[name] = {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    return found


def listing(folder: Path) -> list[str]:
    """Return the names of all files of a run that a manifest covers, without what killed writers left behind."""
    found = [name for name in FILES if os.path.lexists(folder / name)]
    for top in FOLDERS:
        for path, inner, names in os.walk(folder / top):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            found += [os.path.relpath(os.path.join(path, name), folder) for name in names if name[0] != "."]
    return sorted(found)


def content(run_id: str, files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the object that stands in the manifest."""
    return {"format": FORMAT, "run_id": run_id, "files": dict(sorted(files.items()))}


def read(folder: Path) -> Entries | None:
    """Return the entries of a run's manifest, None where it has none. Raises ValueError when it is damaged, OSError."""
    try:
        value, has_seal = read_sealed(folder / NAME, format=FORMAT)
    except FileNotFoundError:
        return None
    files = value.get("files")
    if not has_seal or not isinstance(files, dict):
        raise ValueError(f"{NAME} is not what was written there")
    if value.get("run_id") != folder.name:
        raise ValueError(f"{NAME} is of the run {ascii(value.get('run_id'))[:80]}")
    if not all(_usable(name, said) for name, said in files.items()):
        raise ValueError(f"{NAME} has no usable 'files'")
    return files


def _usable(name: str, said: Any) -> bool:
    """Return whether an entry names a file of a run and holds what an entry holds."""
    inside = covers(name) and not {"", ".", ".."} & set(name.split("/"))
    whole = isinstance(said, dict) and isinstance(said.get("bytes"), int) and isinstance(said.get("sha256"), str)
    return inside and whole


def differences(folder: Path, files: Entries, full: bool) -> Iterator[Difference]:
    """Yield each listed file that is missing or changed: by its size, or with `full` by its SHA-256 as well."""
    gone = {place for place in map(_spared, files) if place and not os.path.lexists(folder / place)}
    links = {inner for inner in _folders_of(files) if os.path.islink(folder / inner)}
    for name, said in files.items():
        if _spared(name) in gone:
            yield Difference(name, "spared", f"{name} was deleted with its folder")
            continue
        try:
            what = _linked(name, links) or _change(f"{folder}/{name}", name, said, full)
        except FileNotFoundError:
            yield Difference(name, "missing", f"{name} is missing")
            continue
        except OSError as error:
            what = f"{name} cannot be read: {error.strerror}"
        if what:
            yield Difference(name, "changed", what)


def unexpected(folder: Path, files: Entries) -> list[str]:
    """Return the files of a finished run that its manifest does not name."""
    return [name for name in listing(folder) if name not in files]


def _spared(name: str) -> str:
    """Return the folder of a file that may be deleted whole, such as "encoder" or "points/00000100/heads", else ""."""
    found = re.match(rf"(?:points/[^/]+/)?(?:{'|'.join(SPARED)})(?=/)", name)
    return found[0] if found else ""


def _folders_of(files: Entries) -> set[str]:
    """Return every folder that a listed file is in, as names below the run's folder."""
    parts = [name.split("/") for name in files]
    return {"/".join(words[:depth]) for words in parts for depth in range(1, len(words))}


def _linked(name: str, links: set[str]) -> str:
    linked = bool(links) and any(name.startswith(f"{link}/") for link in links)
    return f"{name} is reached through a symbolic link" if linked else ""


def _change(path: str, name: str, said: Mapping[str, Any], full: bool) -> str:
    """Return how a file differs from its entry, "" where it does not. Raises OSError."""
    info = os.lstat(path)
    if not stat.S_ISREG(info.st_mode):
        return f"{name} is not a regular file"
    if info.st_size != said["bytes"]:
        return f"{name} has {info.st_size} bytes instead of {said['bytes']}"
    if full:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != said["sha256"]:
                return f"{name} has changed since it was written"
    return ""
