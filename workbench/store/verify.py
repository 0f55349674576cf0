"""Compare everything in a run store with what was written: every file of every run, and every experiment record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.store import cache, checkpoint, manifest, validation
from workbench.store.atomic import STAGE, TRASH
from workbench.store.manifest import Difference
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore

OTHERS = (manifest.NAME, "error.json", "error.log", "lease", "wandb")  # may be in a run's folder, with or without it
UNFINISHED = "is not finished, so no manifest covers it"
OLDER = "was finished by an older version, which wrote no manifest, so it is not covered"


@dataclass(frozen=True)
class Verified:
    """What `verify` found: `differences` by run or record, and what is `uncovered` with the reason.

    A run that has not begun has no folder either, so that one which a record lists is no difference.

    `cached` are sentences on prepared text, tokenizers and kernels of the cache, which are made anew when next opened.
    """

    store: Path
    runs: int
    records: int
    files: int
    differences: tuple[tuple[str, Difference], ...]
    uncovered: tuple[tuple[str, str], ...]
    cached: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 if anything differs."""
        return int(bool(self.differences or self.cached))

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "store": str(self.store),
            "runs": self.runs,
            "records": self.records,
            "files": self.files,
            "differences": [{"of": of, **asdict(found)} for of, found in self.differences],
            "uncovered": [{"of": of, "why": why} for of, why in self.uncovered],
            "cache": list(self.cached),
        }

    def text(self) -> str:
        """Return a line for each difference, then one on the whole."""
        lines = [f"{of}: {found.what}" for of, found in self.differences]
        lines += [f"in the cache, {told}" for told in self.cached]
        lines += [f"{of} {why}" for of, why in self.uncovered]
        many = len(self.differences) + len(self.cached)
        told = f"{many} differences" if many else "nothing differs"
        return "\n".join([*lines, f"{told} in {self.files} files of {self.runs} runs and {self.records} records"])


def verify(store: RunStore, cache_root: Path | None = None) -> Verified:
    """Read every file of a store and compare it with its hash, where one was written down. Nothing is changed.

    With `cache_root` everything in that cache is read and compared as well.
    """
    runs, records = store.runs(), store.experiments()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = list(pool.map(_of_run, runs))
    differences = [(run.run_id, each) for run, (each_of, _) in zip(runs, found, strict=True) for each in each_of]
    uncovered = [(run.run_id, why) for run in runs if (why := _uncovered(run))]
    present = {run.run_id for run in runs}
    for record in records:
        name = f"experiments/{record.name}.json"
        if record.damage:
            differences.append((name, Difference(name, "changed", record.damage)))
            continue
        if not record.covered:
            uncovered.append((name, "was written by an older version, which gave records no hash"))
        absent = sorted({*record.runs, *record.untrained} - present)
        if absent:
            uncovered.append((name, f"lists runs that have no folder, not begun or removed: {', '.join(absent)}"))
    cached = list(cache.differences(cache_root)) if cache_root else []
    uncovered += [
        (f"in the cache, {each.entry}:", f"{each.what}; it is not used") for each in cached if not each.covered
    ]
    return Verified(
        store.root, len(runs), len(records), sum(files for _, files in found) + len(records),
        tuple(differences), tuple(uncovered), tuple(str(each) for each in cached if each.covered),
    )  # fmt: skip


def _of_run(run: RunDir) -> tuple[list[Difference], int]:
    """Return every difference of one run, and how many files were looked at."""
    for _ in range(validation.LOOKS):
        before = validation.stamp(run.path / manifest.NAME)
        told = list(_listed(run)) if run.trained and run.covered else list(_unlisted(run))
        damage = run.damage
        if damage is None and not run.trained and run.state != "running":
            damage = run.progress_damage()
        if not told or before == validation.stamp(run.path / manifest.NAME):
            break
    if damage and damage not in [each.what for each in told]:
        told.append(Difference(".", "changed", damage))
    return told, sum(len(names) for _, _, names in os.walk(run.path))


def _listed(run: RunDir) -> Iterator[Difference]:
    """Yield how a finished run differs from its manifest."""
    try:
        files = manifest.read(run.path) or {}
    except (ValueError, OSError):
        return  # which `validation.fault` says
    yield from manifest.differences(run.path, files, full=True)
    for name in manifest.unexpected(run.path, files):
        if not _sealed_late(run, name):
            yield Difference(name, "unexpected", f"{name} is not in the manifest")
    yield from _strangers(run)


def _sealed_late(run: RunDir, name: str) -> bool:
    """Return whether a file carries its own hash and run: a command killed at this moment leaves such a file."""
    if not {"scores", "failures", "wanted.json"} & set(name.split("/")):
        return False
    try:
        return name.endswith(".log") or bool(validation.read(run.path, name, must=True))
    except (ValueError, OSError):
        return False


def _strangers(run: RunDir) -> Iterator[Difference]:
    """Yield what is in a run's folder and never put there by this program."""
    known = {*manifest.FILES, *manifest.FOLDERS, *OTHERS}
    for name in sorted(os.listdir(run.path)):
        if name not in known and not name.startswith((STAGE, TRASH)):
            yield Difference(name, "unexpected", f"{name} is no file of a run")


def _unlisted(run: RunDir) -> Iterator[Difference]:
    """Yield what is wrong with each checkpoint of a run that no manifest covers, and what does not belong there."""
    folder = run.path / "checkpoints"
    if folder.is_symlink() or not run.path.is_dir() or run.path.is_symlink():
        return
    for step in checkpoint.steps(folder):
        name = f"checkpoints/step-{step:08d}"
        if told := checkpoint.problem(run.path / name):
            yield Difference(name, "changed", f"{name} is damaged: {told}")
    for place in validation.points(run.path):
        if told := validation.weights_fault(run.path, place):
            yield Difference(place.rstrip("/"), "changed", told)
    yield from _strangers(run)


def _uncovered(run: RunDir) -> str:
    """Return why no manifest covers a run, "" where one does."""
    if run.trained:
        return "" if run.covered or validation.fault(run.path) else OLDER
    return "" if validation.fault(run.path) else UNFINISHED
