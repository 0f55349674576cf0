"""Downstream tasks: what an encoder is worth. GLUE, probes, linear probes, minimal pairs, or a person's own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.errors import InputError, suggest
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.spec.scoring import PROBES
from workbench.store.atomic import user_path
from workbench.tasks.task import Examples, Measure, Suite, Task, held_out

__all__ = ["Examples", "HeldOut", "Measure", "Suite", "Task", "known", "load", "local", "of_corpus"]
HeldOut = Callable[[], tuple[DataSpec, Path]]  # a corpus, and the folder in which it is prepared


def known() -> list[dict[str, str]]:
    """Return name, suite, metric and a line on every task that has a name, without reading any data."""
    from workbench.tasks.finetuning import babylm_glue, glue, probes
    from workbench.tasks.linear import names as linear
    from workbench.tasks.zero_shot import blimp, held_out_pairs

    rows = [(row.name, "glue", row.metric, row.summary) for row in glue.ROWS.values()]
    rows += [(probe.name, "probes", probe.metric, probe.summary) for probe in probes.PROBES.values()]
    rows += [(name, held_out_pairs.SUITE, "accuracy", summary) for name, summary in held_out_pairs.SUMMARIES.items()]
    rows += [(each.name, "blimp", "accuracy", f"{each.summary}, without fine-tuning") for each in blimp.NAMED.values()]
    rows += [
        (babylm_glue.PREFIX + name, babylm_glue.SUITE, "accuracy", row.summary)
        for name, row in babylm_glue.ROWS.items()
    ]
    rows += linear.known()
    return [dict(zip(("name", "suite", "metric", "summary"), row, strict=True)) for row in rows]


def load(tasks: TasksSpec, cache: Path | None = None, text: HeldOut | None = None) -> Suite:
    """Return every measure that `tasks.names` asks for, ready for `measures.take`, with baselines.

    Names are `none`, `glue`, `babylm`, `probes`, `pairs` or a kind of them, `blimp` and its sets, single tasks,
    stand-ins beside GLUE's folders (`QNLI-devsplit`), paths to tables and to minimal pairs, and those of linear probes
    (`workbench.tasks.linear.names`). Tasks that `glue` lacks are named in `missing`; a task asked for by its own name
    must be there. `text` prepares the corpus, for pairs made of it. Raises InputError.
    """
    from workbench.tasks import baselines
    from workbench.tasks.finetuning import babylm_glue, glue, probes, table
    from workbench.tasks.linear import names as linear

    names = list(dict.fromkeys(tasks.names))
    if not names or names == ["none"]:
        return Suite(())
    if "none" in names:
        raise InputError(f"--tasks {','.join(names)}: 'none' cannot be asked for together with tasks")
    places = [_place(name) for name in names]
    glue_names = [n for kind, name in places if kind == "glue" for n in (glue.ROWS if name == "glue" else [name])]
    probe_names = [n for kind, name in places if kind == "probes" for n in (PROBES if name == "probes" else [name])]

    found: list[Task] = []
    missing: dict[str, str] = {}
    if glue_names:
        suite = glue.load(dict.fromkeys(glue_names), tasks.glue, tasks.rows)
        for name in (name for kind, name in places if kind == "glue" and name in suite.missing):
            raise InputError(f"task {name} cannot be had: {suite.missing[name]}")
        if not suite.tasks:
            raise InputError(f"no GLUE task was found: {next(iter(suite.missing.values()))}")
        found += [task for task in suite.tasks if isinstance(task, Task)]
        missing |= suite.missing
    if probe_names:
        found += probes.load(dict.fromkeys(probe_names), tasks.rows)
    babylm, absent = babylm_glue.load([name for kind, name in places if kind == "babylm"], tasks.babylm, tasks.rows)
    found, missing = found + babylm, missing | absent
    found += [table.load(Path(name), tasks) for kind, name in places if kind == "table"]
    measures: list[Measure] = [baselines.added(held_out(task, tasks.held_out), cache) for task in found]
    measures += linear.load([each for name in names for each in linear.place(name) or []], tasks, cache)
    measures += [_pairs(kind, name, tasks, text) for kind, name in places if kind in ("pairs", "blimp", "sentences")]
    _distinct(measures)
    return Suite(tuple(measures), missing)


def _pairs(kind: str, name: str, tasks: TasksSpec, text: HeldOut | None) -> Measure:
    """Return minimal pairs of one kind. Raises InputError."""
    from workbench.tasks.zero_shot import blimp, held_out_pairs

    if kind == "pairs":
        if text is None:
            raise InputError(f"--tasks {name}: there is no corpus to make pairs of")
        return held_out_pairs.load(name, *text(), tuning=bool(tasks.held_out))
    if tasks.held_out:
        raise InputError(f"--tasks {name}: settings cannot be searched for on the pairs that are reported; use pairs")
    return blimp.load(name, tasks.blimp) if kind == "blimp" else blimp.load_path(name)


def of_corpus(tasks: TasksSpec) -> bool:
    """Return whether a task is made of the corpus's held-out text. Raises InputError for a name that is none."""
    return any(_place(name)[0] == "pairs" for name in tasks.names if name != "none")


def along(tasks: TasksSpec) -> bool:
    """Return whether some measure is taken during training as well. Raises InputError for a name that is none."""
    kinds = {_place(name)[0] for name in tasks.names if name != "none"}
    return tasks.at != "none" and not kinds.isdisjoint(("pairs", "blimp", "sentences", "linear"))


def local(tasks: TasksSpec) -> bool:
    """Return whether no task is on the hub. Raises InputError for a name that is none."""
    from workbench.tasks.linear import names as linear

    kinds = {_place(name)[0] for name in tasks.names if name != "none"}
    glue = "glue" in kinds or any(map(linear.needs_glue, tasks.names))
    glue = not glue or (tasks.glue is not None and user_path(tasks.glue, "--set tasks.glue:").is_dir())
    blimp = not ("blimp" in kinds or any(map(linear.needs_blimp, tasks.names))) or (
        tasks.blimp is not None and user_path(tasks.blimp, "--set tasks.blimp:").exists()
    )
    return glue and blimp


def _place(name: str) -> tuple[str, str]:
    """Return which part reads this name, and the name as that part spells it. Raises InputError."""
    from workbench.tasks.finetuning import babylm_glue, glue, table
    from workbench.tasks.linear import names as linear
    from workbench.tasks.zero_shot import blimp, held_out_pairs

    words = {"glue": ("glue", "glue"), "probes": ("probes", "probes")} | {p: ("probes", p) for p in PROBES}
    words |= {each: ("pairs", each) for each in held_out_pairs.NAMES} | {each: ("blimp", each) for each in blimp.NAMED}
    if name.lower() in words:
        return words[name.lower()]
    if name.lower() == babylm_glue.SUITE or name.lower().startswith(babylm_glue.PREFIX):
        babylm_glue.names_of(name)  # raises where there is no such task
        return "babylm", name.lower()
    if linear.place(name):
        return "linear", name
    if blimp.holds_pairs(name):
        return "sentences", name
    if table.is_table(name):
        return "table", name
    if row := glue.row_of(name):  # also where a folder of that name lies here, which ./NAME would mean
        return "glue", row.name
    if user_path(name, "--tasks").is_dir():
        return "sentences", name
    known = [
        "none",
        "glue",
        babylm_glue.SUITE,
        "probes",
        "linear",
        *glue.ROWS,
        *PROBES,
        *held_out_pairs.NAMES,
        *blimp.NAMED,
    ]
    raise InputError(
        f"--tasks names an unknown task {name!r}{suggest(name, known)}, or the path of a table or of minimal pairs"
    )


def _distinct(tasks: list[Measure]) -> None:
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError(f"two tasks are called {twice!r}; rename one of the files")
