"""Commands that answer before anything is run: plan-study, flops, bench, doctor, list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.options import (
    AsJson,
    BudgetText,
    Corpora,
    Device,
    MatchText,
    Objectives,
    Plain,
    Precision,
    Runs,
    Scale,
    Sets,
    Threads,
    Workers,
    emit,
)
from workbench.errors import InputError, suggest
from workbench.execution.request import Request, base_spec, experiment_job, host_of, rehearsed, with_words


def flops(
    objective: Annotated[str, typer.Option(help="An objective's name or file.")] = "rtd",
    scale: Scale = None,
    set_: Sets = None,
    budget: BudgetText = None,
    as_json: AsJson = False,
) -> None:
    """Training FLOPs of one run under the three conventions, its steps, tokens and parameters."""
    base = with_words(base_spec(scale, set_, None, None, budget, own_process=True))
    from workbench.cli import terminal
    from workbench.training.plan import price

    priced = price(base, objective)
    emit(priced.to_json() if as_json else terminal.price_table(priced), as_json)


def plan_study(
    experiment: Annotated[str, typer.Argument(help="Name or file of an experiment, such as ablation.")],
    sd: Annotated[
        float | None,
        typer.Option(min=1e-9, help="Assumed standard deviation of paired differences, in points, without a store."),
    ] = None,
    noise_of: Annotated[
        str | None, typer.Option(help="Experiment or record whose runs say how noisy scores are (default: EXPERIMENT).")
    ] = None,
    objective: Objectives = None,
    set_: Sets = None,
    scale: Scale = None,
    corpus: Corpora = None,
    budget: BudgetText = None,
    match: MatchText = None,
    runs: Runs = Path("runs"),
    workers: Workers = 1,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """What gap an experiment can show with so many seeds, and what that costs here; nothing is run.

    The noise is that between seeds in a store of runs (--runs, --noise-of), or one that is assumed (--sd).
    """
    if sd is not None and noise_of is not None:
        raise InputError(f"--sd {sd:g} and --noise-of {noise_of} contradict each other; keep one")
    host = host_of(device, precision, None, threads)
    from workbench.cli import study_table
    from workbench.execution import study_plan
    from workbench.store.run_store import RunStore

    request = Request(
        objective or (), set_ or (), scale, corpus or (), budget=budget, match=match, own_process=True
    )  # fmt: skip
    job, _ = experiment_job(request, experiment, {}, ())
    if sd is not None:
        noise = [study_plan.Noise("any measure", sd, "as assumed")]
    else:
        noise = study_plan.measured(RunStore.existing(runs), noise_of or job.experiment.name)
    rows = [study_plan.designs(job, one.sd, host, workers) for one in noise]
    emit(study_plan.as_json(job, noise, rows) if as_json else study_table.as_text(job, noise, rows), as_json)


def bench(
    objective: Objectives = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="nano, micro, mini, small, base or large (default all); repeatable.")
    ] = None,
    set_: Sets = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of one timed turn; no less than one step.")] = 3.0,
    steps: Annotated[int | None, typer.Option(min=1, help="Of one timed turn, in place of seconds.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Timed turns of each objective, one after the other.")] = 3,
    device: Device = "auto",
    precision: Precision = "auto",
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Rows computed at once (default: all).")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    plain: Plain = False,
    compile_: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for a page with charts, and the numbers as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Throughput of every objective at every scale here, next to what the machine could do, and where the time goes."""
    host = host_of(device, precision, micro_batch, threads, compile_, plain=plain)
    from workbench import bench, progress
    from workbench.cli import terminal
    from workbench.spec.run_spec import parse_overrides

    trial = bool(rehearsed(None, 1))  # one step of the smallest encoder
    specs = bench.specs_of(objective or [], ["nano"] if trial else scale or [], parse_overrides(set_ or []))
    settings = bench.Settings(seconds, 1 if trial else steps, rehearsed(repeats, 1) or 1)
    rows = bench.bench(specs, host, settings, progress.say)
    if out is not None:
        from workbench.report import write_bench

        progress.say(f"charts: {write_bench(rows, out)}")
    emit(rows if as_json else terminal.bench_table(rows), as_json)


def doctor(as_json: AsJson = False) -> None:
    """What this installation can do, and what it lacks. Exits with 1 where commands would fail."""
    from workbench.bench.installation import checks
    from workbench.cli import terminal

    found = checks()
    emit(
        [check.to_json() for check in found] if as_json else terminal.table([check.to_json() for check in found]),
        as_json,
    )
    raise typer.Exit(1 if any(check.state == "problem" for check in found) else 0)


def list_(
    what: Annotated[str, typer.Argument(help="objectives, scales, corpora, tasks, encoders or experiments.")],
    as_json: AsJson = False,
) -> None:
    """What can be named on the command line."""
    from workbench.cli import terminal

    if what not in terminal.LISTS:
        raise InputError(f"cannot list {what!r}{suggest(what, terminal.LISTS)}")
    rows = terminal.LISTS[what]()
    emit(rows if as_json else terminal.table(rows), as_json)
