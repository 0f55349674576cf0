"""Command lines made from the real commands and options, with hostile values, each within time and memory."""

from __future__ import annotations

import random
import resource
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from .fuzz import ODD, as_typed, judge
from .small import environment, fork, limit, preload, write_table, write_text

SECONDS, ADDRESSES = 120.0, 6 << 30  # of one command: plans time a few steps of each objective, once
LINES = {  # a valid line of each command with arguments or with work to limit, in the folder that `begin` leaves
    "run": "ablation --corpus small.txt --tasks animals.csv --dry-run",
    "sweep": "generator-size --corpus small.txt --tasks animals.csv --dry-run",
    "report": "ablation",
    "export": "ablation",
    "diff": "bert-mlm untrained",
    "push": "bert-mlm someone/encoder",
    "submit": "ablation --out glue.zip",
    "verify": "runs",
    "list": "objectives",
    "plan-study": "ablation --corpus small.txt --sd 1",
    "evaluate": "encoder --tasks animals.csv",
    "bench": "--objective rtd --scale nano --steps 1 --repeats 1",
    "data prepare": "--corpus small.txt",
    "worker": "small.txt",  # valid ones are files that a command writes for its own workers
    "encode-slices": "small.txt",  # the same
}

USUAL = {  # values that an option nearly takes, with blanks between them
    "set": "optim.lr=0 tying=none tying=unset encoder.layers=1e9 encoder.hidden=-1 data.length=1e9 tasks.folds=3 "
    "tasks.metric=f1 tasks.statistic=median tasks.squad=. tasks.tagging=/dev launch.time=04:00:00 "
    "launch.options=--nice=' launch.profile=/dev/zero start.from=~nobodyx/a,/proc/self data.min_words=1e9 "
    "tasks.text=1 tasks.label=1",
    "budget": "tokens=-1 flops=1e400 steps=0.5 seconds=1e-9 tokens=1e18",
    "over": "tying=none,all seed=1,2 optim.lr=1..0 optim.lr=1e-9..1e9:log batch.size=1,1",
    "corpus": "small.txt animals.csv nowhere.txt someone/something ~nobodyx/x http://[::1/x.txt zip://x::small.txt "
    "dir://x/y file:///dev/zero memory://x",
    "tasks": "none animals.csv CoLA glue,none probes,probes squad1 squad2-devsplit tag:small.txt tag:.#ner "
    "tag:/dev/zero",
    "objective": "rtd rtd,rtd ./none.py small.txt",
    "where": "seed<3 seed<<3 objective=bert-mlm score>nan",
    "runs": "runs nowhere small.txt /dev/null /proc/self",
    "store": "nowhere small.txt /dev/null /proc/self",
    "launcher": "slurm local",
    "out": "out /dev/full small.txt/x",
}


def command_lines(folder: Path, count: int) -> str:
    """Every command with a valid line changed at one or two places; none hangs, none ends in an internal error."""
    preload()
    options = dict(commands())
    write_text(folder / "small.txt")
    write_table(folder / "animals.csv")
    begin(folder)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))  # of the forks, too: beyond it is a MemoryError
    told = try_lines(
        count, lambda draw: line(name := draw.choice(sorted(options)), options[name], draw), attempt, folder
    )
    return f"{count} command lines by the grammar of {len(options)} commands: {told}; none hung, none ended in an error"


def try_lines(
    count: int, line_of: Callable[[random.Random], list[str]], attempt: Callable[[list[str], Path], int], folder: Path
) -> str:
    """Carry out random lines; return how often each exit code came. Raises AssertionError at the end if any failed."""
    draw, codes, faults = random.Random(count), Counter[int](), 0
    for number in range(count):
        words = line_of(draw)
        try:
            codes[attempt(words, folder)] += 1
        except (AssertionError, TimeoutError) as error:
            faults += 1
            sys.stderr.write(f"line {number}: workbench {shlex.join(words)!a}: {error!s:.3000}\n")
        if number % 50 == 49:
            sys.stderr.write(f"{number + 1} of {count} lines, {faults} faults\n")
    told = ", ".join(f"{codes[code]} ended with {code}" for code in sorted(codes))
    assert not faults, f"{faults} of {count} lines hung or ended in an error, as listed above; {told}"
    return told


def attempt(words: list[str], folder: Path) -> int:
    """The exit code of one line. Raises AssertionError or TimeoutError if it does not end as it should."""
    variables = {"OMP_NUM_THREADS": "1", "WORKBENCH_REHEARSAL": "1", "BROWSER": "true"}
    child = fork(words, folder, folder / "cache", out=folder / "out.txt", **variables)
    code = child.wait(limit(SECONDS))
    judge(words, 0 if code in (0, 1, 74) else code, child.text, 0.0)
    return code


def begin(folder: Path) -> None:
    """A store with one finished run, for the commands that read, and its encoder."""
    words = ["run", "ablation", "--objective", "bert-mlm", "--corpus", "small.txt", "--tasks", "animals.csv"]
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *words], cwd=folder, capture_output=True, text=True, check=False,
        env=environment(folder / "cache") | {"WORKBENCH_REHEARSAL": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shutil.copytree(next(folder.glob("runs/bert-mlm-*/encoder")), folder / "encoder")


def commands() -> Iterator[tuple[str, list[Any]]]:
    """The words of each command that has parameters, and these, from the command line itself."""
    from workbench.cli import app

    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for inner, below in getattr(command, "commands", {"": command}).items():
            params = [param for param in below.params if "--compile" not in param.opts]  # it takes minutes
            if params and name != "view":  # without any, there is no word to change; pages are served until Ctrl-C
                yield f"{name} {inner}".strip(), params


def line(name: str, params: list[Any], draw: random.Random) -> list[str]:
    """A valid line of this command with one or two hostile words: in place of an argument, or added as an option."""
    arguments = [param for param in params if param.param_type_name == "argument"]
    words = [*name.split(), *LINES.get(name, "bert-mlm " * len(arguments)).split()]
    for _ in range(draw.randint(1, 2)):
        param = draw.choice(params)
        value = as_typed(draw.choice(ODD + 5 * USUAL.get(str(param.name), "").split()).replace("\0", ""))
        if param in arguments:
            words[len(name.split()) + arguments.index(param)] = value
        else:
            words += [draw.choice(param.opts)] + ([] if param.is_flag else [value])
    return words
