"""Copying and moving studies from one store to another: every file is compared with its hash, and runs are joined.

TARGET/.incoming/RUN/   a run while it is copied, with the lease of the command that copies it

A run is renamed to its place when all of its files are copied, flushed to disk and compared. A command that was killed,
or met a full disk, goes on with the files that are missing. A run that both stores have is one: the target keeps the
one that has got further, and gets the scores that it lacks if both have the same weights.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.errors import InputError, LeaseHeld, LeaseLost
from workbench.store import atomic, checkpoint, manage, manifest, validation
from workbench.store.atomic import write_parts
from workbench.store.lease import Lease, acquire
from workbench.store.owner import alive, read
from workbench.store.run_directory import RunDir
from workbench.store.run_store import EXPERIMENTS, ExperimentRecord, RunStore, check_outside

INCOMING = ".incoming"
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
Act = Literal["copy", "replace", "join", "keep", "other", "refuse"]


@dataclass(frozen=True)
class Step:
    """What is done with one run: `act`, why it is refused, and the bytes that are copied.

    `replace` copies a run that has got further than the target's, which goes to the trash; `join` adds scores and notes
    to the same run; `keep` keeps the target's, which has got as far or further, and `other` keeps one whose weights
    differ.
    """

    run: RunDir
    act: Act
    why: str
    bytes: int


SAID: dict[Act, str] = {
    "copy": "copy", "replace": "replace the one there, which has got less far", "join": "is there already",
    "keep": "keep the one there, which has got as far or further",
    "other": "keep the one there, which has other weights", "refuse": "refuse",
}  # fmt: skip


def runs_of(store: RunStore, records: Sequence[ExperimentRecord]) -> list[RunDir]:
    """Return the runs of records that a store has, each after the runs that it starts from."""
    names: dict[str, None] = {}
    for record in records:
        trials = [run_id for trial in record.tuning for run_id in trial["run_ids"]]
        arms = [run_id for contrast in record.contrasts for side in ("runs_a", "runs_b") for run_id in contrast[side]]
        names |= dict.fromkeys([*record.run_ids, *trials, *arms])
    present = {run.run_id: run for run in store.runs()}
    for name in list(names):
        names |= dict.fromkeys(manage.ancestors(present[name]) if name in present else ())
    return manage.parents_first([present[name] for name in names if name in present])


def check_apart(source: Path, target: Path) -> None:
    """Raise InputError if one of two stores is the other one, or lies in it."""
    check_outside(source, target, "the folder")
    check_outside(target, source, "the folder")


def steps(target: RunStore | None, runs: Sequence[RunDir]) -> list[Step]:
    """Return what is to be done with each run, where `target` is None if that store is yet to be made."""
    there = {run.run_id: run for run in target.runs()} if target is not None else {}
    return [_step(run, there.get(run.run_id)) for run in runs]


def _step(run: RunDir, there: RunDir | None) -> Step:
    if damage := validation.fault(run.path):
        return Step(run, "refuse", f"it is damaged: {damage}", 0)
    for each in (run, there):
        if each is not None and each.path.is_dir() and alive(each.path):
            return Step(run, "refuse", f"{each.path} is in use by {read(each.path)}", 0)
    act: Act
    if there is None or there.damage:
        act = "copy" if there is None else "replace"
    elif run.trained and there.trained:
        act = "join" if run.weight_digests() == there.weight_digests() else "other"
    else:
        ours, theirs = (
            (each.trained, max(checkpoint.steps(each.path / "checkpoints"), default=0)) for each in (run, there)
        )
        act = "replace" if ours > theirs else "keep"
    return Step(run, act, "", manage.sizes(run.path)["bytes"] if act in ("copy", "replace") else 0)


# ---- carrying out ----


def copy(target: RunStore, records: Sequence[ExperimentRecord], plan: Sequence[Step]) -> list[Step]:
    """Carry out the steps and write the records; return failed steps. Raises OSError; a repeated call goes on."""
    failed = []
    for step in plan:
        try:
            if step.act == "refuse":
                failed.append(step)
            else:
                _carry_out(step, target)
        except (InputError, LeaseHeld, LeaseLost) as error:
            failed.append(Step(step.run, "refuse", str(error), 0))
    for record in records:
        target.extend_experiment(record, updated=record.updated)
    return failed


def move(source: RunStore, target: RunStore, records: Sequence[ExperimentRecord], plan: Sequence[Step]) -> list[Step]:
    """Copy as `copy` does, and then delete at the source what is at the target; return the steps that failed.

    Nothing is deleted if a step failed. Runs that other records list, or other runs start from, stay. Runs of which the
    target kept another version go to the source's trash.
    """
    failed = copy(target, records, plan)
    if failed:
        return failed
    moved = {record.name for record in records}
    staying = {run.run_id for run in runs_of(source, [r for r in source.experiments() if r.name not in moved])}
    runs = {step.run.run_id: step for step in plan if step.run.run_id not in staying}
    kept = manage.refusals(source, [step.run for step in runs.values()])
    for run in manage.parents_first([step.run for step in runs.values()])[::-1]:
        if run.run_id in kept:
            continue
        try:
            there = target.get(run.run_id)
            _join_notes(manage.notes_of(run), there)  # of notes that were written while the study was copied
            if _has_all(there, run):
                manage.delete_moved(source, run, target.root)
            else:
                manage.remove(source, run)
        except (InputError, LeaseHeld, LeaseLost) as error:
            failed.append(Step(run, "refuse", str(error), 0))
    if not failed:
        folder = source.root / EXPERIMENTS
        with acquire(folder, patience=manage.PATIENCE) as lease:
            for record in records:
                atomic.discard(folder / f"{record.name}.json", lease.stage)
        atomic.sync_folder(folder)
    return failed


def _carry_out(step: Step, target: RunStore) -> None:
    """Copy one run, or join it with the target's. Raises InputError, LeaseHeld, LeaseLost or OSError."""
    there = RunDir(target.root / step.run.run_id)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(step.run.lease())
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
        if step.act in ("copy", "replace"):
            copied = _copied(step.run, target)
            before = manage.notes_of(there)
            if step.act == "replace":
                manage.remove(target, there)
            with copied.lease() as lease:
                if os.path.lexists(there.path):
                    raise InputError(f"{there.path} was made by another command; give the same command again")
                lease.carry(there.path)
            atomic.sync_folder(target.root)
            with contextlib.suppress(OSError):
                (target.root / INCOMING).rmdir()
            _join_notes(before, there)
        else:
            if step.act == "join":
                _add_scores(step.run, there)
            _join_notes(manage.notes_of(step.run), there)


def _join_notes(other: manage.Notes, there: RunDir) -> None:
    if other.notes or other.tags:
        manage.annotate(there, lambda notes: notes.merged(other))


def _content(folder: Path) -> tuple[list[str], list[str]]:
    """Return a run's folders and files, done.json last, without lease and drafts; links count as files."""
    folders, files = [], []
    for path, inner, leaves in os.walk(folder):
        passing = (atomic.STAGE, atomic.TRASH)
        inner[:] = [name for name in inner if not name.startswith(passing)]
        leaves = [name for name in leaves if not name.startswith(passing) and name != "lease"]
        links = [name for name in inner if os.path.islink(os.path.join(path, name))]
        inner[:] = [name for name in inner if name not in links]
        folders.append(path)
        files += [os.path.relpath(os.path.join(path, name), folder) for name in (*leaves, *links)]
    return folders, sorted(files, key=lambda name: (name == "done.json", name))


def _copied(run: RunDir, target: RunStore) -> RunDir:
    """Copy all files of a run beside the runs of the target, compare them with their hashes, and return the copy."""
    incoming = target.root / INCOMING
    atomic.own_folder(incoming)
    copied = RunDir(incoming / run.run_id)
    with atomic.disk_errors(copied.path):
        copied.path.mkdir(parents=True, exist_ok=True)
    listed = (manifest.read(run.path) or {}) if run.trained else {}
    with copied.lease() as lease:
        folders, names = _content(run.path)
        for name in set(_content(copied.path)[1]) - set(names):  # of an earlier copy, before the run changed
            atomic.discard(copied.path / name, lease.stage)
        for path in folders:  # a folder without files, such as the heads of a run that has none, counts
            (copied.path / os.path.relpath(path, run.path)).mkdir(exist_ok=True)
        for name in names:
            file, sha = copied.path / name, listed.get(name, {}).get("sha256")
            if _hash(file) != (sha or _hash(run.path / name)):
                _copy_file(run.path / name, file, sha, lease)
        for path in _content(copied.path)[0]:
            atomic.sync_folder(Path(path))
        fault = validation.fault(copied.path, full=True) or (None if copied.trained else copied.progress_damage())
        if fault:
            raise InputError(
                f"the copy in {copied.path} is damaged: {fault}; delete it, and verify the store it is from"
            )
    return copied


def _hash(file: Path) -> str:
    """Return the SHA-256 of a file, "" if it is not there. Raises InputError for a link, pipe or device, or OSError."""
    try:
        with atomic.open_regular(file) as opened:
            return atomic.sha256_of(opened)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except ValueError as error:
        raise InputError(f"{file} {error}; move it away") from None


def _copy_file(source: Path, file: Path, sha: str | None, lease: Lease) -> None:
    """Copy a file, flush it to disk, and compare what was written with the hash. Raises InputError or OSError."""
    draft, of_source = atomic.draft_in(lease.stage), hashlib.sha256()

    def blocks() -> Iterator[bytes]:
        with atomic.open_regular(source) as opened:
            while block := opened.read(atomic.BLOCK):
                of_source.update(block)
                yield block

    with atomic.disk_errors(file):
        write_parts(draft, blocks())
    written = _hash(draft)
    if written != of_source.hexdigest() or (sha and written != sha):
        draft.unlink()
        raise InputError(f"{source} could not be copied: what was written differs from its hash; verify that store")
    atomic.place(draft, file, lease.check)


def _add_scores(run: RunDir, there: RunDir) -> None:
    """Add the scores, and their predictions, that a run of the same weights has. Raises LeaseHeld or OSError."""
    with there.lease():
        for point in ["", *(each for each in run.points() if each in there.points())]:
            if run.weight_digests(point) != there.weight_digests(point):
                continue
            present = there.scores(point)
            for name, score in run.scores(point).items():
                if name not in present:
                    there.want([f"{point}{name}"])
                    for file in score.get("files", {}):
                        there.write(file, atomic.read_bytes(run.file(file)))
                    there.write(f"{point}scores/{name}", atomic.read_bytes(run.file(f"{point}scores/{name}")))


def _has_all(there: RunDir, run: RunDir) -> bool:
    """Return whether another folder of a run is undamaged and has all its files, apart from lists that may grow."""
    if there.damage or there.trained != run.trained:
        return False
    grown = {manifest.NAME, "wanted.json", "notes/notes.json"}
    names = [name for name in _content(run.path)[1] if name not in grown]
    return all(_hash(there.path / name) == _hash(run.path / name) for name in names)
