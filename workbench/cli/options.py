"""The options that commands share, and how their answers are printed."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    pass

log = logging.getLogger("workbench")
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


def emit(value: Any, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
    else:
        sys.stdout.write(str(value).rstrip("\n") + "\n")
