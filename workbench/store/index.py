"""Facts about finished runs, kept between commands, so that a store of ten thousand runs is listed in seconds.

ROOT/.status.json and ROOT/.runs.json hold the facts of each run, and a hash over name, size, inode and times of all
files in its folder.

This is only a cache: the facts of a run are used while none of its files has changed, and read again otherwise. An
index that is missing, damaged or of another version is written again, and deleting it loses nothing. Runs with a lease
are not indexed. Damage that changes neither size nor times is found by the commands that read every file, such as
`verify` and `report`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.store.atomic import read_sealed, sealed, write_atomic
from workbench.store.owner import disk_time
from workbench.store.run_directory import RunDir

Facts = dict[str, Any]
FORMAT = 5  # increase it when a kept fact is computed in another way
SETTLED = ("done", "trained", "failed", "diverged", "damaged")
RECENT = 2.0  # seconds; a file may change twice within the resolution of its times


class Index:
    """An index of facts about the runs of a store, ROOT/.NAME.json; `of` computes the facts, among them `state`."""

    def __init__(self, root: Path, name: str, of: Callable[[RunDir], Facts]) -> None:
        self.path, self.of = root / f".{name}.json", of
        self.version = f"{__version__}/{FORMAT}/{name}"  # the name, since both files lie side by side
        self.known = self._read()
        self.used: dict[str, dict[str, Any]] = {}

    def facts(self, run: RunDir) -> Facts:
        """Return the facts of a run, which are read from its files if one of them has changed."""
        mark, newest = _mark(run.path)
        entry = self.known.get(run.run_id)
        if entry is None or not mark or entry["mark"] != mark:
            facts = self.of(run)
            now = disk_time(self.path.parent) if mark and facts["state"] in SETTLED else None
            if now is None or now - newest < RECENT:
                return facts
            entry = {"mark": mark, "facts": facts}
        self.used[run.run_id] = entry
        return dict(entry["facts"])

    def keep(self) -> None:
        """Write the facts that were returned, if they differ from those that were kept; do nothing if that fails."""
        if self.used != self.known:
            with contextlib.suppress(OSError, ValueError):
                write_atomic(self.path, sealed({"version": self.version, "runs": self.used}))

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            content = read_sealed(self.path)
        except (OSError, ValueError):
            return {}
        entries: dict[str, dict[str, Any]] = content["runs"] if content.get("version") == self.version else {}
        return entries


def _mark(folder: Path) -> tuple[str, float]:
    """Return a hash over all files of a run's folder, and the time of the newest change; "" if it has a lease."""
    root = str(folder)
    sha, newest, waiting = hashlib.sha256(), 0, [root]
    try:
        while waiting:
            place = waiting.pop()
            with os.scandir(place) as entries:
                for entry in sorted(entries, key=lambda each: each.name):
                    if entry.name == "lease":
                        return "", 0.0
                    facts = entry.stat(follow_symlinks=False)
                    times = facts.st_size, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_mode
                    sha.update(f"{entry.path.removeprefix(root)}\0{times}\n".encode("utf-8", "surrogateescape"))
                    newest = max(newest, facts.st_ctime_ns)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    except OSError:
        return "", 0.0
    return sha.hexdigest()[:24], newest / 1e9
