"""Regular files of a folder, which are found without opening any of them, and settings read as JSON objects."""

from __future__ import annotations

import itertools
import math
import os
import stat
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.store.atomic import loads, read_bytes

MOST_ENTRIES = 10_000
LARGEST_SETTINGS = 4 << 20  # bytes of config.json and similar files, which usually have kilobytes
LARGEST_VOCABULARY = 64 << 20  # bytes of tokenizer.json; the largest in use have about 35 million


def regular_files(folder: Path) -> dict[str, Path]:
    """Return the regular files of a folder by name, each with links resolved; subfolders are left out.

    Raises InputError for a pipe, socket or device, and for a link that leads out of the folder. The links of the hub's
    own cache, from `snapshots/REVISION` to `blobs`, are allowed.
    """
    root = Path(os.path.realpath(folder))
    try:
        with os.scandir(root) as entries:
            files = (entry.name for entry in entries if not _is_folder(entry))
            names = list(itertools.islice(files, MOST_ENTRIES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if len(names) > MOST_ENTRIES:
        raise InputError(f"{folder} holds more than {MOST_ENTRIES:,} files; name the folder of one encoder")
    targets = {name: _checked(folder, root, name) for name in names}
    return {name: target for name, target in targets.items() if target is not None}


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _checked(folder: Path, root: Path, name: str) -> Path | None:
    """Return the regular file of an entry, or None for a link to a folder. Raises InputError for anything else."""
    shown = ascii(name)[1:-1][:80]
    target = Path(os.path.realpath(root / name))
    try:
        mode = os.stat(target).st_mode
    except OSError:
        raise InputError(f"{folder}: {shown} is a link to a missing file; remove it or put the file there") from None
    if stat.S_ISDIR(mode):
        return None
    if not stat.S_ISREG(mode):
        raise InputError(f"{folder}: {shown} is not a regular file but a pipe, a socket or a device; remove it")
    if not target.is_relative_to(root) and not target.is_relative_to(_blobs(root)):
        raise InputError(f"{folder}: {shown} is a link that leads out of the folder; put the file itself there")
    return target


def _blobs(root: Path) -> Path:
    """Return the folder that the links of a snapshot in the hub's cache point into; `root` itself if it is not one."""
    return root.parents[1] / "blobs" if root.parent.name == "snapshots" else root


def read_settings(folder: Path, name: str, path: Path, largest: int = LARGEST_SETTINGS) -> dict[str, Any]:
    """Return the JSON object in a file of the folder. Raises InputError if there is none, or if it requests code."""
    try:
        value = loads(read_bytes(path, largest))
    except (ValueError, OSError) as error:
        raise InputError(f"{folder}: {name} cannot be read: {ascii(str(error))[1:-1][:120]}") from None
    if not isinstance(value, dict):
        raise InputError(f"{folder}: {name} holds {type(value).__name__}, not a JSON object")
    if any(isinstance(each, float) and not math.isfinite(each) for each in value.values()):
        raise InputError(f"{folder}: {name} holds a number too large for any setting")
    if value.get("auto_map"):
        raise InputError(
            f"{folder}: {name} requests code of its own (auto_map), which is never run; choose a folder without it"
        )
    return value
