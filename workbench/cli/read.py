"""Commands that read a run store: report, view, status, verify, runs, diff, export, push."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.command import AsJson, emit, name_argument, path_option
from workbench.errors import DAMAGE, InputError, Interrupted, plural
from workbench.execution import workers
from workbench.execution.study_options import report_folder, writable
from workbench.execution.workers import StudyProgress
from workbench.options import Output
from workbench.process import FOR_STATISTICS, check_address_space
from workbench.progress import console, say
from workbench.progress import terminal as is_terminal
from workbench.spec.run_spec import parse_budget
from workbench.store import owner
from workbench.store.atomic import cache_path, sweep_old, write_atomic
from workbench.store.run_directory import RunDir
from workbench.store.run_store import JOBS, ExperimentRecord, RunStore, check_outside, refuse_other_report

if TYPE_CHECKING:
    from workbench.models.export import Terms

Runs = Annotated[Output, "runs"]
Archived = Annotated[bool, typer.Option("--archived", help="Show archived runs too.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Skip the comparison of every file with its hash.")]
License = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Licence that the model cards state, as the hub names it: apache-2.0, other ..."),
]
Language = Annotated[
    str | None,
    typer.Option(metavar="CODES", help="Languages of the text that the model cards state, as in da or en,de."),
]
RUN = name_argument("RUN", "Name of a run, or a part of it that no other run has.", "runs")


def report(
    options: Output,
    experiment: Annotated[str | None, name_argument("EXPERIMENT", "An experiment or study.", "records")] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Draw this report again from its data files.")
    ] = None,
    paper: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write figures, LaTeX tables and an appendix here.")
    ] = None,
    order: Annotated[bool, typer.Option("--aso", help="Add the almost stochastic order to every comparison.")] = False,
    budget: Annotated[
        str | None, typer.Option(metavar="flops=N", help="Recommend an arm for this budget, as flops=1e18.")
    ] = None,
    no_verify: NoVerify = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Write the HTML report and its CSV tables again, from the run directories or from the report's own data files.

    Every file is compared with the hash that was recorded when its run ended; a run with a changed file is left out,
    and the exit code is then 1.
    """
    from workbench.report import write, write_again, write_paper
    from workbench.report.load.runs_table import find_record
    from workbench.report.results import ReportOptions

    report_folder(options)
    out = None if options.out is None else Path(options.out)
    check_address_space(FOR_STATISTICS, "a report")
    chosen = ReportOptions(order, parse_budget(budget) if budget else None, not no_verify)
    if (experiment is None) == (from_ is None):
        raise InputError("name either an experiment of a store or, with --from, the folder of a report")
    if from_ is not None:
        page = write_again(from_, out, chosen)
    else:
        store = RunStore.existing(options.runs)
        record = find_record(store, str(experiment))
        if out is None:
            refuse_other_report(Path("reports") / record, store)
        page = write(store, record, out or Path("reports") / record, options=chosen)
    if paper is not None:
        say(f"for a paper: {write_paper(page, paper)}, with figures and tables beside it")
    emit(page, False, kept=True)
    if open_:
        typer.launch(page.resolve().as_uri())


def status(
    options: Runs,
    archived: Archived = False,
    everything: Annotated[bool, typer.Option("--all", help="List every run, also those that need no look.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the store in a live table until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print each study of a store with its progress, time left and verdict, then the runs that train or need a look.

    A run needs a look if it failed, diverged, was interrupted, is damaged, or has a warning or the lease of a process
    that has ended; --all lists the others too. The exit code is 1 if a run is damaged. Files that have not changed
    since the run ended are compared by their size alone; `workbench verify` reads all of them.
    """
    from workbench.execution import slurm
    from workbench.report.load import runs_table

    store = RunStore.existing(options.runs)
    if watch:
        if as_json:
            raise InputError("--watch and --json contradict each other; keep one")
        follow_status(store, archived, everything)
        return
    every = {run.run_id: workers.facts(run, row) for run, row in runs_table.states(store)}
    rows = [row for row in every.values() if archived or not row["archived"]]
    records = store.experiments()
    for record in records:
        if record.damage:
            DAMAGE.warning("%s.json %s", store.root / "experiments" / record.name, record.damage)
    for sentence in slurm.queued(store.root / JOBS, cache_path() / JOBS):
        say(f"workbench: {sentence}")
    if as_json:
        emit([{key: value for key, value in row.items() if key != "spent.seconds"} for row in rows], as_json)
    else:
        for row in rows:
            stale = stale_lease(RunDir(Path(row["path"])), row)
            row["note"] = "; ".join(filter(None, (row["note"], stale)))
        progress = progress_of_studies(records, every)
        lines = status_lines(progress, rows, everything) + archived_line(len(every) - len(rows))
        if lines:
            emit("\n".join(lines), as_json)
    _end_if_damaged(rows)


def view(
    options: Runs,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on; others than 127.0.0.1 are reached from outside."),
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="N", help="Port (default 8642, or any free one).")
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the pages in the browser.")] = True,
    allow_edit: Annotated[
        bool, typer.Option("--allow-edit", help="Let the pages change notes and tags, and archive and restore runs.")
    ] = False,
) -> None:
    """Serve pages about the runs of a store to the browser, which show what happens now, until Ctrl-C.

    The address has a token, without which nothing is shown. Pages only read, unless --allow-edit is given.
    """
    from workbench.view import view as serve

    os.nice(19)  # runs on this machine go first
    serve(RunStore.existing(options.runs), host, port, open_, allow_edit, say)


def verify(
    options: Runs,
    store: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Folder of runs, as --runs names it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare every file of a run store, and of the cache, with its hash; print each file that differs, and how.

    The exit code is 1 if any file differs. Unfinished runs are printed as not covered.
    """
    from workbench.store import verify as verifying

    result = verifying.verify(RunStore.existing(store or options.runs), cache_path())
    emit(result.to_json() if as_json else result.text(), as_json)
    raise typer.Exit(result.exit_code)


def runs_(
    options: Runs,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Condition on runs, as objective=rtd or seed<3; repeatable."),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key to sort by; -KEY puts the largest first.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="KEYS", help="Columns, separated by commas; all for every column.")
    ] = None,
    archived: Archived = False,
    as_json: AsJson = False,
) -> None:
    """Print the runs of a store with settings, spending and scores: filter and sort them, and choose columns.

    The exit code is 1 if a run that is printed is damaged, as `workbench status` finds it.
    """
    from workbench.cli import terminal
    from workbench.report.load import runs_table

    rows = runs_table.rows(RunStore.existing(options.runs))
    chosen = [row for row in runs_table.filtered(rows, where or [], sort) if archived or not row["archived"]]
    shown = runs_table.with_columns(rows, chosen, columns)
    if not as_json and columns is None and any(key.startswith("score.") for key in (shown[0] if shown else {})):
        shown = [{key: row[key] for key in row if key != "score"} for row in shown]  # a suite's, by its name
    emit(shown if as_json else terminal.table(shown), as_json)
    _end_if_damaged(chosen)


def _end_if_damaged(rows: Sequence[Mapping[str, Any]]) -> None:
    if any(row["state"] == "damaged" for row in rows):
        raise typer.Exit(1)


def diff(
    a: Annotated[str, RUN],
    b: Annotated[str, name_argument("RUN", "Another run.", "runs")],
    options: Runs,
    as_json: AsJson = False,
) -> None:
    """Print only what differs between two runs: first in their specs, then in their results.

    A damaged run is refused.
    """
    from workbench.cli import terminal
    from workbench.report.load import runs_table

    store = RunStore.existing(options.runs)
    one, two = (runs_table.whole_row(runs_table.find_run(store, word)) for word in (a, b))
    spec, results = runs_table.differences(one, two)
    both = {"a": one["run_id"], "b": two["run_id"], "spec": spec, "result": results}
    emit(both if as_json else runs_table.differences_text(one, two, terminal.table), as_json)


def export(
    experiment: Annotated[
        str, name_argument("EXPERIMENT", "An experiment or study; with --checkpoint, a run.", "records")
    ],
    options: Runs,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="csv, parquet or latex.")] = "csv",
    out: Annotated[Path | None, path_option("File to write (default: stdout).", "FILE")] = None,
    no_verify: NoVerify = False,
    babylm: Annotated[Path | None, path_option("New folder in BabyLM's layout.")] = None,
    checkpoint: Annotated[Path | None, path_option("New folder for the models of one run, with heads.")] = None,
    license: License = None,
    language: Language = None,
) -> None:
    """Write every score as one long table; each row has run, seeds, spec, data fingerprint and code version.

    With --babylm, write models by words seen, predictions and scores in the layout of BabyLM's evaluation pipeline.
    With --checkpoint, write the discriminator and the generator of a run as ElectraForPreTraining and
    ElectraForMaskedLM, each with its head, its tokenizer and a model card, which states --license and --language.
    """
    if checkpoint is None and (license is not None or language is not None):
        raise InputError(
            "--license and --language are stated by the model cards of --checkpoint DIR; give it, or leave them out"
        )
    if checkpoint is not None:
        if out is not None or form != "csv" or babylm is not None:
            raise InputError("--checkpoint DIR writes folders of models; remove --out, --format and --babylm")
        writable(checkpoint.parent, "--checkpoint")
        from workbench.execution import model_folders
        from workbench.report.load import runs_table

        terms, run = _terms(license, language), runs_table.find_run(RunStore.existing(options.runs), experiment)
        emit("\n".join(map(str, model_folders.write(run, checkpoint, terms))), False, kept=True)
        return
    if babylm is not None:
        if out is not None or form != "csv":
            raise InputError("--babylm DIR writes a folder in a layout of its own; remove --out and --format")
        _export_babylm(experiment, options.runs, babylm, not no_verify)
        return
    if form not in ("csv", "parquet", "latex"):
        raise InputError(f"--format {form!r} is not one of csv, parquet and latex")
    if form == "parquet" and out is None:
        raise InputError("--format parquet is binary and cannot be printed; name a file with --out FILE.parquet")
    if out is not None:
        writable(out.parent)
        if os.path.lexists(out) and not out.is_file():
            raise InputError(f"--out {out} exists and is not a regular file; name another file")
    from workbench.report import data_files
    from workbench.report.load.runs_table import find_record

    store = RunStore.existing(options.runs)
    if out is not None:
        check_outside(store.root, out, "--out")
    record = find_record(store, experiment)
    data = data_files.export_scores(store, record, form, not no_verify)
    if out is None:
        emit(data.decode(), False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    sweep_old(out.parent)
    write_atomic(out, data)
    emit(out, False, kept=True)


def push(
    run: Annotated[str, RUN],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="OWNER/NAME on the Hugging Face hub.")],
    options: Runs,
    private: Annotated[bool, typer.Option("--private", help="Make new models on the hub private.")] = False,
    license: License = None,
    language: Language = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print names, files and cards, and send nothing.")] = False,
) -> None:
    """Upload the models of a run to the Hugging Face hub, with heads, tokenizer and model card.

    A run with a discriminator and a generator becomes NAME-discriminator and NAME-generator, any other NAME.
    """
    from workbench.execution import model_folders
    from workbench.report.load import runs_table

    terms, found = _terms(license, language), runs_table.find_run(RunStore.existing(options.runs), run)
    lines = model_folders.push(found, name, private, terms, dry_run)
    emit("\n".join(lines), False, kept=not dry_run)


def _terms(license: str | None, language: str | None) -> Terms:
    """Return what the publisher of a model states. Raises InputError for no identifier of a licence or a language."""
    from workbench.models.export import Terms

    codes = tuple(code.strip() for code in language.split(",")) if language is not None else ()
    return Terms(languages=codes) if license is None else Terms(license, codes)


def _export_babylm(experiment: str, runs: Path | str, out: Path, verify: bool) -> None:
    writable(out.parent, "--babylm")
    from workbench.cli import terminal
    from workbench.execution import babylm_export
    from workbench.report.load.runs_table import find_record

    store = RunStore.existing(runs)
    rows = babylm_export.export(store, find_record(store, experiment), out, verify)
    shown = ("run_id", "revision", "backend", "task", "pipeline", "ours", "ties")
    table = [{key: round(row[key], 2) if isinstance(row[key], float) else row[key] for key in shown} for row in rows]
    emit("\n".join([*([terminal.table(table)] if table else []), str(out)]), False, kept=True)


# ----------------------------------------
# The state of a store for `workbench status`: each study with its progress first, then the runs that need a look.
#
# With --watch it is a live table on a terminal, and elsewhere the same text after each change.

Row = Mapping[str, Any]
QUIET = ("done", "trained", "new", "reading")  # states of runs that need no look, if they have no note
STYLES = {
    "running": "cyan", "done": "green", "interrupted": "yellow", "failed": "red", "diverged": "red", "damaged": "red",
}  # fmt: skip


def stale_lease(run: RunDir, row: Row) -> str:
    """Return a sentence on a lease whose process has ended, "" if there is none."""
    if row["state"] == "running":
        return ""
    with contextlib.suppress(OSError):
        if holder := owner.read(run.path):
            return f"its lease is stale, left by {holder}; the same command goes on with this run"
    return ""


def needs_look(row: Row, everything: bool) -> bool:
    """Return whether the run of a row trains or needs a look; with `everything`, every run is shown."""
    return bool(everything or row["state"] not in QUIET or row["note"])


def progress_of_studies(records: Sequence[ExperimentRecord], rows: Mapping[str, Row]) -> list[StudyProgress]:
    """Return the progress of each study, the last updated first, and of the runs that are in no study."""
    found = [workers.study_progress(record, rows) for record in records]
    found.sort(key=lambda each: each.record.updated, reverse=True)
    others = sorted(rows.keys() - {run_id for record in records for run_id in record.run_ids})
    if others:
        found.append(workers.study_progress(ExperimentRecord("no study", runs=others), rows))
    return found


def status_lines(
    progress: Sequence[StudyProgress], rows: Iterable[Row], everything: bool, steps: bool = True
) -> list[str]:
    """Return a line for each study, its verdict, and then a line for each run that needs a look or trains.

    With `everything` there is a line for each run; without `steps` there is none for runs that train.
    """
    from workbench.report import verdict_line

    lines = []
    for each in progress:
        record = each.record
        if record.damage:
            lines.append(f"{record.name}  damaged: the record {record.damage}")
            continue
        lines.append(f"{record.name}  {each.state}: {each.text}")
        if record.verdict:
            lines.append(
                f"verdict      {record.name}, {str(record.verdict.get('at'))[:16]}: {verdict_line(record.verdict)}"
            )
    for row in rows:
        if needs_look(row, everything) and (steps or everything or row["state"] != "running"):
            note = workers.line(dict.fromkeys(workers.OF_TRAINING) | dict(row))
            tags = "".join(f" #{tag}" for tag in row["tags"])
            lines.append(f"{row['state']:<12} {row['run_id']}{tags}" + (f"  {note}" if note else ""))
    return lines


def archived_line(count: int) -> list[str]:
    """Return a line on runs that are archived and not shown."""
    return [f"{plural(count, 'archived run')} not shown (--archived shows all)"] if count else []


def follow_status(store: RunStore, archived: bool, everything: bool) -> None:
    """Show the state of a store until Ctrl-C: a live table on a terminal, elsewhere the text after each change."""
    from workbench.view.watched import Watched

    watched = Watched(store)

    def look() -> tuple[list[StudyProgress], list[Row], int]:
        with contextlib.suppress(OSError, InputError):  # the store cannot be read at the moment
            watched.look()
        rows: list[Row] = []
        for run_id, row in sorted(watched.rows.items()):
            if archived or not row.get("archived"):
                stale = stale_lease(RunDir(store.root / run_id), row)
                tags = [tag for tag in str(row.get("tags") or "").split(", ") if tag]
                rows.append({**row, "tags": tags, "note": "; ".join(filter(None, (row["note"], stale)))})
        return progress_of_studies(watched.records, watched.rows), rows, len(watched.rows) - len(rows)

    with contextlib.suppress(KeyboardInterrupt, Interrupted):
        while not watched.complete:  # a store that cannot be read at the start ends the command
            watched.look()
        if not is_terminal():
            last: list[str] = []
            while True:
                progress, rows, left_out = look()
                now = [*status_lines(progress, rows, everything, steps=False), *archived_line(left_out)]
                if [line.partition(", about ")[0] for line in now] != last:
                    emit("\n" * bool(last) + "\n".join(now), False)
                last = [line.partition(", about ")[0] for line in now]
                time.sleep(workers.REFRESH)
        from rich.live import Live

        with Live(console=console(), auto_refresh=False) as live:
            while True:
                progress, rows, left_out = look()
                live.update(_table(progress, rows, everything, left_out), refresh=True)
                time.sleep(workers.REFRESH)


def _table(progress: Sequence[StudyProgress], rows: Sequence[Row], everything: bool, left_out: int) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    studies_table = workers.grid(("study", "state", "", "runs"))
    for each in progress:
        bar = ProgressBar(total=max(1, each.total), completed=each.trained, width=20)
        state = Text(each.state, STYLES.get(each.state, ""))
        studies_table.add_row(Text(each.record.name), state, bar, Text(each.record.damage or each.text))
    runs_table = workers.grid(("run", "state", *workers.NUMBERS, "note"))
    for row in rows:
        if needs_look(row, everything):
            numbers = workers.cells(row)
            state = Text(str(row["state"]), STYLES.get(str(row["state"]), ""))
            note = Text("" if numbers[0] else str(row["note"]))
            runs_table.add_row(Text(str(row["run_id"])), state, *numbers, note)
    parts: list[Any] = [studies_table, *([Text(""), runs_table] if runs_table.row_count else [])]
    return Group(*parts, *map(Text, archived_line(left_out)))
