"""The options that several commands share, and the printing of results."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TextIO

import typer

from workbench.errors import InputError
from workbench.store.atomic import user_path
from workbench.store.redact import refuse_secrets

P = ParamSpec("P")
log = logging.getLogger("workbench")


def typed_path(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Return the path of an option with `~` replaced by the home folder, which a shell leaves in `--out=~/x`.

    Raises InputError if there is no such user.
    """
    return None if value is None else user_path(value, param.opts[0])


def number_option(least: float, most: float, help: str) -> Any:
    """Return an option for a number from `least` to `most` that refuses NaN and names an unusable value."""

    def parse(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise typer.BadParameter(f"{str(text)!r:.80} is not a number from {least:g} to {most:g}")
        return value

    return typer.Option(parser=parse, metavar="FLOAT", help=help)


Objectives = Annotated[
    list[str] | None, typer.Option("--objective", help="An objective's name, or a file ./my_idea.py; repeatable.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Set a field of the spec, as in optim.lr=5e-4; repeatable.")
]
Scale = Annotated[
    str | None,
    typer.Option(
        help="nano, micro, mini, small, base, large, or a published size (workbench list scales); default nano; "
        "evaluate: its run's, or nearest in size."
    ),
]
Corpora = Annotated[
    list[str] | None,
    typer.Option("--corpus", help="Text: docs (built in), a file, a folder, a glob or a hub name; repeatable."),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        help="Tasks: probes, linear, pairs, blimp, glue, superglue, squad1, none, names (CoLA,RTE), my.csv, tag:FILE, "
        "choice:FILE, similarity:STS-B, retrieval:DIR, a folder of minimal pairs, or a file ./my_task.py "
        "(workbench list tasks)."
    ),
]
EvaluateAt = Annotated[
    str | None,
    typer.Option(
        help="Points of training at which zero-shot and linear tasks are scored as well: auto (default: up to 6 on a "
        "log scale, for at most 5 % of a run's compute), log:N, words (BabyLM's schedule) or none."
    ),
]
BudgetText = Annotated[
    str | None, typer.Option("--budget", help="Budget: flops=1e17, tokens=2e6, words=1e8, steps=1000 or seconds=600.")
]
Seeds = Annotated[
    str | None,
    typer.Option(
        help="Number of pre-training seeds (default 1), or auto: add seeds until every comparison in CONTRASTS is "
        "decided, or cannot be decided within the limits."
    ),
]
MostSeeds = Annotated[
    int | None, typer.Option(min=2, max=1000, help="For --seeds auto: the largest number (default 12).")
]
MostCompute = Annotated[
    str | None, typer.Option(help="For --seeds auto: the most that all runs may spend, as flops=1e17 or seconds=36000.")
]
Runs = Annotated[Path, typer.Option("--runs", help="Folder of the run store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:N or mps.")]
Precision = Annotated[
    str,
    typer.Option(help="Precision: auto (bf16 on CUDA and, from a width of 64, on CPUs that have it), fp32 or bf16."),
]
Out = Annotated[Path | None, typer.Option(callback=typed_path, help="Folder for the report (default reports/NAME).")]
Workers = Annotated[
    int, typer.Option(min=1, max=1024, help="Number of runs at a time: processes that share the CPU or the GPUs.")
]
Devices = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="Number of devices that compute each run: GPUs, or processes on a CPU (default: 1, or as many as torchrun "
        "started).",
    ),
]
Shard = Annotated[
    bool,
    typer.Option(
        "--shard",
        help="Let each of several --devices hold a part of the weights, gradients and optimizer state (FSDP2), for "
        "models that do not fit on one.",
    ),
]
Launcher = Annotated[
    str,
    typer.Option(
        help="Where it is computed: local, or slurm for jobs of a cluster, as many at a time as --workers says; "
        "--set launch.time=04:00:00 and the like are options of the jobs."
    ),
]
MicroBatch = Annotated[
    int | None, typer.Option(min=1, max=1 << 31, help="Rows computed at once (default: all of a device's).")
]
Threads = Annotated[int | None, typer.Option(min=1, max=4096, help="CPU threads of each run.")]
Plain = Annotated[bool, typer.Option("--plain", help="Use plain PyTorch in fp32, without faster code, for comparison.")]
Compile = Annotated[bool, typer.Option("--compile", help="Use torch.compile.")]
SaveEvery = Annotated[
    int | None, typer.Option(min=1, max=1 << 31, help="Steps between checkpoints (default: one each 5 min).")
]
Track = Annotated[str | None, typer.Option(help="Copy metrics to a tracker: wandb.")]
MatchText = Annotated[
    str | None,
    typer.Option(
        "--match",
        help="The unit of which all runs get the same amount: flops (default), tokens, words, steps or seconds. With "
        "none, each run gets the --budget as given, and the report is not at equal compute.",
    ),
]
MostEpochs = Annotated[
    float | None,
    number_option(1e-9, 1e9, "Refuse runs with more epochs of the text; BabyLM's challenge allows 10."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and stop; with --out, draw it beside published scores.")
]


_results: ContextVar[TextIO | None] = ContextVar("_results", default=None)
_printed: list[bool] = []  # of each result, whether standard output is the only place where it is


def emit(value: Any, as_json: bool, kept: bool = False) -> None:
    """Print a result on stdout, as text or as one JSON document.

    `kept` states that the command keeps its result in files; a text that cannot be printed then loses nothing.
    """
    _printed.append(as_json or not kept)
    text = json.dumps(value, indent=1, allow_nan=False) if as_json else str(value).rstrip("\n")
    (_results.get() or sys.stdout).write(text + "\n")


def only_printed() -> bool:
    """Return whether the command had a result that is lost if it cannot be printed; help and versions are too."""
    return not _printed or any(_printed)


def _refuse_values(arguments: Mapping[str, Any]) -> None:
    """Raise InputError if the value of an option is another option, or an address that holds a password or key."""
    for name, value in arguments.items():
        option = f"--{name.strip('_').replace('_', '-')}"
        for each in value if isinstance(value, list | tuple) else [value]:
            if str(each).startswith("--"):
                raise InputError(f"{option} is followed by {each}; give it a value")
            if isinstance(each, Path):
                refuse_secrets(str(each).replace(":/", "://", 1), option)  # a path has one slash of `s3://`
            elif isinstance(each, str):
                key, equals, inner = each.partition("=") if name in ("set_", "over") else ("", "", each)
                refuse_secrets(inner, f"{option} {key}{equals}".rstrip())


def with_results_alone(command: Callable[P, None]) -> Callable[P, None]:
    """Return a command that writes only its results (`emit`) to stdout; what a user's code prints goes to stderr."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        _printed.clear()
        _refuse_values(kwargs)
        token = _results.set(sys.stdout)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                command(*args, **kwargs)
        finally:
            _results.reset(token)

    return run
