"""Downstream tasks, which measure an encoder: GLUE, SQuAD, tagging, probes, minimal pairs, or a user's own files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.errors import InputError, encodable, suggest
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.spec.scoring import PROBES, SQUAD
from workbench.store.atomic import user_path
from workbench.tasks.common.examples import Examples, Measure, Suite, Task, held_out

__all__ = ["Examples", "HeldOut", "Measure", "Suite", "Task", "known", "load", "local", "of_corpus"]
TRAIN_NONE = frozenset({"pairs", "blimp", "sentences", "linear", "embedding"})  # kinds that train no weights
HeldOut = Callable[[], tuple[DataSpec, Path]]  # returns a corpus and the folder with its prepared text


def known() -> list[dict[str, str]]:
    """Return the name, suite, metric and one-line summary of every named task, without reading any data."""
    from workbench.tasks import (
        babylm_glue,
        embeddings,
        glue,
        held_out_pairs,
        minimal_pairs,
        probes,
        squad,
        superglue,
        table,
        tagging,
    )
    from workbench.tasks import linear_probe as linear

    rows = [(row.name, "glue", row.metric, row.summary) for row in glue.ROWS.values()]
    rows += [(probe.name, "probes", probe.metric, probe.summary) for probe in probes.PROBES.values()]
    rows += [(name, held_out_pairs.SUITE, "accuracy", summary) for name, summary in held_out_pairs.SUMMARIES.items()]
    rows += [
        (each.name, "blimp", "accuracy", f"{each.summary}, without fine-tuning")
        for each in minimal_pairs.NAMED.values()
    ]
    rows += [
        (babylm_glue.PREFIX + name, babylm_glue.SUITE, "accuracy", row.summary)
        for name, row in babylm_glue.ROWS.items()
    ]
    rows += [
        *superglue.known(),
        *squad.known(),
        *tagging.known(),
        *linear.known(),
        *table.known(),
        *embeddings.known(),
    ]
    return [dict(zip(("name", "suite", "metric", "summary"), row, strict=True)) for row in rows]


def load(tasks: TasksSpec, cache: Path | None = None, text: HeldOut | None = None) -> Suite:
    """Return the measures that `tasks.names` selects (`read`), with their baselines, ready for `measures.take`."""
    suite = read(tasks, text)
    return replace(suite, tasks=tuple(_with_baselines(measure, cache) for measure in suite.tasks))


def _with_baselines(measure: Measure, cache: Path | None) -> Measure:
    """Return a measure with its baselines, which come from the cache if they were computed before."""
    from workbench.tasks import _embedding_vectors as embedding_vectors
    from workbench.tasks import _squad_answers as squad_answers
    from workbench.tasks import linear_probe
    from workbench.tasks.common import baselines
    from workbench.tasks.embeddings import Embedding
    from workbench.tasks.linear_probe import LinearProbe
    from workbench.tasks.squad import Squad
    from workbench.tasks.tagging import Tagging, with_baselines

    if isinstance(measure, Task):
        return baselines.added(measure, cache)
    if isinstance(measure, Squad):
        return squad_answers.added(measure, cache)
    if isinstance(measure, LinearProbe):
        return linear_probe.added(measure, cache)
    if isinstance(measure, Tagging):
        return replace(measure, baselines=with_baselines(measure, cache))
    if isinstance(measure, Embedding):
        return replace(measure, baselines=embedding_vectors.word_baselines(measure, cache))
    return measure  # minimal pairs have theirs


def read(tasks: TasksSpec, text: HeldOut | None = None) -> Suite:
    """Return the measures that `tasks.names` selects, without the baselines that take long to compute.

    Names are `none`, `glue`, `babylm`, `probes`, `pairs` or one kind of pairs, `blimp` and its variants, single
    tasks, substitutes beside GLUE's folders (`QNLI-devsplit`), paths to tables or to minimal pairs, and the names
    of SuperGLUE and like it (`workbench.tasks.superglue`), of SQuAD (`workbench.tasks.squad`), of tagging
    (`workbench.tasks.tagging`), of linear probes (`workbench.tasks.linear_probe`) and of embeddings
    (`workbench.tasks.embeddings`). Tasks of `glue`,
    `babylm` or `superglue` whose files are absent are listed in `missing`; a task selected by its own name must be
    available. `text` returns the prepared corpus, from which pairs are made.
    Raises InputError.
    """
    from workbench.tasks import babylm_glue, embeddings, probes, squad, superglue, table, tagging
    from workbench.tasks import linear_probe as linear

    names = list(dict.fromkeys(tasks.names))
    if not tasks.chosen:
        return Suite(())
    if "none" in names:
        raise InputError(f"--tasks {','.join(names)}: 'none' cannot be combined with other tasks")
    kinds = [_kind_and_name(name) for name in names]
    selected: dict[str, list[str]] = defaultdict(list)  # kind of task -> names
    for kind, name in kinds:
        selected[kind].append(name)

    loaded, missing = _glue(selected["glue"], tasks)
    if selected["probes"]:
        loaded += probes.load(_members(selected["probes"], "probes", PROBES), tasks.rows)
    babylm, absent = babylm_glue.load(selected["babylm"], tasks.babylm, tasks.rows)
    loaded, missing = loaded + babylm, missing | absent
    questions, absent = superglue.load(selected["superglue"], tasks)
    loaded, missing = loaded + questions, missing | absent
    loaded += [table.load_own(name, tasks) for name in selected["own questions"]]
    loaded += [table.load(Path(name), tasks) for name in selected["table"]]
    measures: list[Measure] = [held_out(task, tasks.held_out) for task in loaded]
    measures += squad.load(selected[SQUAD], tasks)
    measures += tagging.load(selected["tagging"], tasks)
    measures += linear.load([probe for name in selected["linear"] for probe in linear.place(name) or []], tasks)
    measures += embeddings.load(selected["embedding"], tasks)
    # A text that is not prepared yet takes longest, so whatever else may be absent is looked for before.
    zero_shot = {name: _pairs(kind, name, tasks, text) for kind, name in kinds if kind in ("blimp", "sentences")}
    zero_shot |= {name: _pairs(kind, name, tasks, text) for kind, name in kinds if kind == "pairs"}
    measures += [zero_shot[name] for _, name in kinds if name in zero_shot]
    _distinct(measures)
    return Suite(tuple(measures), missing)


def _members(names: Iterable[str], suite: str, members: Iterable[str]) -> dict[str, None]:
    """Return each name once, in order, with the members of a suite instead of its name."""
    return dict.fromkeys(member for name in names for member in (members if name == suite else [name]))


def _glue(names: Sequence[str], tasks: TasksSpec) -> tuple[list[Task], dict[str, str]]:
    """Return the GLUE tasks that these names select, and those whose files are absent, with the reason.

    Raises InputError if a task selected by its own name is absent, or if all are.
    """
    from workbench.tasks import glue

    if not names:
        return [], {}
    suite = glue.load(_members(names, "glue", glue.ROWS), tasks.glue, tasks.rows)
    absent = next((name for name in names if name in suite.missing), None)
    if absent:
        raise InputError(f"task {absent} is not available: {suite.missing[absent]}")
    if not suite.tasks:
        raise InputError(f"no GLUE task was found: {next(iter(suite.missing.values()))}")
    return [task for task in suite.tasks if isinstance(task, Task)], dict(suite.missing)


def _pairs(kind: str, name: str, tasks: TasksSpec, text: HeldOut | None) -> Measure:
    """Return the minimal pairs that a name selects. Raises InputError."""
    from workbench.tasks import held_out_pairs, minimal_pairs

    if kind == "pairs":
        if text is None:
            raise InputError(f"--tasks {name}: these pairs are made from the text of a corpus, and no corpus is given")
        return held_out_pairs.load(name, *text(), tuning=bool(tasks.held_out))
    if tasks.held_out:
        raise InputError(
            f"--tasks {name}: a search cannot choose settings by the pairs that a report shows; use --tasks pairs"
        )
    return minimal_pairs.load(name, tasks.blimp) if kind == "blimp" else minimal_pairs.load_path(name)


def fine_tuned_only(tasks: TasksSpec) -> TasksSpec:
    """Return the settings with the names alone that train an encoder further. Raises InputError for an unknown name."""
    kinds = {"glue", "probes", "babylm", "superglue", "table", "own questions", "tagging", SQUAD}
    kinds |= {"embedding"} if tasks.embeddings != "frozen" else set()
    return _only(tasks, kinds.__contains__)


def apart_from_text(tasks: TasksSpec) -> TasksSpec:
    """Return the settings without the names of tasks that are made from the text of the corpus.

    Raises InputError for an unknown name.
    """
    return _only(tasks, lambda kind: kind != "pairs")


def _only(tasks: TasksSpec, keeps: Callable[[str], bool]) -> TasksSpec:
    """Return the settings with the names of the kinds that `keeps` accepts."""
    names = tuple(name for name in tasks.names if name != "none" and keeps(kind_of(name)))
    return tasks.model_copy(update={"names": names or ("none",)})


def _train_none(tasks: TasksSpec) -> frozenset[str]:
    """Return the kinds of tasks that train no weights of the encoder under these settings."""
    return TRAIN_NONE if tasks.embeddings == "frozen" else TRAIN_NONE - {"embedding"}


def of_corpus(tasks: TasksSpec) -> bool:
    """Return whether any task is made from held-out text of the corpus. Raises InputError for an unknown name."""
    return any(kind_of(name) == "pairs" for name in tasks.names if name != "none")


def any_during_training(tasks: TasksSpec) -> bool:
    """Return whether any measure is also taken during training. Raises InputError for an unknown name."""
    kinds = {kind_of(name) for name in tasks.names if name != "none"}
    return tasks.at != "none" and not kinds.isdisjoint(_train_none(tasks))


def local(tasks: TasksSpec) -> bool:
    """Return whether no task has to be downloaded from the hub. Raises InputError for an unknown name."""
    from workbench.tasks import embeddings, squad, tagging
    from workbench.tasks import linear_probe as linear

    kinds = {kind_of(name) for name in tasks.names if name != "none"}
    glue = "glue" in kinds or any(linear.needs_glue(n) or embeddings.needs_glue(n) for n in tasks.names)
    glue = not glue or (tasks.glue is not None and user_path(tasks.glue, "--set tasks.glue:").is_dir())
    no_pairs = not ("blimp" in kinds or any(map(linear.needs_blimp, tasks.names))) or (
        tasks.blimp is not None and user_path(tasks.blimp, "--set tasks.blimp:").exists()
    )
    downloads = any(tagging.needs_hub(name, tasks) for name in tasks.names)
    return glue and no_pairs and not downloads and not (SQUAD in kinds and squad.needs_hub(tasks))


def kind_of(name: str) -> str:
    """Return the kind of task that a name selects. Raises InputError for an unknown name."""
    return _kind_and_name(name)[0]


def _kind_and_name(name: str) -> tuple[str, str]:
    """Return the kind of task that a name selects, and the name as that kind's module spells it. Raises InputError."""
    from workbench.tasks import (
        babylm_glue,
        embeddings,
        glue,
        held_out_pairs,
        minimal_pairs,
        squad,
        superglue,
        table,
        tagging,
    )
    from workbench.tasks import linear_probe as linear

    lower = name.lower()
    kinds = {"glue": "glue", **dict.fromkeys(("probes", *PROBES), "probes")}
    kinds |= dict.fromkeys(held_out_pairs.NAMES, "pairs") | dict.fromkeys(minimal_pairs.NAMED, "blimp")
    if lower in kinds:
        return kinds[lower], lower
    for suite in (babylm_glue, superglue):
        if lower == suite.SUITE or lower.startswith(suite.PREFIX):
            suite.names_of(name)  # raises InputError if there is no such task
            return suite.SUITE, lower
    recognised = {
        "embedding": embeddings.is_embedding, "own questions": table.is_own,
        "tagging": tagging.is_tagging, "linear": linear.place,
    }  # fmt: skip
    for kind, recognises in recognised.items():
        if recognises(name):
            return kind, name
    if placed := squad.place(name):
        return SQUAD, placed
    if minimal_pairs.holds_pairs(name):
        return "sentences", name
    if table.is_table(name):
        return "table", name
    if row := glue.row_of(name):  # even if there is a folder of that name here, which is written ./NAME
        return "glue", row.name
    if user_path(name, "--tasks").is_dir():
        return "sentences", name
    raise InputError(_unknown(name))


def _unknown(name: str) -> str:
    """Return the message for a name that selects no task; with a slash it can only be a path."""
    from workbench.tasks import babylm_glue, glue, held_out_pairs, minimal_pairs, squad, superglue, tagging
    from workbench.tasks.common.table_files import FORMATS

    if user_path(name, "--tasks").is_file():
        return (
            f"--tasks {name}: a table ends in {', '.join(FORMATS)}, and sentences of tagged words are named "
            f"tag:{name}; rename the file, or name it so"
        )
    if "/" in name:
        return f"--tasks {name}: there is no such file or folder"
    suites = ("none", "glue", babylm_glue.SUITE, superglue.SUITE, "probes", "linear")
    known = [
        *suites, *glue.ROWS, *PROBES, *held_out_pairs.NAMES, *minimal_pairs.NAMED, *tagging.NAMED, *squad.SUMMARIES,
    ]  # fmt: skip
    hint = suggest(name, known)
    paths = "" if hint.endswith("?") else ", or the path of a table or of minimal pairs"
    return f"--tasks names an unknown task {name!r}{hint}{paths}"


def _distinct(tasks: list[Measure]) -> None:
    """Raise InputError if two measures have the same name, or one has a name that no record can contain."""
    names = [task.name for task in tasks]
    if invalid := next((name for name in names if not encodable(name)), ""):
        raise InputError(
            f"the task {invalid!r} is called after a file or folder whose name is not valid UTF-8; rename it"
        )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise InputError(f"two tasks have the name {repeated!r}; rename one of the files")
