"""Checks of `--tasks` and its settings before a plan is made: tables that are not there, settings that nothing reads.

`READ_BY` says which kinds of tasks read each setting `tasks.NAME`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import SQUAD
from workbench.store.atomic import user_path
from workbench.tasks import TRAIN_NONE, embeddings, kind_of, table, tagging
from workbench.tasks import linear_probe as linear
from workbench.tasks.table import SPANS

CLASSIFIED = frozenset({"glue", "babylm", "superglue", "probes", "own questions", "table"})
FINE_TUNED = CLASSIFIED | {"tagging", SQUAD}
FROZEN = frozenset({"linear", "embedding"})
SCORED = frozenset({"pairs", "blimp", "sentences"})  # whose sentences are scored by their plausibility
# What a name reads besides what its kind says: parts of tables, the files of named sets.
COLUMNS, KINDS, METRICS, FOLDS = "columns of a table", "kinds of a table", "metrics of a table", "folds of a table"
GLUE, BLIMP, TAGS = "files of GLUE", "files of BLiMP", "files of tags"
TUNED = "contrastive training of embeddings"

# The kinds of tasks that read each setting, and what these are called in the message.
READ_BY: Mapping[str, tuple[Collection[str], str]] = {
    **dict.fromkeys(("text", "pair", "label"), ({COLUMNS}, "tables of your own")),
    "kind": ({KINDS}, "tables of your own with a label in each row"),
    "metric": ({METRICS}, "tables of your own with a label in each row"),
    "folds": ({FOLDS}, "tables of your own with a label in each row"),
    "glue": ({"glue", GLUE}, "tasks of GLUE"),
    "blimp": ({"blimp", BLIMP}, "blimp and its variants"),
    "babylm": ({"babylm"}, "tasks of BabyLM"),
    "superglue": ({"superglue"}, "tasks of SuperGLUE"),
    "tagging": ({TAGS}, f"the tasks {' and '.join(tagging.NAMED)}"),
    **dict.fromkeys(("squad", "squad_head", "squad_length", "squad_stride"), ({SQUAD}, "tasks of SQuAD")),
    "scorers": (SCORED, "minimal pairs"),
    "embeddings": ({"embedding"}, "similarity and retrieval"),
    "control": ({"linear"}, "linear probes"),
    "at": (TRAIN_NONE, "tasks without fine-tuning"),
    "length": (CLASSIFIED | FROZEN | {"tagging"}, "tasks that read texts in rows"),
    "rows": (FINE_TUNED | {"linear", TUNED}, "tasks that learn from rows"),
    "held_out": (FINE_TUNED | FROZEN | SCORED, "tasks"),
    "lm_weight": (FINE_TUNED, "fine-tuning"),  # where SQuAD and tagging say why they refuse it
}
FINE_TUNING = (FINE_TUNED | {TUNED}, "fine-tuning")  # which reads all other settings


def refuse_unread(tasks: TasksSpec, given: Mapping[str, Any]) -> None:
    """Raise InputError for the first of the `given` settings that no chosen task reads.

    Keys without `tasks.` and values that are the default are accepted, and so is `tasks.at=none`, which holds.
    """
    usual = TasksSpec(at="none" if tasks.at == "none" else "auto")
    read = {what for name in tasks.names if name != "none" for what in read_with(name)}
    if tasks.embeddings != "frozen" and "embedding" in read:
        read.add(TUNED)
    for key in given:
        part, _, name = key.partition(".")
        if part != "tasks" or name == "names" or getattr(tasks, name) == getattr(usual, name):
            continue
        readers, called = READ_BY.get(name, FINE_TUNING)
        if not read.isdisjoint(readers):
            continue
        option = f"--evaluate-at {tasks.at}" if name == "at" else f"--set {key}={given[key]}"
        raise InputError(
            f"{option} has no effect on --tasks {','.join(tasks.names)}: it is a setting of {called}; leave it out, or "
            f"name such a task with --tasks"
        )


def refuse_missing(names: Collection[str]) -> None:
    """Raise InputError if a name under --tasks is that of a table that is not there, before a plan is made with it."""
    for name in names:
        if name != "none" and kind_of(name) == "table" and not user_path(name, "--tasks").is_file():
            raise InputError(f"--tasks {name}: there is no such file")


def read_with(name: str) -> set[str]:
    """Return what a name under --tasks reads: its kind, and what else it takes settings for. Raises InputError."""
    kind = kind_of(name)
    in_table = kind in ("table", "own questions") or (kind in FROZEN and table.is_table(name))
    spans = name.lower().startswith(SPANS)
    read = {
        COLUMNS: in_table,
        KINDS: in_table and kind in ("table", "linear"),
        METRICS: in_table and (kind in ("table", "linear") or spans),
        FOLDS: in_table and kind != "embedding",  # where linear probes and choices say why they refuse it
        GLUE: linear.needs_glue(name) if kind == "linear" else embeddings.needs_glue(name),
        BLIMP: kind == "linear" and linear.needs_blimp(name),
        TAGS: name.lower() in tagging.NAMED,
    }
    return {kind, *(what for what, is_read in read.items() if is_read)}
