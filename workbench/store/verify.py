"""Verification of a store: every file of every run, and every experiment record, is compared with its hash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError, plural
from workbench.store import cache, checkpoint, manage, manifest, validation
from workbench.store.atomic import STAGE, TRASH
from workbench.store.manifest import Difference
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore, of_each

# Files and folders of a run's folder that are in no manifest.
OTHERS = (manifest.NAME, manifest.PRUNED, "error.json", "error.log", "lease", "notes", "unfinished", *manifest.COPIES)
UNFINISHED = "is not finished, so no manifest covers it"


@dataclass(frozen=True)
class Verified:
    """The result of `verify`: `differences` by run or record, and `uncovered` runs and records with the reason.

    A run that is listed in a record and has no folder is not a difference, since it may not have begun. `cached` are
    sentences about damaged text, tokenizers and kernels in the cache, which are made again when they are next opened.
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
        """The exit code of the command: 1 if there are differences, else 0."""
        return int(bool(self.differences or self.cached))

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "store": str(self.store),
            "runs": self.runs,
            "records": self.records,
            "files": self.files,
            "differences": [{"of": of, **asdict(difference)} for of, difference in self.differences],
            "uncovered": [{"of": of, "why": why} for of, why in self.uncovered],
            "cache": list(self.cached),
        }

    def text(self) -> str:
        """Return one line for each difference and each uncovered entry, and a last line with the totals."""
        lines = [f"{of}: {difference.what}" for of, difference in self.differences]
        lines += [f"in the cache, {sentence}" for sentence in self.cached]
        lines += [f"{of} {why}" for of, why in self.uncovered]
        count = len(self.differences) + len(self.cached)
        total = plural(count, "difference") if count else "no differences"
        place = f"{plural(self.files, 'file')} of {plural(self.runs, 'run')} and {plural(self.records, 'record')}"
        return "\n".join([*lines, f"{total} in {place}"])


def verify(store: RunStore, cache_root: Path | None = None) -> Verified:
    """Compare every file of a store, and of the cache at `cache_root` if given, with its hash; nothing is changed."""
    runs, records = store.runs(), store.experiments()
    checked = of_each(_of_run, runs)
    differences = [(run.run_id, each) for run, (each_of, _) in zip(runs, checked, strict=True) for each in each_of]
    uncovered = [(run.run_id, UNFINISHED) for run in runs if not run.trained and not run.damage]
    present = {run.run_id for run in runs}
    for record in records:
        name = f"experiments/{record.name}.json"
        if record.damage:
            differences.append((name, Difference(name, "changed", record.damage)))
            continue
        absent = sorted(set(record.run_ids) - present)
        removals = {run_id: how for run_id in absent if (how := store.removal(run_id))}
        if removals:
            listed = ", ".join(f"{run_id} ({how})" for run_id, how in removals.items())
            uncovered.append((name, f"lists runs that are not in the store any more: {listed}"))
        if unknown := [run_id for run_id in absent if run_id not in removals]:
            uncovered.append((name, f"lists runs that have no folder, not begun or removed: {', '.join(unknown)}"))
    cached = tuple(cache.differences(cache_root)) if cache_root else ()
    return Verified(
        store.root, len(runs), len(records), sum(files for _, files in checked) + len(records),
        tuple(differences), tuple(uncovered), cached,
    )  # fmt: skip


def _of_run(run: RunDir) -> tuple[list[Difference], int]:
    for _ in range(validation.LOOKS):
        before = validation.stamp(run.path / manifest.NAME)
        differences = list(_listed(run)) if run.trained else list(_unlisted(run))
        damage = run.damage
        if damage is None and not run.trained and run.state != "running":
            damage = run.progress_damage()
        if not differences or before == validation.stamp(run.path / manifest.NAME):
            break
    differences += _beside(run)
    if damage and damage not in [each.what for each in differences]:
        differences.append(Difference(".", "changed", damage))
    inside = () if run.path.is_symlink() else os.walk(run.path)
    return differences, sum(len(names) for _, _, names in inside)


def _listed(run: RunDir) -> Iterator[Difference]:
    try:
        files = manifest.read(run.path) or {}
    except (ValueError, OSError):
        return  # `validation.fault` reports this error
    pruned = manifest.pruned(run.path)
    for each in manifest.differences(run.path, files):
        if each.kind != "spared" or each.file not in pruned:
            yield each
    for name in manifest.listing(run.path):
        if name not in files and not _sealed_late(run, name):
            yield Difference(name, "unexpected", f"{name} is not in the manifest")
    yield from _strangers(run)


def _sealed_late(run: RunDir, name: str) -> bool:
    """Return whether an unlisted file is valid by its own hash: a kill before it is listed leaves such a file."""
    if name.startswith("predictions/"):  # in the official layouts of tasks, which have no place for a hash
        try:
            stated = {file: entry for score in run.scores().values() for file, entry in score.get("files", {}).items()}
            return name not in stated or not list(manifest.differences(run.path, {name: stated[name]}))
        except (InputError, ValueError, OSError):
            return False
    if not {"scores", "failures", "wanted.json"} & set(name.split("/")):
        return False
    try:
        return name.endswith(".log") or bool(validation.Contents(run.path).read(name))
    except (ValueError, OSError):
        return False


def _beside(run: RunDir) -> Iterator[Difference]:
    """Yield damage to the files that `workbench.store.manage` writes, which no manifest lists."""
    if damage := manage.notes_of(run).damage:
        yield Difference("notes/notes.json", "changed", damage)
    if os.path.lexists(run.path / manifest.PRUNED) and not manifest.pruned(run.path):
        yield Difference(manifest.PRUNED, "changed", f"{manifest.PRUNED} has changed since it was written")


def _strangers(run: RunDir) -> Iterator[Difference]:
    """Yield files and folders in a run's folder that `workbench` never writes."""
    known = {*manifest.FILES, *manifest.FOLDERS, *OTHERS}
    for name in sorted(os.listdir(run.path)):
        if name not in known and not name.startswith((STAGE, TRASH)):
            yield Difference(name, "unexpected", f"{name} is not a file of a run")


def _unlisted(run: RunDir) -> Iterator[Difference]:
    folder = run.path / "checkpoints"
    if run.path.is_symlink() or not run.path.is_dir() or folder.is_symlink() or folder.is_file():
        return  # `RunDir.damage` names it
    for step, fault in checkpoint.faults(folder):
        yield Difference(f"checkpoints/{step}", "changed", f"checkpoints/{step} is damaged: {fault}")
    for place in validation.points(run.path):
        if damage := validation.weights_fault(run.path, place):
            yield Difference(place.rstrip("/"), "changed", damage)
    yield from _strangers(run)
