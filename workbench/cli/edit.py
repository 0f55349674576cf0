"""Commands that change the runs of a store: note, tag, archive, track, rm, restore, prune, du, gc, cp, mv, import."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.command import (
    AsJson,
    completion,
    emit,
    name_argument,
    number_option,
    path_option,
    typed_path,
)
from workbench.cli.read import RUN, Runs
from workbench.errors import InputError, plural, suggest
from workbench.execution.study_options import names_of
from workbench.options import Chosen
from workbench.progress import say
from workbench.store import cache, manage, moving
from workbench.store.atomic import cache_path
from workbench.store.run_store import REMOVED, RunDir, RunStore, of_each

Some = Annotated[Chosen, "names runs where study"]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]


def note(
    run: Annotated[str, RUN],
    options: Runs,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The note to add.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all notes of the run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a note to a run, or print its notes; they are no part of the run's identity.

    `workbench runs`, `status` and reports show notes and tags. A run may be annotated while it is trained.
    """
    from workbench.report.load import runs_table

    if clear and text is not None:
        raise InputError("a text and --clear contradict each other; keep one")
    if text is not None and not text.strip():
        raise InputError("the note is empty; write some words")
    found = runs_table.find_run(RunStore.existing(options.runs), run)
    if clear:
        written = manage.annotate(found, lambda notes: replace(notes, notes=()))
    elif text is not None:
        written = manage.annotate(found, lambda notes: notes.noted(text))
    elif (written := manage.notes_of(found)).damage:
        raise InputError(f"{found.path / 'notes' / 'notes.json'}: {written.damage}; move that file away")
    lines = [f"{each['at'][:16]}  {each['text']}" for each in written.notes]
    lines += [f"tags: {', '.join(written.tags)}"] if written.tags else []
    facts = {"run_id": found.run_id, "notes": list(written.notes), "tags": list(written.tags)}
    emit(facts if as_json else "\n".join(lines) or "no notes", as_json, kept=text is not None)


def tag(
    tags: Annotated[str, typer.Argument(metavar="TAG", help="A tag, or several, separated by commas.")],
    options: Some,
    remove: Annotated[bool, typer.Option("--remove", help="Remove instead of adding.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tag runs, by name or condition; `workbench runs --where tags=TAG` lists them."""
    named = manage.checked_tags(tags)
    change = {"remove" if remove else "add": named}
    _annotate(options, lambda notes: notes.tagged(**change), as_json)


def archive(
    options: Some,
    remove: Annotated[bool, typer.Option("--remove", help="Take runs out of the archive.")] = False,
    as_json: AsJson = False,
) -> None:
    """Archive runs: `workbench runs` and `status` leave them out unless --archived is given. Reports are the same."""
    _annotate(options, lambda notes: replace(notes, archived=not remove), as_json)


def track(
    words: Annotated[
        list[str],
        name_argument("STUDY|RUN", "Studies, by name or experiment, and runs, by name or a part of it.", "records"),
    ],
    options: Runs,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NAME|FILE",
            help="wandb, trackio, tensorboard, mlflow, or a file ./my_tracker.py.",
            autocompletion=completion("trackers"),
        ),
    ],
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Copy each encoder as well, and the study's report, if it is written.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy runs to a tracker as they are in the store: settings, metrics, scores, tags and notes.

    A run may be copied again, also after a copy during training: the tracker still has one run, with each row once.
    Untrained encoders have no run of their own: their scores are in the summaries of trained runs. The exit code is 1
    if a run could not be copied.
    """
    from workbench import trackers
    from workbench.report.load import runs_table
    from workbench.report.load.runs_table import find_record
    from workbench.trackers import copies

    tracker, store = trackers.find(to, "--to"), RunStore.existing(options.runs)
    chosen: dict[str | None, list[RunDir]] = {}  # by study, None for runs that were named themselves
    records = {name for record in store.experiments() for name in (record.name, record.experiment)}
    present = {run.run_id: run for run in store.runs()}
    for word in words:
        if word in records:
            study = find_record(store, word)
            of_study = [present[name] for name in store.experiment(study).runs if name in present]
            chosen[study] = [run for run in of_study if not runs_table.is_untrained(run)]
            if of_study and not chosen[study]:
                raise InputError(f"{study} has untrained encoders alone, which have no runs of their own in a tracker")
        elif any(word in name for name in present):
            run = runs_table.find_run(store, word)
            if runs_table.is_untrained(run):
                raise InputError(
                    f"{run.run_id} is an untrained encoder, which has no run of its own in a tracker; name its study"
                )
            chosen.setdefault(None, []).append(run)
        else:
            raise InputError(f"no study and no run {word!r} in {store.root}{suggest(word, [*records, *present])}")
    rows, failed = list[dict[str, Any]](), dict[str, str]()
    for name, runs in chosen.items():
        page = Path("reports") / name / "index.html" if name else None
        if artifacts and page and not page.is_file():
            say(f"workbench: there is no report at {page}; workbench report {name} writes it")
        for message in copies(tracker, runs, name, artifacts, page):
            if "note" in message:
                say(f"workbench: {message['note']}")
            elif "problem" in message:
                failed[message["run"]] = message["problem"]
            else:
                rows.append({"run_id": message["run"], "rows": message["rows"], "scores": message["scores"]})
    emit(rows if as_json else _table(rows), as_json, kept=True)
    _end(failed, "not copied")


def rm(options: Some, yes: Yes = False, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Move runs to the trash of their store, from where `workbench restore` puts them back.

    A run that a process uses, or from which another run starts, is refused. The command that trained a removed run
    trains it again; reports say that it was removed. The exit code is 1 if a run was refused.
    """
    store = RunStore.existing(options.runs)
    chosen = _chosen(store, options)
    refused = manage.refusals(store, chosen)
    removed = manage.parents_first([run for run in chosen if run.run_id not in refused])[::-1]
    records = store.experiments()
    rows = []
    for run in removed:
        studies = [record.name for record in records if run.run_id in record.run_ids]
        rows.append(_row(run) | {"listed in": ", ".join(studies)})
    size = manage.amount(sum(row["bytes"] for row in rows))
    if _agreed(rows, f"move {plural(len(rows), 'run')} ({size}) to the trash", yes, dry_run, as_json):
        refused |= manage.each_run(lambda run: manage.remove(store, run), removed)
    _end(refused, "not removed")


def restore(
    options: Runs,
    names: Annotated[list[str] | None, typer.Argument(metavar="RUN", help="Names of removed runs.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Put all runs of the trash back.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Delete the runs for good instead (default: all).")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Put removed runs back, delete them for good with --empty, or list the trash."""
    if all_ and (names or empty):
        raise InputError("--all puts every run back; leave it out where runs are named, or with --empty")
    store = RunStore.existing(options.runs)
    chosen = manage.chosen_removed(store, names or ())
    rows: list[dict[str, Any]] = [
        {"run_id": each.run_id, "removed": each.at, "bytes": manage.sizes(each.path)["bytes"]} for each in chosen
    ]
    if not (names or all_ or empty):
        emit(rows if as_json else _table(rows), as_json)
        return
    failed: dict[str, str] = {}
    size = manage.amount(sum(row["bytes"] for row in rows))
    if empty:
        if _agreed(rows, f"delete {plural(len(rows), 'run')} ({size}) for good", yes, dry_run, as_json):
            manage.empty(store, chosen)
    elif _agreed(rows, f"put {plural(len(rows), 'run')} back", True, dry_run, as_json):
        for each in reversed(chosen):  # of several with one name, the one that was removed last
            try:
                manage.restore(store, each)
            except InputError as error:
                failed[each.path.name] = str(error)
    _end(failed, "not restored")


def prune(
    options: Some,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Delete the checkpoints whole, not only the states of optimizers.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete optimizer states of finished runs, or all their checkpoints; encoders, scores and logs stay.

    Reports and `workbench verify` go on without them. If another run is to go on from the end of a pruned one, or
    with --checkpoints to start from its weights, the pruned one must be trained again. Without names, conditions and
    study, all finished runs are pruned.
    """
    store = RunStore.existing(options.runs)
    chosen = _chosen(store, options, or_all=True)
    refused = manage.keeps_checkpoints(store, chosen)
    pruned = [run for run in chosen if run.run_id not in refused and manage.prunable(run, checkpoints)]
    rows = []
    for run in pruned:
        sizes = manage.sizes(run.path)
        rows.append(_row(run) | {"freed": sizes["optimizer"] + (sizes["checkpoints"] if checkpoints else 0)})
    what = "checkpoints" if checkpoints else "optimizer states"
    size = manage.amount(sum(row["freed"] for row in rows))
    failed: dict[str, str] = {}
    if _agreed(rows, f"delete the {what} of {plural(len(rows), 'run')} ({size}) for good", yes, dry_run, as_json):
        failed = manage.each_run(lambda run: manage.prune(run, checkpoints), pruned)
    named = {run_id: why for run_id, why in refused.items() if options.names}  # others were not asked for by name
    _end(named | failed, "not pruned")


def du(options: Some, as_json: AsJson = False) -> None:
    """Print what takes room, in bytes: each run by part, the largest first, and the trash and the cache."""
    store = RunStore.existing(options.runs)
    chosen = _chosen(store, options, or_all=True)
    measured: list[dict[str, Any]] = of_each(lambda run: {"run_id": run.run_id, **manage.sizes(run.path)}, chosen)
    rows = sorted(measured, key=lambda row: -row["bytes"])
    whole = {key: sum(row[key] for row in rows) for key in rows[0] if key != "run_id"} if rows else {"bytes": 0}
    others = {"trash": manage.sizes(store.root / REMOVED)["bytes"], "cache": manage.sizes(cache_path())["bytes"]}
    if as_json:
        emit({"runs": rows, "total": whole, **others}, True)
        return
    lines = [_table([*rows, {"run_id": "all", **whole}]) if rows else "no runs"]
    lines.append(f"\ntrash {manage.amount(others['trash'])} (workbench restore --empty)")
    lines.append(f"cache {manage.amount(others['cache'])} in {cache_path()} (workbench gc)")
    if spare := whole.get("optimizer"):
        lines.append(f"optimizer states {manage.amount(spare)} (workbench prune, of finished runs)")
    emit("\n".join(lines), False)


def gc(
    unused: Annotated[
        float, number_option(0, 1e5, "Remove entries that no command has used for so many days; 0 for all of them.")
    ] = 30.0,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove entries of the cache that no command has used for a while, and files that killed processes left there.

    Everything in the cache is made again by the command that needs it. `verify` reads all entries, which counts as use.
    """
    found = cache.unused(cache_path(), unused)
    rows = [
        {"entry": str(each.entry.relative_to(cache_path())), "why": each.why, "bytes": each.bytes} for each in found
    ]
    size = manage.amount(sum(each.bytes for each in found))
    deed = f"delete {size} in {len(rows)} entries of the cache {cache_path()}"
    if _agreed(rows, deed, yes, dry_run, as_json):
        for each in found:
            cache.discard(each.entry)


To = Annotated[Path, path_option("The other store; it is made if need be.", "FOLDER", "--to")]
Studies = Annotated[list[str], name_argument("STUDY", "Studies, by name or experiment.", "records")]


def cp(studies: Studies, to: To, options: Runs, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Copy studies with their runs into another store; every file is compared with its hash.

    A run that is in both stores becomes one. A command that was stopped goes on where it was. A run that is in use is
    refused, and the exit code is then 1.
    """
    _transfer(Path(options.runs), to, studies, False, True, dry_run, as_json)


def mv(
    studies: Studies, to: To, options: Runs, yes: Yes = False, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Move studies with their runs into another store: copy them as cp does, then delete what was copied.

    Nothing is deleted before everything is copied and compared. Runs of other studies stay here as well.
    """
    _transfer(Path(options.runs), to, studies, True, yes, dry_run, as_json)


def import_(
    store: Annotated[Path, typer.Argument(callback=typed_path, metavar="FOLDER", help="The store to copy from.")],
    options: Runs,
    studies: Annotated[list[str] | None, typer.Argument(metavar="STUDY", help="Default: all runs.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy studies, or all runs, of another store into this one, such as one that came from another machine."""
    _transfer(store, Path(options.runs), studies, False, True, dry_run, as_json)


def _transfer(
    source: Path, target: Path, studies: Sequence[str] | None, move: bool, yes: bool, dry_run: bool, as_json: bool
) -> None:
    from workbench.report.load.runs_table import find_record

    one = RunStore.existing(source)
    names = dict.fromkeys(find_record(one, study) for study in studies or ())
    records = [one.experiment(name) for name in names] if studies else [r for r in one.experiments() if not r.damage]
    runs = moving.runs_of(one, records)
    if not studies:
        runs = manage.parents_first(one.runs())
    moving.check_apart(one.root, target)
    RunStore.check(target)
    steps = moving.steps(RunStore(target) if os.path.lexists(target / "store.json") else None, runs)
    size = manage.amount(sum(step.bytes for step in steps))
    deed = f"{'move' if move else 'copy'} {plural(len(runs), 'run')} ({size}) to {target}"
    rows = [{"run_id": s.run.run_id, "what": moving.SAID[s.act], "bytes": s.bytes, "why": s.why} for s in steps]
    if not _agreed(rows, deed, yes, dry_run, as_json):
        return
    other = RunStore(target)
    failed = moving.move(one, other, records, steps) if move else moving.copy(other, records, steps)
    _end({step.run.run_id: step.why for step in failed}, "not moved" if move else "not copied")


# ---- what they share ----


def _chosen(store: RunStore, options: Chosen, or_all: bool = False) -> list[RunDir]:
    """Return the runs that are named, of a study, or all, as far as they meet all conditions. Raises InputError."""
    from workbench.report.load import runs_table
    from workbench.report.load.runs_table import find_record

    words, where, study = names_of(options.names), names_of(options.where), options.study
    if words and study is not None:
        raise InputError(f"runs are named and --study {study} is given; keep one")
    if not (words or where or study is not None or or_all):
        raise InputError("no runs are chosen; name them, or give --where or --study")
    if words:
        runs = list({run.run_id: run for run in (runs_table.find_run(store, word) for word in words)}.values())
    elif study is not None:
        listed = set(store.experiment(find_record(store, study)).run_ids)
        runs = [run for run in store.runs() if run.run_id in listed]
    else:
        runs = store.runs()
    if where:
        met = {row["run_id"] for row in runs_table.filtered(runs_table.rows(store), where, None)}
        runs = [run for run in runs if run.run_id in met]
    return runs


def _annotate(options: Chosen, change: Any, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []

    def work(run: RunDir) -> None:
        written = manage.annotate(run, change)
        rows.append({"run_id": run.run_id, "tags": ", ".join(written.tags), "archived": written.archived})

    failed = manage.each_run(work, _chosen(RunStore.existing(options.runs), options))
    emit(rows if as_json else _table(rows), as_json, kept=True)
    _end(failed, "not changed")


def _row(run: RunDir) -> dict[str, Any]:
    return {"run_id": run.run_id, "state": run.state, "bytes": manage.sizes(run.path)["bytes"]}


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    from workbench.cli import terminal

    return terminal.table(rows)


def _agreed(rows: Sequence[Mapping[str, Any]], deed: str, yes: bool, dry_run: bool, as_json: bool) -> bool:
    """Print the runs to which something is done, and return whether it is to be done.

    Raises InputError where nobody can be asked, or Exit if the answer is no.
    """
    emit(list(rows) if as_json else _table(rows), as_json, kept=not dry_run)
    if not rows or dry_run:
        return False
    if not yes:
        if not sys.stdin.isatty():
            raise InputError(f"nothing was done: give --yes to {deed}, or --dry-run to see what that is")
        if not typer.confirm(f"{deed[0].upper()}{deed[1:]}?", err=True):
            say("workbench: nothing was done")
            raise typer.Exit(1)
    say(f"workbench: {deed}")
    return True


def _end(refused: Mapping[str, str], what: str) -> None:
    """Name the runs to which nothing was done, and end with exit code 1 if there are any."""
    for run_id, why in refused.items():
        say(f"workbench: {run_id} is {what}: {why}")
    if refused:
        raise typer.Exit(1)
