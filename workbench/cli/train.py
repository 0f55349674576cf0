"""Commands that start runs or prepare them: run, sweep, evaluate, submit, worker, data prepare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.command import AsJson, DryRun, emit
from workbench.errors import InputError
from workbench.execution.study_options import base_spec, host_of, prepared, scores_of_encoders, study_of, writable
from workbench.options import EvaluateOptions, RunOptions, StudyOptions, SubmitOptions, SweepOptions
from workbench.process import FOR_TEXT, check_address_space, end_with_parent
from workbench.progress import say
from workbench.spec.host import Host
from workbench.spec.parts import by_source

if TYPE_CHECKING:
    from workbench.execution.sequential_seeds import Limit
    from workbench.execution.study import Job
    from workbench.execution.study_runner import Outcome


def run(options: RunOptions, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Pre-train, fine-tune and report every run of an experiment; the same command again resumes it.

    All runs get the same FLOPs. A --budget in steps or tokens is the budget of the first objective, and the others get
    the FLOPs that it spends.
    """
    if both := _prepared(options, dry_run, as_json):
        study, told = both
        with told as outcomes:
            outcomes.append(study())
        _end(outcomes[0], as_json)


def sweep_(options: SweepOptions, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Compare settings at equal compute: of an experiment, of --over, or of both; the same command resumes it.

    A --budget in another unit than --match is the budget of the first arm; all others get the same amount of --match.

    With tune, every --objective gets the same search for its settings (learning rate, and --over) on held-out training
    rows. The report has the best settings of each, on other seeds and the test rows.
    """
    if both := _prepared(options, dry_run, as_json):
        study, told = both
        with told as outcomes:
            outcomes.append(study())
        _end(outcomes[0], as_json)


def _prepared(
    options: RunOptions | SweepOptions, dry_run: bool, as_json: bool
) -> tuple[Callable[[], Outcome], AbstractContextManager[list[Outcome]]] | None:
    """Return what carries out a study, and the block to do so in; None if its plan is printed instead."""
    host = host_of(options)
    job, limit, carry_out = study_of(options, own_process=True)
    if not dry_run:
        return prepared(options, host, job, carry_out)
    _print_plan(job, options, host, as_json, limit)
    return None


def _end(outcome: Outcome, as_json: bool) -> None:
    emit(outcome.to_json() if as_json else outcome.summary(), as_json, kept=True)
    raise typer.Exit(outcome.exit_code)


def _print_plan(job: Job, options: StudyOptions, host: Host, as_json: bool, limit: Limit | None = None) -> None:
    """Print the plan of a job, and draw its compute beside published scores if there is a folder --out."""
    from workbench.cli import terminal
    from workbench.data.prepare import already, prepare
    from workbench.execution import sequential_seeds, study_runner

    workers = options.workers
    study_runner.check(host, job.specs)
    job = sequential_seeds.whole(job, limit, host, workers) if limit else job
    priced, matches = job.priced
    job.warn()
    text = study_runner.text_facts(prepare(job.base)) if job.base.data.words else {}
    prepared = already(job.base)
    if prepared is not None:
        study_runner.check_losses(job.specs, prepared, host)
    sentence, rows = study_runner.planned_points(job, prepared)
    tuning, fine_tunings = study_runner.planned_tuning(job, prepared, host, workers)
    trained = study_runner.trained_already(job, prepared, Path(options.runs))
    if as_json:
        costs = {"points": rows, "fine_tuning": fine_tunings}
        emit(terminal.plan_json(job, priced, matches, text, trained) | costs, as_json)
    else:
        table = terminal.plan_table(job, priced, matches, host, workers, text, trained)
        emit("\n".join([table, *filter(None, (tuning, sentence))]), as_json)
    if options.out is None:
        return
    from workbench.report import write_plan
    from workbench.report.load.arm_names import arm_names
    from workbench.spec.run_spec import flat

    out = Path(options.out)
    writable(out)
    settings = {spec.name: flat(spec.model_dump()) for spec, _ in priced}
    names = arm_names(job.experiment.axis, [{"run_id": name, "role": "arm"} for name in settings], settings)
    flops = {names[spec.name]: float(plan.flops["paper"]) for spec, plan in priced}
    if not all(flops.values()):
        raise InputError(f"--out {out}: runs with a budget in seconds have no FLOPs yet; give another --budget")
    say(f"figure: {write_plan(flops, out)}")


def evaluate(options: EvaluateOptions, as_json: AsJson = False) -> None:
    """Measure published models, or folders of encoders, by tasks; print their scores and keep them in the run store.

    In the store each model is a run of the kind "published", which reports show beside those that were trained here.
    The same command again takes only what is missing. The folder of a run's encoder is measured too, and nothing is
    kept of it. Without --scale, the settings of fine-tuning are those of the encoder's run, or for a model that others
    trained those of the scale nearest in size; they are printed.
    """
    from workbench.cli import terminal

    scores, failed = scores_of_encoders(options, own_process=True)
    emit(scores if as_json else terminal.table(terminal.score_rows(scores)), as_json, kept=True)
    raise typer.Exit(1 if failed else 0)


def submit(options: SubmitOptions, as_json: AsJson = False) -> None:
    """Write predictions on GLUE's test sets as the zip that its server takes, and a card that says how they came about.

    The fine-tuning of each score is carried out again, and must give the recorded score on dev. A command that was
    interrupted goes on where it was.
    """
    host = host_of(options)
    from workbench.cli import terminal
    from workbench.execution import glue_submission

    card = glue_submission.submit(options, host)
    table = f"{terminal.table(glue_submission.table_rows(card))}\n{options.out}"
    emit(card.to_json() if as_json else table, as_json, kept=True)


def worker(assignment: Annotated[Path, typer.Argument(help="The assignment file that run or sweep wrote.")]) -> None:
    """Carry out the remaining runs of an assignment, beside other workers, as long as its parent process exists."""
    from workbench.execution import study_runner
    from workbench.execution.workers import Assignment

    given = Assignment.read(assignment)
    end_with_parent(given.parent)
    check_address_space()
    raise typer.Exit(1 if study_runner.work(given) else 0)


def rank() -> None:
    """Compute the part of one device in the runs of the process that started this one."""
    from workbench.execution.devices import follow_all

    check_address_space()
    follow_all()


def encode_slices(
    plan: Annotated[Path, typer.Argument(help="The plan that data prepare wrote.")],
    parent: Annotated[int, typer.Option(min=0, help="Process whose end ends this one; 0 for none.")] = 0,
) -> None:
    """Encode the slices of a text that no other process encodes, until all are there."""
    from workbench.data.preprocessing import Plan, encode_missing

    given = Plan.read(plan)
    end_with_parent(parent)
    check_address_space(FOR_TEXT, "preparing a text")
    encode_missing(given)


def prepare_(
    options: Annotated[StudyOptions, "corpus scale set launcher"],
    workers: Annotated[
        int,
        typer.Option(min=1, max=1024, metavar="N", help="Processes, or jobs, that encode a text of more than 256 MiB."),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Turn text into token shards in the cache, so that runs on the same text start at once.

    A text of more than 256 MiB is encoded in slices. The same command goes on after an interruption, and given on
    other machines that share the cache, it takes its part of the slices.
    """
    from workbench.execution import slurm

    launch = slurm.job_options(options.launcher, options.set)
    base = base_spec(replace(options, tasks=("none",)), own_process=True)
    from workbench.cli import terminal
    from workbench.data.prepare import prepare
    from workbench.data.preprocessing import encode_with

    if launch is not None:
        slurm.check()
    encode = encode_with if launch is None else partial(slurm.encode_text, launch=launch)
    text = prepare(base, workers=workers, encode_slices=encode)
    removed = {name: dict(counts) for name, counts in text.removed.items()}
    facts = {
        "corpus": ", ".join(base.data.corpus), "documents": text.documents, "tokens": text.tokens,
        "words": text.words, "sources": dict(text.sources), **({"removed": removed} if removed else {}),
        "bytes": text.bytes, "vocab": text.vocab, "fingerprint": text.fingerprint, "folder": str(text.folder),
    }  # fmt: skip
    emit(facts if as_json else terminal.table([facts | {"sources": by_source(text.sources)}]), as_json, kept=True)
