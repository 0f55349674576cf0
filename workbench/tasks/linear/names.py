"""The names of linear probes under `--tasks`: `linear`, `linear:NAME`, `linear:PATH`, or a path to tagged sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.errors import InputError, suggest
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import LINEAR, PROBES
from workbench.store.atomic import user_path
from workbench.tasks.finetuning import glue, probes, table
from workbench.tasks.linear.datasets import PREFIX, is_tagged, of_pairs, of_tagged, of_task
from workbench.tasks.linear.problem import LinearProbe, fingerprinted
from workbench.tasks.task import Task
from workbench.tasks.zero_shot import blimp


def known() -> list[tuple[str, str, str, str]]:
    """Return the name, suite, metric and summary of each linear probe that has a name of its own."""
    named = [probes.PROBES[name.removeprefix(PREFIX)] for name in LINEAR]
    return [(PREFIX + probe.name, "linear", probe.metric, f"{probe.summary}; frozen states") for probe in named]


def place(name: str) -> list[str] | None:
    """Return the single linear probes that a name stands for, without their prefix; None for any other task.

    Raises InputError for a name that begins with the prefix of linear probes and is not one of them.
    """
    if name.lower() in ("linear", "linear:probes"):
        return list(PROBES)
    if not name.lower().startswith(PREFIX):
        return [name] if is_tagged(name) else None
    rest = name[len(PREFIX) :]
    if rest.lower() in (*PROBES, *blimp.NAMED):
        return [rest.lower()]
    if row := glue.row_of(rest):
        return [row.name]
    if rest and (is_tagged(rest) or _is_pairs(rest) or table.is_table(rest)):
        return [rest]
    known_names = [*PROBES, *glue.ROWS, *blimp.NAMED]
    raise InputError(
        f"--tasks {name}: no linear probe {rest!r}{suggest(rest, known_names)}; or give a path: a table, "
        f"tagged sentences (.conllu, .iob2), minimal pairs (.jsonl), or a folder of tagged sentences or minimal pairs"
    )


def _is_pairs(rest: str) -> bool:
    """Return whether a path is a file that begins with a minimal pair, or any folder; test for tagged words before."""
    return blimp.holds_pairs(rest) or user_path(rest, "--tasks").is_dir()


def needs_glue(name: str) -> bool:
    """Return whether a linear probe reads a GLUE task, which may have to be downloaded."""
    return any(rest not in PROBES and glue.row_of(rest) is not None for rest in place(name) or [])


def needs_blimp(name: str) -> bool:
    """Return whether a name selects a linear probe that reads a named set of BLiMP."""
    return any(rest in blimp.NAMED for rest in place(name) or [])


def load(names: Sequence[str], spec: TasksSpec) -> list[LinearProbe]:
    """Return the probes of names that `place` returned. Raises InputError."""
    return [fingerprinted(_probe(name, spec), spec) for name in dict.fromkeys(names)]


def _probe(name: str, spec: TasksSpec) -> LinearProbe:
    if name in blimp.NAMED:
        return of_pairs(blimp.load(name, spec.blimp))
    if name not in PROBES and glue.row_of(name) is None:
        if is_tagged(name):
            return of_tagged(name)
        if _is_pairs(name):
            return of_pairs(blimp.load_path(name))
    return of_task(_task(name, spec))


def _task(name: str, spec: TasksSpec) -> Task:
    if name in PROBES:
        return probes.load([name])[0]
    if table.is_table(name):
        return table.load(Path(name), spec)
    suite = glue.load([name], spec.glue)
    for why in suite.missing.values():
        raise InputError(f"task {PREFIX}{name} is not available: {why}")
    return next(task for task in suite.tasks if isinstance(task, Task))
