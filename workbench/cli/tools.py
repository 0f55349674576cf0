"""Commands that start no run of a study: plan-study, flops, bench, doctor, list, new, check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.command import AsJson, completion, emit, number_option, path_option
from workbench.cli.lists import LISTS
from workbench.errors import InputError, suggest
from workbench.execution.study_options import (
    base_spec,
    experiment_job,
    host_of,
    names_of,
    rehearsed,
    with_words,
    writable,
)
from workbench.options import RunOptions, StudyOptions

OF_KINDS = "objective, encoder, task, tracker or experiment"


def flops(
    options: Annotated[StudyOptions, "scale set budget"],
    objective: Annotated[str, typer.Option(metavar="NAME|FILE", help="An objective's name or file.")] = "rtd",
    as_json: AsJson = False,
) -> None:
    """Print the training FLOPs of one run under the three conventions, with its steps, tokens and parameters."""
    base = with_words(base_spec(options, own_process=True))
    from workbench.cli import terminal
    from workbench.training.plan import price

    priced = price(base, objective)
    emit(asdict(priced) if as_json else terminal.price_table(priced, base.scale), as_json)


def plan_study(
    options: Annotated[
        RunOptions, "experiment objective set scale corpus budget match runs workers device precision threads"
    ],
    sd: Annotated[
        float | None,
        number_option(1e-9, 1e9, "Assumed standard deviation of paired differences, in points; no store is read."),
    ] = None,
    noise_of: Annotated[
        str | None, typer.Option(metavar="NAME", help="Experiment or study whose noise is taken (default: EXPERIMENT).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the gap that an experiment can show with each number of seeds, and its cost here; nothing is run.

    The noise between seeds comes from the runs of a store (--runs, --noise-of), or is assumed (--sd). What each measure
    could tell in kept studies of about this budget is printed below it.
    """
    if sd is not None and noise_of is not None:
        raise InputError(f"--sd {sd:g} and --noise-of {noise_of} contradict each other; keep one")
    host, workers = host_of(options), options.workers
    from workbench import progress
    from workbench.cli import terminal
    from workbench.execution import study_power
    from workbench.store.run_store import RunStore

    job, _ = experiment_job(options, options.experiment, {}, (), own_process=True)
    kept = study_power.known(job)
    if sd is not None:
        noise = [study_power.Noise("any measure", sd, "as assumed")]
    else:
        try:
            noise = study_power.measured(RunStore.existing(options.runs), noise_of or job.experiment.name)
        except InputError as error:
            if noise_of is not None:
                raise
            if not kept:
                raise InputError(f"{error}; or assume the noise, as in --sd 2") from None
            noise = []
            progress.say(f"the noise is taken from kept studies: {error}")
    if not kept:
        progress.say(
            f"no kept study is within a factor of {study_power.NEAR:g} of this budget, and what it can show is unknown"
        )
    rows = [study_power.designs(job, one.sd, host, workers) for one in noise]
    shown = study_power.as_json if as_json else terminal.study_text
    emit(shown(job, noise, rows, kept), as_json)


def bench(
    options: Annotated[StudyOptions, "objective set device precision micro_batch threads plain compile"],
    scale: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A scale (default: all); repeatable.", autocompletion=completion("scales")),
    ] = None,
    seconds: Annotated[float, number_option(0.1, 3600, "Length of a timed turn; at least one step.")] = 3.0,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps of a timed turn, instead of --seconds.")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, metavar="N", help="Timed turns of each objective; the objectives take turns.")
    ] = 3,
    out: Annotated[Path | None, path_option("Folder for a page of charts, and JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the speed of every objective at every scale on this machine, and where the time of a step goes."""
    host = host_of(options)
    if out is not None:
        writable(out)
    from workbench import bench, progress
    from workbench.cli import terminal
    from workbench.spec.run_spec import overrides_of

    trial = bool(rehearsed(None, 1))  # one step of the smallest encoder
    scales = ["nano"] if trial else scale or []
    specs = bench.specs_of(names_of(options.objective), scales, overrides_of(options.set))
    settings = bench.Settings(seconds, 1 if trial else steps, rehearsed(repeats, 1) or 1)
    rows = bench.bench(specs, host, settings, progress.say)
    if out is not None:
        from workbench.report.page.rendering import write_bench

        progress.say(f"charts: {write_bench(rows, out)}")
    emit(rows if as_json else terminal.bench_table(rows), as_json)


def doctor(as_json: AsJson = False) -> None:
    """Check what this installation can do and what it lacks; the exit code is 1 if commands would fail."""
    from workbench.bench.machine import checks
    from workbench.cli import terminal

    rows = [asdict(check) for check in checks()]
    emit(rows if as_json else terminal.table(rows), as_json)
    raise typer.Exit(1 if any(row["state"] == "problem" for row in rows) else 0)


def list_(
    what: Annotated[
        str, typer.Argument(metavar="LIST", help=f"{', '.join(LISTS)}.", autocompletion=lambda: list(LISTS))
    ],
    as_json: AsJson = False,
) -> None:
    """List the names that the options of other commands accept."""
    from workbench.cli import terminal

    if what not in LISTS:
        raise InputError(f"list {what}: there is no list of this name{suggest(what, LISTS)}")
    rows = LISTS[what]()
    emit(rows if as_json else terminal.table(rows, empty="unknown"), as_json)


def _kinds() -> list[str]:
    from workbench.execution.plug_checks import KINDS

    return list(KINDS)


def new(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{OF_KINDS}.", autocompletion=_kinds)],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the file, with or without folder and .py.")],
    as_json: AsJson = False,
) -> None:
    """Write a commented, working file of a plug-in, and print the commands to give next.

    An existing file is never overwritten.
    """
    from workbench.execution import plug_checks

    path, commands = plug_checks.new(kind, name)
    text = "\n".join([f"{path} is written; next:", *(f"  {command}" for command in commands)])
    emit({"file": str(path), "next": commands} if as_json else text, as_json, kept=True)


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Python file of the plug-in; or a name, with --kind.")],
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"{OF_KINDS}; by default what the file defines.", autocompletion=_kinds),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the file of a plug-in, and say what is wrong with it; the exit code is 1 if anything is.

    At a small size on made-up text, in less than a minute: shapes, gradients, FLOPs against torch's counter,
    determinism, stopping and resuming, export. Of tasks: names, settings, price, baselines and a measurement. Of
    trackers: copies of a made-up run. Of experiments: the plan.
    """
    from workbench.execution import plug_checks

    kind, findings = plug_checks.check(file, kind)
    faults = any(each.fault for each in findings)
    rows = [asdict(each) for each in findings]
    text = "\n".join(plug_checks.lines(kind, file, findings))
    emit({"file": file, "kind": kind, "checks": rows} if as_json else text, as_json)
    raise typer.Exit(1 if faults else 0)
