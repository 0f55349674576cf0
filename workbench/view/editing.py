"""Changes that a person makes on the pages: notes, tags and the archive, by `workbench.store.tending`; nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from workbench.errors import InputError, plural
from workbench.store import tending
from workbench.store.tending import Notes
from workbench.view.watched import Watched

LONGEST_NOTE = 10_000  # characters


def carry_out(watched: Watched, form: Mapping[str, Sequence[str]]) -> str:
    """Carry out one change of some runs, and return a sentence on it.

    The fields of the form are `act`, `text`, and `run` with names of runs separated by commas. Raises InputError if the
    change is none that there is, or if a run cannot be changed, and OSError; other runs are changed then.
    """
    act, text = (" ".join(form.get(key, ())).strip() for key in ("act", "text"))
    run_ids = list(dict.fromkeys(one for names in form.get("run", ()) for one in names.split(",") if one))
    if not run_ids:
        raise InputError("no run is chosen; choose some")
    change, done = _change(act, text)
    unknown = [run_id for run_id in run_ids if run_id not in watched.rows]
    known = [watched.store.get(run_id) for run_id in run_ids if run_id not in unknown]
    failed = dict.fromkeys(unknown, "there is no such run any more")
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
