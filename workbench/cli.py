"""The commands. Each reads its words, calls one function and prints what it returns; heavy imports stand inside.

Facts go to stdout (one JSON document under --json), everything else to stderr. Exit codes: 0 done, 1 some run failed,
2 bad input, 74 disk, 130 interrupted (Ctrl-C), 143 interrupted (SIGTERM, SIGUSR1).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.errors import InputError, Interrupted, suggest
from workbench.host import Host
from workbench.signals import end_with_parent, interrupting

if TYPE_CHECKING:
    from workbench.job import Job

app = typer.Typer(
    help="Which pre-training objective, generator size and weight tying make the best text encoder?",
    no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip
data_app = typer.Typer(help="Prepare a corpus, or show what is prepared.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")

Objectives = Annotated[
    list[str] | None, typer.Option("--objective", help="An objective's name, or a file ./my_idea.py; repeatable.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Any field of the spec, as optim.lr=5e-4; repeatable.")]
Scale = Annotated[str | None, typer.Option(help="nano (default), small, base or large: rows of settings.")]
Corpora = Annotated[
    list[str] | None, typer.Option("--corpus", help="docs (built in), a file, folder, glob or hub name; repeatable.")
]
Tasks = Annotated[str | None, typer.Option(help="probes, glue, none, task names (CoLA,RTE), or a table my.csv.")]
BudgetText = Annotated[str | None, typer.Option("--budget", help="flops=1e17, tokens=2e6, steps=1000 or seconds=600.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Pre-training seeds of every run (default 1).")]
Runs = Annotated[Path, typer.Option("--runs", help="Folder of the run store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Precision = Annotated[
    str, typer.Option(help="auto (bf16 on CUDA and, from a width of 128, on CPUs that have it), fp32 or bf16.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for the report (default reports/NAME).")]
Workers = Annotated[int, typer.Option(min=1, help="Runs at a time: processes that share the CPU or the GPUs.")]
MicroBatch = Annotated[int | None, typer.Option(min=1, help="Rows computed at once (default: all).")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads a run.")]
Plain = Annotated[bool, typer.Option("--plain", help="Without any shortcut of ours, in fp32: for comparison.")]
Compile = Annotated[bool, typer.Option("--compile", help="Use torch.compile.")]
SaveEvery = Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints (default: 5 min).")]
Track = Annotated[str | None, typer.Option(help="Mirror metrics to a tracker: wandb.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="Name or file of an experiment, such as ablation.")],
    objective: Objectives = None,
    set_: Sets = None,
    scale: Scale = None,
    corpus: Corpora = None,
    tasks: Tasks = None,
    budget: BudgetText = None,
    seeds: Seeds = None,
    runs: Runs = Path("runs"),
    out: Out = None,
    workers: Workers = 1,
    device: Device = "auto",
    precision: Precision = "auto",
    micro_batch: MicroBatch = None,
    threads: Threads = None,
    plain: Plain = False,
    compile_: Compile = False,
    save_every: SaveEvery = None,
    track: Track = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train, fine-tune and report every run of an experiment; typed again, it goes on where it stopped."""
    host = _host(device, precision, micro_batch, threads, compile_, save_every, track, plain)
    base = _base(scale, set_, corpus, tasks, budget)
    from workbench.job import plan_job

    job = plan_job(experiment, base, seeds or 1, objective or [])
    _carry_out(job, runs, host, workers, out, dry_run, as_json)


@app.command("sweep")
def sweep_(
    axis: Annotated[
        str | None, typer.Argument(help="Name or file of an experiment, such as generator-size; or tune.")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="Values to compare, as tying=none,all (all combinations), or with --trials the space to "
            "search, as optim.lr=1e-4..1e-3:log; repeatable."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Search --over with so many trials for each cell. None is pruned: a run that is "
            "stopped early has not had the compute of the others, which biases the comparison.",
        ),
    ] = None,
    sampler: Annotated[str, typer.Option(help="Of a search: tpe, random or qmc (quasi-random).")] = "tpe",
    tuning_seeds: Annotated[int, typer.Option(min=1, help="Of tune: pre-training seeds of each trial.")] = 1,
    storage: Annotated[
        str | None, typer.Option(help="Where Optuna's copy of the trials goes (default: a journal in the run store).")
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(help="What all runs get the same of: flops (default), tokens, steps or seconds."),
    ] = None,
    objective: Objectives = None,
    set_: Sets = None,
    scale: Scale = None,
    corpus: Corpora = None,
    tasks: Tasks = None,
    budget: BudgetText = None,
    seeds: Seeds = None,
    runs: Runs = Path("runs"),
    out: Out = None,
    workers: Workers = 1,
    device: Device = "auto",
    precision: Precision = "auto",
    micro_batch: MicroBatch = None,
    threads: Threads = None,
    plain: Plain = False,
    compile_: Compile = False,
    save_every: SaveEvery = None,
    track: Track = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Compare settings at equal compute: an experiment's, those of --over, or both; typed again, it goes on.

    A --budget in another unit than --match is what the first cell gets; all others get as much as that spends.

    tune searches for the settings of every --objective alike (of the learning rate, and of --over), by scores on
    training rows held out, and then reports them on other seeds, by scores on the test rows.
    """
    host = _host(device, precision, micro_batch, threads, compile_, save_every, track, plain)
    base = _base(scale, set_, corpus, tasks, budget)
    from workbench.job import job_of
    from workbench.over import Range, grid, parse_over, unit_of

    words, space = objective or [], parse_over(over or [])
    ranges = [key for key, values in space.items() if isinstance(values, Range)]
    if not trials and axis != "tune":
        if ranges:
            raise InputError(f"--over {ranges[0]}={space[ranges[0]]} is a range: say how often to try, with --trials N")
        found = grid(axis, space, match, base, words)
        _carry_out(job_of(found, base, seeds or 1, words), runs, host, workers, out, dry_run, as_json)
        return
    from workbench import sweep

    if axis == "tune":
        search = sweep.Search(sweep.default_space(base, space), trials or 10, sampler, tuning_seeds, storage)
        unit = unit_of(match, None, base)
        if dry_run:
            _carry_out(sweep.tune_jobs(base, search, words, unit)[0], runs, host, workers, out, dry_run, as_json)
            return
        outcome = sweep.tune(base, search, words, unit, seeds or 1, runs, host, workers, out)
    else:
        if not space:
            raise InputError("--trials needs a space to search, as in --over optim.lr=1e-4..1e-3:log")
        search = sweep.Search(space, trials or 10, sampler, seeds or 1, storage)
        job = sweep.search_job(grid(axis, space, match, base, words), base, search, words)
        if dry_run:
            _carry_out(job, runs, host, workers, out, dry_run, as_json)
            return
        outcome = sweep.execute(job, search, runs, host, workers, out)
    _print(outcome.to_json() if as_json else outcome.summary(), as_json)
    raise typer.Exit(outcome.exit_code)


def _carry_out(job: Job, runs: Path, host: Host, workers: int, out: Path | None, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        from workbench import show
        from workbench.job import plans

        host.resolved_device()
        priced, matches = plans(job)
        table = show.plan_json(job, priced, matches) if as_json else show.plan_table(job, priced, matches, host)
        _print(table, as_json)
        return
    from workbench import runner

    outcome = runner.execute(job, runs, host, workers, out)
    _print(outcome.to_json() if as_json else outcome.summary(), as_json)
    raise typer.Exit(outcome.exit_code)


@app.command()
def report(
    experiment: Annotated[str, typer.Argument(help="Name of an experiment, or of one of its records.")],
    runs: Runs = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="Folder for the report (default reports/NAME).")] = None,
    order: Annotated[bool, typer.Option("--aso", help="Add the almost stochastic order to every comparison.")] = False,
    budget: Annotated[str | None, typer.Option(help="Recommend for a budget of yours, as flops=1e18.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write the HTML report and its CSV tables again, from the run directories alone."""
    from workbench.report import find_record, write
    from workbench.report.asked import Asked
    from workbench.spec import parse_budget
    from workbench.store import RunStore

    asked = Asked(order, parse_budget(budget) if budget else None)
    store = RunStore.existing(runs)
    record = find_record(store, experiment)
    page = write(store, record, out or Path("reports") / record, asked=asked)
    typer.echo(str(page))
    if open_:
        typer.launch(page.resolve().as_uri())


@app.command()
def status(runs: Runs = Path("runs"), as_json: AsJson = False) -> None:
    """What is done, running (and how far), interrupted, failed or damaged in a run store."""
    from workbench import live
    from workbench.store import RunStore

    rows = [live.facts(found) for found in RunStore.existing(runs).runs()]
    if as_json:
        _print(rows, True)
        return
    for row in rows:
        note = live.line(row)
        typer.echo(f"{row['state']:<12} {row['run_id']}" + (f"  {note}" if note else ""))


@app.command("runs")
def runs_(
    where: Annotated[list[str] | None, typer.Option(help="Keep objective=rtd, or seed<3; repeatable.")] = None,
    sort: Annotated[str | None, typer.Option(help="A key to sort by; -KEY for the largest first.")] = None,
    columns: Annotated[str | None, typer.Option(help="Keys to show, comma-separated; all for every one.")] = None,
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """The runs of a store with their settings, spending and scores: filter, sort, choose columns."""
    from workbench import show
    from workbench.report import ledger
    from workbench.store import RunStore

    found = ledger.rows(RunStore.existing(runs))
    shown = ledger.shown(found, ledger.chosen(found, where or [], sort), columns)
    _print(shown if as_json else show.table(shown), as_json)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="A run, by its name or a part that no other has.")],
    b: Annotated[str, typer.Argument(help="Another.")],
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Only what differs between two runs: in what they are, then in what came of them."""
    from workbench import show
    from workbench.report import ledger
    from workbench.store import RunStore

    store = RunStore.existing(runs)
    one, two = (ledger.row_of(ledger.find_run(store, word)) for word in (a, b))
    spec, came = ledger.differences(one, two)
    both = {"a": one["run_id"], "b": two["run_id"], "spec": spec, "result": came}
    _print(both if as_json else ledger.as_text(one, two, show.table), as_json)


@app.command()
def export(
    experiment: Annotated[str, typer.Argument(help="Name of an experiment, or of one of its records.")],
    form: Annotated[str, typer.Option("--format", help="csv, parquet or latex.")] = "csv",
    runs: Runs = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """One long table of every score, each row with run, seeds, spec, data fingerprint and code version."""
    if form not in ("csv", "parquet", "latex"):
        raise InputError(f"--format {form!r} is not one of csv, parquet and latex")
    if form == "parquet" and out is None:
        raise InputError("--format parquet is no text for a terminal; say where it goes with --out FILE.parquet")
    from workbench.report import find_record
    from workbench.store import RunStore

    store = RunStore.existing(runs)
    record = find_record(store, experiment)
    from workbench.files import write_atomic
    from workbench.report import long

    data = long.export(store, record, form)
    if out is None:
        sys.stdout.write(data.decode())
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, data)
    typer.echo(str(out))


@app.command()
def flops(
    objective: Annotated[str, typer.Option(help="An objective's name or file.")] = "rtd",
    scale: Scale = None,
    set_: Sets = None,
    budget: BudgetText = None,
    as_json: AsJson = False,
) -> None:
    """Training FLOPs of one run under the three conventions, its steps, tokens and parameters."""
    base = _base(scale, set_, None, None, budget)
    from workbench import show
    from workbench.plan import price

    priced = price(base, objective)
    _print(priced.to_json() if as_json else show.price_table(priced), as_json)


@app.command()
def bench(
    objective: Objectives = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="nano, small, base or large (default all); repeatable.")
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
    host = _host(device, precision, micro_batch, threads, compile_, plain=plain)
    from workbench import bench, progress, show
    from workbench.spec import parse_overrides

    specs = bench.specs_of(objective or [], scale or [], parse_overrides(set_ or []))
    rows = bench.bench(specs, host, bench.Settings(seconds, steps, repeats), progress.say)
    if out is not None:
        from workbench.report import write_bench

        progress.say(f"charts: {write_bench(rows, out)}")
    _print(rows if as_json else show.bench_table(rows), as_json)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="objectives, scales, corpora, tasks, encoders or experiments.")],
    as_json: AsJson = False,
) -> None:
    """What can be named on the command line."""
    from workbench import show

    if what not in show.LISTS:
        raise InputError(f"cannot list {what!r}{suggest(what, show.LISTS)}")
    rows = show.LISTS[what]()
    _print(rows if as_json else show.table(rows), as_json)


@app.command()
def evaluate(
    encoder: Annotated[Path, typer.Argument(help="Folder of an encoder in the Hugging Face layout.")],
    set_: Sets = None,
    scale: Scale = None,
    tasks: Tasks = None,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """Fine-tune any encoder on tasks and print its scores; the run store is not touched."""
    host = _host(device, precision)
    base = _base(scale, set_, None, tasks, None)
    from workbench import runner, show

    scores = runner.evaluate(encoder, base, host)
    _print(scores if as_json else show.table(scores), as_json)


@app.command(hidden=True)
def worker(
    record: Annotated[str, typer.Option()],
    run: Annotated[list[str], typer.Option()],
    runs: Runs = Path("runs"),
    objective: Objectives = None,
    device: Device = "auto",
    precision: Precision = "auto",
    micro_batch: Annotated[int | None, typer.Option()] = None,
    threads: Annotated[int | None, typer.Option()] = None,
    plain: Plain = False,
    compile_: Annotated[bool, typer.Option("--compile")] = False,
    save_every: Annotated[int | None, typer.Option()] = None,
    track: Annotated[str | None, typer.Option()] = None,
    parent: Annotated[int | None, typer.Option()] = None,
    since: Annotated[str, typer.Option()] = "",
) -> None:
    """Carry out what is left of a record's runs; several may do so at once. With `parent`, only while that lives."""
    if parent is not None:
        end_with_parent(parent)
    host = _host(device, precision, micro_batch, threads, compile_, save_every, track, plain)
    from workbench import runner

    raise typer.Exit(1 if runner.work(runs, record, run, host, objective or [], since) else 0)


@data_app.command("prepare")
def data_prepare(corpus: Corpora = None, scale: Scale = None, set_: Sets = None, as_json: AsJson = False) -> None:
    """Turn text into token shards, once; runs on the same text start at once."""
    base = _base(scale, set_, corpus, "none", None)
    from workbench import runner, show

    facts = runner.prepared_facts(base)
    _print(facts if as_json else show.table([facts]), as_json)


def _base(
    scale: str | None, sets: list[str] | None, corpus: list[str] | None, tasks: str | None, budget: str | None
) -> Any:
    """The spec that the words ask for. Two words that say different things about one field are refused."""
    from workbench import presets
    from workbench.spec import parse_budget, parse_overrides

    overrides = parse_overrides(sets or [])
    scale_set = overrides.pop("scale", None)
    given = {"data.corpus": ",".join(corpus) if corpus else None, "tasks.names": tasks, "scale": scale}
    options = {"data.corpus": "--corpus", "tasks.names": "--tasks", "scale": "--scale"}
    for key, value in given.items():
        other = scale_set if key == "scale" else overrides.get(key)
        if value is not None and other is not None and other != value:
            raise InputError(f"{options[key]} {value} and --set {key}={other} contradict each other; keep one")
        if value is not None and key != "scale":
            overrides[key] = value
    if budget is not None:
        clash = next((key for key in overrides if key.startswith("budget.") and key != "budget.convention"), None)
        if clash:
            raise InputError(f"--budget {budget} and --set {clash}={overrides[clash]} contradict each other; keep one")
        chosen = parse_budget(budget)
        overrides[f"budget.{chosen.unit}"] = getattr(chosen, chosen.unit)
    if "objective" in overrides:
        raise InputError("--set objective=... is spelled --objective NAME")
    base = presets.resolve(scale or scale_set or "nano", overrides)
    from workbench.offline import stay_local

    stay_local(base)
    return base


def _host(
    device: str = "auto", precision: str = "auto", micro_batch: int | None = None, threads: int | None = None,
    compile_: bool = False, save_every: int | None = None, track: str | None = None, plain: bool = False,
) -> Host:  # fmt: skip
    if precision not in ("auto", "fp32", "bf16"):
        raise InputError(f"--precision {precision!r} is not one of auto, fp32 and bf16")
    if track not in (None, "wandb"):
        raise InputError(f"--track {track!r} is not known; there is wandb")
    host = Host(
        device=device, precision=precision, compile=compile_, threads=threads, micro_batch=micro_batch,  # type: ignore[arg-type]
        save_every=save_every, track=track, plain=plain,
    )  # fmt: skip
    if device != "auto":
        host.resolved_device()
    return host


def _print(value: Any, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
    else:
        sys.stdout.write(str(value).rstrip("\n") + "\n")


DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EFBIG)


INTERRUPTED = "interrupted; the same command goes on from what is saved"


def main() -> None:
    """The entry point: every way to end has one line and one exit code."""
    logging.basicConfig(level=logging.WARNING, format="workbench: %(message)s", stream=sys.stderr)
    try:
        with interrupting():
            code = app(standalone_mode=False)
    except InputError as error:
        code = _fail(str(error), 2)
    except Interrupted as stop:
        code = _fail(INTERRUPTED, 128 + stop.signal)
    except KeyboardInterrupt:
        code = _fail(INTERRUPTED, 130)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - closed by the end of the process
        code = 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename and str(error.filename) not in str(error.strerror) else ""
        code = _fail(f"{error.strerror or error}{where}", 74) if error.errno in DISK else _unexpected(error)
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # the command line's own complaints
            code = _fail(error.format_message().replace("\n", " "), error.exit_code)
        elif type(error).__name__ == "Abort":  # what the command line library makes of Ctrl-C
            code = _fail(INTERRUPTED, 130)
        elif type(error).__name__ == "Exit":
            code = getattr(error, "exit_code", 0)
        else:
            code = _unexpected(error)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> int:
    sys.stderr.write(f"workbench: {sentence}\n")
    return code


def _unexpected(error: BaseException) -> int:
    """A fault of ours: one line, and the traceback in a file to send along."""
    with tempfile.NamedTemporaryFile("w", prefix="workbench-", suffix=".log", delete=False) as file:
        traceback.print_exception(error, file=file)
    return _fail(f"internal error: {type(error).__name__}: {error}; details are in {file.name}", 1)


if __name__ == "__main__":
    main()
