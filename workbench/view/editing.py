"""Changes that a person makes on the pages: notes, tags and the archive, by `workbench.store.tending`; nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from workbench.errors import InputError, plural
from workbench.store import tending
from workbench.store.run_directory import RunDir
from workbench.store.tending import Notes
from workbench.view.watched import Watched, each_once

LONGEST_NOTE = 10_000  # characters


def carry_out(watched: Watched, form: Mapping[str, Sequence[str]]) -> str:
    """Carry out one change of some runs, and return a sentence on it.

    The fields of the form are `act`, `text`, and `run` with names of runs separated by commas. Raises InputError for an
    unknown change, or if some runs could not be changed; the other runs are changed all the same. Raises OSError if the
    disk fails.
    """
    act, text = (" ".join(form.get(key, ())).strip() for key in ("act", "text"))
    run_ids = each_once(form.get("run", ()))
    if not run_ids:
        raise InputError("no run is chosen; choose some")
    change, done = _change(act, text)
    folders = [RunDir(watched.store.root / run_id) for run_id in run_ids if run_id in watched.rows]
    known = [run for run in folders if run.path.is_dir()]
    failed = dict.fromkeys(set(run_ids) - {run.run_id for run in known}, "there is no such run any more")
    try:
        failed |= tending.each_run(lambda run: tending.annotate(run, change), known)
    finally:
        watched.look_at(run.run_id for run in known)
    if failed:
        run_id, reason = next(iter(failed.items()))
        raise InputError(f"{len(failed)} of {plural(len(run_ids), 'run')} not {done}; {run_id}: {reason}")
    return f"{plural(len(run_ids), 'run')} {done}"


def _change(act: str, text: str) -> tuple[Callable[[Notes], Notes], str]:
    """Return a change of notes, and the word for a run that was changed. Raises InputError."""
    if act in ("archive", "restore"):
        return lambda notes: replace(notes, archived=act == "archive"), f"{act}d"
    if not text:
        raise InputError("the text is empty; write some words")
    if act == "note":
        if len(text) > LONGEST_NOTE:
            raise InputError(f"the note has {len(text):,} characters; write at most {LONGEST_NOTE:,}")
        return lambda notes: notes.noted(text), "noted"
    if act == "remove note":
        return lambda notes: replace(notes, notes=tuple(n for n in notes.notes if f"{n['at']} {n['text']}" != text)), (
            "changed"
        )
    if act in ("tag", "untag"):
        tags = tending.checked_tags(text)
        return (lambda notes: notes.tagged(**{"add" if act == "tag" else "remove": tags})), f"{act}ged"
    raise InputError(f"there is no change {act[:40]!r}")
