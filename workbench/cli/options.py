"""The words that commands share: options, and what becomes of them."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.errors import InputError
from workbench.memory import check_address_space
from workbench.spec.host import Host
from workbench.store.atomic import can_hold_files

if TYPE_CHECKING:
    from workbench.execution.auto_seeds import Limit
    from workbench.spec.experiment import Experiment
    from workbench.spec.parts import Budget
    from workbench.spec.run_spec import RunSpec

log = logging.getLogger("workbench")
HELD_OUT = 0.02  # of a corpus that has no held-out part of its own
REHEARSAL = "WORKBENCH_REHEARSAL"  # environment variable: try a whole command before it takes a night
TRIED = (4, 4)  # steps of a run and rows of a step in a rehearsal; a dearer run matched in FLOPs still gets a step
Objectives = Annotated[
    list[str] | None, typer.Option("--objective", help="An objective's name, or a file ./my_idea.py; repeatable.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Any field of the spec, as optim.lr=5e-4; repeatable.")]
Scale = Annotated[
    str | None, typer.Option(help="nano, micro, mini, small, base or large (default: nano; to evaluate, by size).")
]
Corpora = Annotated[
    list[str] | None, typer.Option("--corpus", help="docs (built in), a file, folder, glob or hub name; repeatable.")
]
Tasks = Annotated[
    str | None,
    typer.Option(
        help="probes, linear, pairs, blimp, glue, none, names (CoLA,RTE), a file my.csv, or a folder of minimal pairs."
    ),
]
EvaluateAt = Annotated[
    str | None,
    typer.Option(
        help="At which points of training zero-shot and linear measures are taken as well: auto (the default: up to "
        "6 on a log scale, for at most 5 % of a run's compute), log:N, words (BabyLM's schedule) or none."
    ),
]
BudgetText = Annotated[
    str | None, typer.Option("--budget", help="flops=1e17, tokens=2e6, words=1e8, steps=1000 or seconds=600.")
]
Seeds = Annotated[
    str | None,
    typer.Option(
        help="Pre-training seeds of every run (default 1), or auto: add seeds until every comparison in CONTRASTS is "
        "decided, or cannot be within the limit."
    ),
]
MostSeeds = Annotated[int | None, typer.Option(min=2, max=1000, help="Of --seeds auto: as many at most (default 12).")]
MostCompute = Annotated[
    str | None, typer.Option(help="Of --seeds auto: what all runs may take together, as flops=1e17 or seconds=36000.")
]
Runs = Annotated[Path, typer.Option("--runs", help="Folder of the run store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Precision = Annotated[
    str, typer.Option(help="auto (bf16 on CUDA and, from a width of 64, on CPUs that have it), fp32 or bf16.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for the report (default reports/NAME).")]
Workers = Annotated[
    int, typer.Option(min=1, max=1024, help="Runs at a time: processes that share the CPU or the GPUs.")
]
MicroBatch = Annotated[int | None, typer.Option(min=1, help="Rows computed at once (default: all).")]
Threads = Annotated[int | None, typer.Option(min=1, max=4096, help="CPU threads a run.")]
Plain = Annotated[bool, typer.Option("--plain", help="Without any shortcut of ours, in fp32: for comparison.")]
Compile = Annotated[bool, typer.Option("--compile", help="Use torch.compile.")]
SaveEvery = Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints (default: 5 min).")]
Track = Annotated[str | None, typer.Option(help="Mirror metrics to a tracker: wandb.")]
MatchText = Annotated[
    str | None,
    typer.Option(
        "--match",
        help="What all runs get the same of: flops (default), tokens, words, steps or seconds; none leaves each the "
        "--budget as it is given, so that the report is not at equal compute.",
    ),
]
MostEpochs = Annotated[
    float | None,
    typer.Option(min=1e-9, help="Refuse runs that see the text more often; BabyLM's challenge allows its entries 10."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]


def base_spec(
    scale: str | None, sets: list[str] | None, corpus: list[str] | None, tasks: str | None, budget: str | None,
    evaluate_at: str | None = None,
) -> Any:  # fmt: skip
    """The spec that the words ask for. Two words that say different things about one field are refused."""
    from workbench.spec import presets
    from workbench.spec.run_spec import parse_budget, parse_overrides

    overrides = parse_overrides(sets or [])
    scale_set = overrides.pop("scale", None)
    given = {"data.corpus": ",".join(corpus) if corpus else None, "tasks.names": tasks, "scale": scale}
    given["tasks.at"] = evaluate_at
    options = {
        "data.corpus": "--corpus", "tasks.names": "--tasks", "scale": "--scale", "tasks.at": "--evaluate-at",
    }  # fmt: skip
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
    if os.environ.get(REHEARSAL):
        log.warning("%s is set: every run takes %d steps of %d rows, and its scores mean nothing", REHEARSAL, *TRIED)
        base = presets.rehearsed(base, *TRIED)
    from workbench.execution.offline import stay_local

    stay_local(base)
    return _with_held_out(base, "data.held_out" in overrides)


def _with_held_out(base: RunSpec, given: bool) -> RunSpec:
    """Return the spec with a part of its text held out where pairs are to be made of that, and none is by itself."""
    from workbench import tasks

    if given or set(base.data.corpus) == {"docs"} or not tasks.of_corpus(base.tasks):
        return base
    log.warning("pairs are made of text that pre-training does not see: --set data.held_out=%g is in effect", HELD_OUT)
    return base.changed({"data.held_out": HELD_OUT})


def with_words(base: RunSpec, found: Experiment | None = None, unit: str | None = None, always: bool = False) -> Any:
    """Return the spec with the words of its text counted where a plan needs them, which prepares the text.

    That is for budgets and matches in words, for text in BabyLM's files, and `always` where epochs are limited.
    """
    keys = [key for row in (found.axes, *found.variants) for key in row] if found else []
    units = (base.budget.unit, unit, found and found.match, *(key.removeprefix("budget.") for key in keys))
    from workbench.data.sources import is_babylm

    if not (always or "words" in units or is_babylm(base.data)):
        return base
    from workbench.execution import experiment_runner

    return experiment_runner.with_words(base)


def given_keys(sets: list[str] | None) -> set[str]:
    """Return the keys that --set names: what a person sets for all runs overrules an objective's own preset."""
    from workbench.spec.run_spec import parse_overrides

    return set(parse_overrides(sets or []))


def rehearsed(count: int | None, most: int) -> int | None:
    """Return how many seeds, trials or turns a command makes: `count`, but no more than `most` in a rehearsal."""
    return min(count or most, most) if os.environ.get(REHEARSAL) else count


def seeds_of(
    seeds: str | None, most_seeds: int | None, most_compute: str | None, search: bool = False
) -> tuple[int, Limit | None]:
    """Return how many seeds a command may take, and with --seeds auto the limit up to which it adds them.

    Raises InputError.
    """
    if seeds != "auto":
        for option, value in (("--most-seeds", most_seeds), ("--most-compute", most_compute)):
            if value is not None:
                raise InputError(f"{option} {value} limits --seeds auto, which was not given; add it, or leave it out")
        if seeds is not None and not (seeds.isascii() and seeds.isdigit() and 1 <= int(seeds[:9]) <= 1000):
            raise InputError(f"--seeds {seeds[:80]!r} is neither a number from 1 to 1000 nor auto")
        return rehearsed(int(seeds or 1), 2) or 1, None
    if search:
        raise InputError("--seeds auto decides comparisons that were declared, and a search has none; say a number")
    if os.environ.get(REHEARSAL):
        return 2, None
    from workbench.execution.auto_seeds import MOST_SEEDS, Limit

    return most_seeds or MOST_SEEDS, Limit(most_seeds or MOST_SEEDS, compute_of(most_compute))


def compute_of(text: str | None) -> Budget | None:
    """Return what --most-compute allows all runs together. Raises InputError."""
    from workbench.spec.run_spec import parse_budget

    try:
        return parse_budget(text) if text else None
    except InputError as error:
        raise InputError(str(error).replace("--budget", "--most-compute")) from None


def writable(out: Path | None, flag: str = "--out") -> Path | None:
    """A folder in which files can be made. Raises InputError before anything is spent on what is to be written."""
    if out is None:
        return None
    if len(out.name) > 200 or not can_hold_files(out):
        raise InputError(f"nothing can be written in {str(out)[:200]!r}; say {flag} with a folder that can be made")
    return out


def in_effect(found: Experiment, sets: list[str] | None) -> Experiment:
    """The experiment as it is. A --set that one of its axes overrules is said, for it changes nothing."""
    from workbench.spec.run_spec import parse_overrides

    for key, value in parse_overrides(sets or []).items():
        values = found.axes.get(key, (value,))
        if any(str(each) != str(value) for each in values):
            told = ", ".join(map(str, values)) or "a range"
            log.warning(
                "--set %s=%s has no effect on %s, whose runs have %s=%s; leave it out, or say --over %s=%s to a sweep",
                key, value, found.name, key, told, key, value,
            )  # fmt: skip
    return found


def host_of(
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
    check_address_space()
    if device != "auto":
        host.resolved_device()
    return host


def emit(value: Any, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
    else:
        sys.stdout.write(str(value).rstrip("\n") + "\n")
