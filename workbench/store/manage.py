"""What is done with the runs of a store: notes and tags, removal and restoring, pruned checkpoints, and sizes.

ROOT/RUN/notes/notes.json   notes, tags and whether a run is archived; no part of its identity or its manifest
ROOT/RUN/pruned.json        the files that `prune` deleted, which a manifest still lists with their hashes
ROOT/trash/RUN/             a removed run, as it was; RUN~2 if another run of this name was removed before
ROOT/trash/RUN.json         when a run was removed or moved, which reports say; it stays when the trash is emptied

A command that is killed at any moment leaves each run whole in the store or whole in the trash.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from workbench.errors import InputError, LeaseHeld, LeaseLost, plural, suggest
from workbench.spec.run_spec import parse_stored
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store import atomic, manifest, validation
from workbench.store.lease import Lease, acquire
from workbench.store.owner import alive, read
from workbench.store.redact import redact
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import FORMAT, REMOVED, RunStore

PATIENCE = 20  # seconds for which a command waits while another one writes the same notes
WEIGHTS = ("encoder", "heads")
AGAIN = "~"  # in the trash, before the number of a further run of the same name

# ---- notes and tags ----


@dataclass(frozen=True)
class Notes:
    """What people wrote about a run: notes with their times, tags in order, and whether it is archived.

    `damage` is the reason if the file cannot be read; the other fields are empty then.
    """

    notes: tuple[dict[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    archived: bool = False
    damage: str = ""

    @property
    def text(self) -> str:
        """All notes on one line."""
        return "; ".join(note["text"] for note in self.notes)

    def merged(self, other: Notes) -> Notes:
        """Return these notes and tags together with other ones, each once."""
        every = {(note["at"], note["text"]): note for note in (*self.notes, *other.notes)}
        tags = tuple(dict.fromkeys((*self.tags, *other.tags)))
        return replace(self, notes=tuple(every[key] for key in sorted(every)), tags=tags)

    def tagged(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Notes:
        """Return these notes with some tags added and others removed."""
        gone = set(remove)
        return replace(self, tags=tuple(tag for tag in dict.fromkeys((*self.tags, *add)) if tag not in gone))

    def noted(self, text: str) -> Notes:
        """Return these notes with another one of now, without passwords and keys."""
        return replace(self, notes=(*self.notes, {"at": now(), "text": redact(text.strip())}))


def notes_of(run: RunDir) -> Notes:
    """Return the notes and tags of a run, empty if there are none."""
    try:
        value = atomic.read_object(run.path / "notes" / "notes.json", format=FORMAT, needs_seal=True)
        notes = tuple({"at": str(note["at"]), "text": str(note["text"])} for note in value["notes"])
        return Notes(notes, tuple(map(str, value["tags"])), bool(value["archived"]))
    except (FileNotFoundError, NotADirectoryError):
        return Notes()
    except (ValueError, OSError) as error:
        return Notes(damage=validation.reason(error))
    except (KeyError, TypeError):
        return Notes(damage="notes.json is not a file of notes")


def annotate(run: RunDir, change: Callable[[Notes], Notes]) -> Notes:
    """Change a run's notes by `change`, even in use, and return them. Raises InputError if damaged, OSError."""
    folder = atomic.made_folder(run.file("notes"))
    with acquire(folder, patience=PATIENCE) as lease:
        before = notes_of(run)
        if before.damage:
            raise InputError(f"{folder / 'notes.json'}: {before.damage}; move that file away")
        after = change(before)
        if after != before:
            content = {key: value for key, value in asdict(after).items() if key != "damage"}
            data = atomic.sealed({"format": FORMAT, **content, "run_id": run.run_id})
            atomic.write_atomic(folder / "notes.json", data, lease.stage, lease.check)
    return after


def checked_tags(text: str) -> tuple[str, ...]:
    """Return tags that are separated by commas. Raises InputError for a tag with other signs than a name has."""
    return tuple(atomic.checked_name(tag.strip(), "a tag") for tag in text.split(","))


# ---- removal ----


def ancestors(run: RunDir) -> list[str]:
    """Return the ids of a run's parent (the run whose weights it starts from), grandparent and so on; [] if damaged."""
    with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
        raw = validation.Contents(run.path).read_spec()["spec"]
        if not raw.get("start"):
            return []
        names, parent = [], BoundRun(ResolvedSpec(parse_stored(json.dumps(raw)))).parent()
        while parent is not None:
            names.append(parent.run_id)
            parent = parent.parent()
        return names
    return []


def refusals(store: RunStore, runs: Sequence[RunDir]) -> dict[str, str]:
    """Return, by name, why some of these runs cannot be removed: a process uses it, or a run that stays needs it."""
    chosen = {run.run_id for run in runs}
    needed = {name: run.run_id for run in store.runs() if run.run_id not in chosen for name in ancestors(run)}
    reasons = {}
    for run in runs:
        if run.path.is_symlink():
            reasons[run.run_id] = "it is a symbolic link; move it away"
        elif run.path.is_dir() and alive(run.path):
            reasons[run.run_id] = f"it is in use by {read(run.path)}; stop that process, or wait for its end"
        elif run.run_id in needed:
            reasons[run.run_id] = f"{needed[run.run_id]} starts from it; remove that run as well"
    kept = set(reasons)
    for run in runs:  # a run that stays keeps its parents
        if run.run_id in kept:
            for name in ancestors(run):
                if name in chosen:
                    reasons.setdefault(name, f"{run.run_id}, which stays, starts from it")
    return reasons


def parents_first(runs: Sequence[RunDir]) -> list[RunDir]:
    """Return runs such that each comes after its parent; in reverse, no kill leaves a child without its parent."""
    return sorted(runs, key=lambda run: len(ancestors(run)))


def remove(store: RunStore, run: RunDir) -> Path:
    """Move a run to the trash in one step, and return its folder there. Raises LeaseHeld, InputError or OSError."""
    trash = atomic.made_folder(store.root / REMOVED)
    with _owned(run) as lease:
        _mark_removed(store, run.run_id)
        names = set(os.listdir(trash))
        free = (f"{run.run_id}{AGAIN}{number}" for number in itertools.count(2))
        place = trash / next(name for name in itertools.chain([run.run_id], free) if name not in names)
        lease.carry(place)
    atomic.sync_folder(trash)
    atomic.sync_folder(store.root)
    return place


def delete_moved(store: RunStore, run: RunDir, target: Path) -> None:
    """Delete a run that has been copied to the store `target`. Raises as `remove` does."""
    atomic.made_folder(store.root / REMOVED)
    with _owned(run) as lease:
        _mark_removed(store, run.run_id, target)
        gone = store.root / f"{atomic.TRASH}{uuid.uuid4().hex}"
        lease.carry(gone)
    atomic.sync_folder(store.root)
    shutil.rmtree(gone, ignore_errors=True)


@contextlib.contextmanager
def _owned(run: RunDir) -> Iterator[Lease]:
    """Hold the lease of a run. Raises LeaseHeld, or InputError if the run is gone."""
    try:
        with run.lease() as lease:
            yield lease
    except FileNotFoundError:
        if run.path.is_dir():
            raise
        raise InputError(f"{run.path} is not there any more: another command removed or moved it") from None


def _mark_removed(store: RunStore, run_id: str, target: Path | str = "") -> None:
    """Write when a run was removed, before it is: while the run has a folder, the file says nothing."""
    note = {"format": FORMAT, "run_id": run_id, "at": now(), "target": str(target)}
    atomic.write_atomic(store.root / REMOVED / f"{run_id}.json", atomic.sealed(note))


@dataclass(frozen=True)
class Removed:
    """A run in the trash: its name, its folder there, and when it was removed."""

    run_id: str
    path: Path
    at: str


def removed(store: RunStore) -> list[Removed]:
    """Return the runs in the trash, by name; of several with one name, the one that was removed last comes last."""
    trash = store.root / REMOVED
    atomic.own_folder(trash)
    found = []
    for name in os.listdir(trash) if trash.is_dir() else ():
        run_id, _, count = name.partition(AGAIN)
        if atomic.NAME.fullmatch(run_id) and (trash / name).is_dir():
            at = ""
            with contextlib.suppress(OSError, ValueError):
                at = str(atomic.read_object(trash / f"{run_id}.json", needs_seal=True).get("at", ""))
            found.append((run_id, int(count) if count.isdecimal() else 1, Removed(run_id, trash / name, at)))
    return [each for _, _, each in sorted(found, key=lambda row: row[:2])]


def chosen_removed(store: RunStore, words: Sequence[str]) -> list[Removed]:
    """Return the runs in the trash that words name, by unique parts; all without words. Raises InputError."""
    every = removed(store)
    known = sorted({each.run_id for each in every})
    chosen = set()
    for word in words:
        near = [word] if word in known else [name for name in known if word in name]
        if len(near) > 1:
            raise InputError(f"{word!r} is part of the names of {len(near)} removed runs; give a longer part")
        if not near:
            raise InputError(f"no run {word!r} in the trash of {store.root}{suggest(word, known) if known else ''}")
        chosen.add(near[0])
    return [each for each in every if not words or each.run_id in chosen]


def restore(store: RunStore, each: Removed) -> RunDir:
    """Move a run from the trash back to its place. Raises InputError if a run of its name is there, or OSError."""
    target = store.root / each.run_id
    try:
        put = atomic.place_first(each.path, target)
    except FileNotFoundError:
        raise InputError(f"{each.run_id} is not in the trash any more: another command took it from there") from None
    if not put:
        raise InputError(f"{target} exists, so {each.run_id} stays in the trash; remove that run first")
    atomic.sync_folder(each.path.parent)
    with contextlib.suppress(FileNotFoundError):
        (each.path.parent / f"{each.run_id}.json").unlink()
    return RunDir(target)


def empty(store: RunStore, some: Sequence[Removed]) -> None:
    """Delete runs in the trash for good, and what an earlier command was killed while deleting. Raises OSError."""
    for each in some:
        with contextlib.suppress(FileNotFoundError):
            atomic.discard(each.path)
    trash = store.root / REMOVED
    for name in os.listdir(trash) if trash.is_dir() else ():
        if name.startswith(atomic.TRASH):
            shutil.rmtree(trash / name, ignore_errors=True)


# ---- pruning ----


def prunable(run: RunDir, checkpoints: bool) -> list[str]:
    """Return the files of a run that `prune` deletes: optimizer states, or all of its `checkpoints`."""
    names = [name for name in manifest.listing(run.path) if name.startswith("checkpoints/")]
    return names if checkpoints else [name for name in names if is_optimizer(name)]


def is_optimizer(name: str) -> bool:
    """Return whether a file of a run has the state of an optimizer."""
    folder, _, leaf = name.rpartition("/")
    return folder.startswith("checkpoints/") and leaf.startswith("optimizer") and leaf.endswith(".safetensors")


def keeps_checkpoints(store: RunStore, runs: Sequence[RunDir]) -> dict[str, str]:
    """Return, by name, why some of these runs cannot be pruned: not finished, in use, or to be started from."""
    waiting = {name: run.run_id for run in store.runs() if not run.trained for name in ancestors(run)[:1]}
    reasons = {}
    for run in runs:
        if run.path.is_dir() and alive(run.path):
            reasons[run.run_id] = f"it is in use by {read(run.path)}; wait for its end"
        elif damage := run.damage:
            reasons[run.run_id] = f"it is damaged: {damage}"
        elif not run.trained:
            reasons[run.run_id] = f"it is not finished ({run.state}), and goes on from its checkpoints"
        elif run.run_id in waiting:
            reasons[run.run_id] = f"{waiting[run.run_id]}, which is not finished, starts from its checkpoints"
    return reasons


def prune(run: RunDir, checkpoints: bool) -> int:
    """Delete the optimizer states of a finished run, or all of its `checkpoints`, and return how many bytes they had.

    The manifest still has their sizes and hashes. Their names are written to pruned.json before any is deleted, so that
    at every moment a file that is missing is known to have been pruned. Raises LeaseHeld, InputError or OSError.
    """
    with _owned(run) as lease:
        if not run.trained:
            raise InputError(f"{run.run_id} is not finished, and goes on from its checkpoints")
        names = prunable(run, checkpoints)
        size = sum(os.lstat(run.path / name).st_size for name in names)
        if names:
            every = sorted({*names, *manifest.pruned(run.path)})
            run.write_json(manifest.PRUNED, {"format": manifest.FORMAT, "files": every})
        if checkpoints:
            run.remove("checkpoints")
        else:
            for name in names:
                lease.check()
                atomic.discard(run.file(name), lease.stage)
    return size


# ---- sizes ----


def sizes(folder: Path) -> dict[str, int]:
    """Return how many bytes a run takes, in all and by part."""
    parts = dict.fromkeys(("bytes", "optimizer", "checkpoints", "weights", "points", "predictions", "other"), 0)
    for path, _, names in os.walk(folder):
        inner = os.path.relpath(path, folder)
        top = inner.partition("/")[0]
        for name in names:
            try:
                size = os.lstat(os.path.join(path, name)).st_size
            except FileNotFoundError:  # a process that uses the run deleted it
                continue
            part = "optimizer" if is_optimizer(f"{inner}/{name}") else "weights" if top in WEIGHTS else top
            parts["bytes"] += size
            parts[part if part in parts else "other"] += size
    return parts


def each_run(work: Callable[[RunDir], object], runs: Iterable[RunDir]) -> dict[str, str]:
    """Do `work` for each run; return an error message by name for each run that is in use or gone."""
    failed = {}
    for run in runs:
        try:
            work(run)
        except (LeaseHeld, LeaseLost, InputError) as error:
            failed[run.run_id] = str(error)
    return failed


def amount(size: int) -> str:
    """Return a number of bytes in kB, MB or GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return plural(size, "byte")
