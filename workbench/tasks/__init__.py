"""Downstream tasks, which measure an encoder: the kinds of this folder, of installed packages and in files by path.

A kind of task is one module (`common.contract`). `--tasks` takes the names of all kinds, and `./my_task.py` or
`./my_task.py:NAME` for the tasks in a file of one's own, whose hash is part of the settings of its scores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from workbench.errors import Diverged, InputError, LeaseLost, RankLost, blaming, encodable, suggest
from workbench.progress import warn_once
from workbench.registry import Plugs, file_of
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import place_of
from workbench.store.atomic import user_path
from workbench.tasks.common.contract import FINE_TUNING, READERS, Cost, HeldOut, Measure, Model, Scores, Suite
from workbench.tasks.common.examples import Examples, Task

__all__ = ["Cost", "Examples", "HeldOut", "Measure", "Model", "Scores", "Suite", "Task", "known", "load"]

PLUGS = Plugs("task", "--tasks", __name__, Path(__file__).parent, "workbench.tasks", ("names", "load"))
NONE = "none"


@dataclass(frozen=True)
class Plug:
    """A kind of task that was found: its module, and the hash of its file unless it is built in."""

    module: ModuleType
    source: str = ""

    def call(self, part: str, default: Any, *given: Any) -> Any:
        """Return a constant of the module, or the result of its function of this name; without either, the default.

        Raises InputError for an error in a file that is not part of the package.
        """
        function = getattr(self.module, part, default)
        if not callable(function):
            return function
        if not self.source:
            return function(*given)
        with blaming(file_of(self.module), f"{part} raised", "task"):
            return function(*given)

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """The names that the kind has, by their lower case. Raises InputError if the module gives no names."""
        rows = self.call("names", ())
        try:
            return {name.lower(): name for name, _, _, _ in rows}
        except (TypeError, ValueError, AttributeError):
            raise InputError(
                f"task {file_of(self.module)}: names() returns {rows!r:.80}, and must return a list of (name, suite, "
                f"metric, summary), four texts each"
            ) from None


def _plug(word: str) -> Plug:
    name, source = PLUGS.find(word)
    return Plug(PLUGS.load(name, source), source)


def _kinds() -> list[Plug]:
    """Return the kinds of this folder, then of installed packages; faulty ones are left out with a warning."""
    kinds = [_plug(name) for name in PLUGS.built_in]
    for name in PLUGS.installed():
        try:
            kind = _plug(name)
            kind.names  # noqa: B018, raises InputError for names of another form
            kinds.append(kind)
        except InputError as error:
            warn_once(f"{error}; its tasks are left out")
    return kinds


def known() -> list[dict[str, str]]:
    """Return the name, suite, metric and one-line summary of every named task, without reading any data."""
    rows = [row for kind in _kinds() for row in kind.call("names", ())]
    ordered = sorted(rows, key=lambda row: place_of(row[1]))
    return [dict(zip(("name", "suite", "metric", "summary"), row, strict=True)) for row in ordered]


def _selected(word: str) -> tuple[Plug, tuple[str, ...]]:
    """Return the kind of task that a word under `--tasks` selects, and its names. Raises InputError without one."""
    path, found, name = word.rpartition(".py")
    if found and (not name or name.startswith(":")):
        kind, wanted = _plug(f"{path}.py"), name[1:]
        if wanted and wanted.lower() not in kind.names:
            raise InputError(f"--tasks {word}: {path}.py has no task {wanted!r}{suggest(wanted, kind.names.values())}")
        return kind, (kind.names[wanted.lower()],) if wanted else tuple(kind.names.values())
    kinds = _kinds()
    for kind in kinds:
        if word.lower() in kind.names or word.lower() in kind.call("groups", ()):  # also if a folder is called so
            return kind, (kind.names.get(word.lower(), word.lower()),)
    for kind in kinds:
        if kind.call("accepts", False, word):
            return kind, (word,)
    raise InputError(_unknown(word, kinds))


def _of(options: TasksSpec) -> dict[str, tuple[Plug, tuple[str, ...]]]:
    """Return what each word under `--tasks` selects."""
    selected = dict[str, tuple[Plug, tuple[str, ...]]]()
    for word in options.names:
        if word != NONE and word not in selected:
            selected[word] = _selected(word)
    return selected


def load(options: TasksSpec, cache: Path | None = None, text: HeldOut | None = None) -> Suite:
    """Return the measures that `options.names` selects (`read`), after their baselines are computed or in the cache."""
    suite = read(options, text)
    for measure in suite.tasks:
        measure.baselines(cache)
    return suite


def read(options: TasksSpec, text: HeldOut | None = None) -> Suite:
    """Return the measures that `options.names` selects, without the baselines that take long to compute.

    Members of a suite whose files are absent are listed in `missing`; a task selected by its own name must be
    available. `text` returns the prepared corpus, from which pairs are made. Raises InputError.
    """
    if not options.chosen:
        return Suite(())
    if NONE in options.names:
        raise InputError(f"--tasks {','.join(options.names)}: 'none' cannot be combined with other tasks")
    names: dict[Plug, list[str]] = {}
    for kind, own in _of(options).values():
        names.setdefault(kind, []).extend(own)
    loaded: dict[Plug, list[Measure]] = {}
    missing: dict[str, str] = {}
    # A text that is not prepared yet takes longest, so whatever else may be absent is looked for before.
    for kind in sorted(names, key=lambda kind: kind.call("uses_text", False)):
        suite = kind.call("load", (), tuple(dict.fromkeys(names[kind])), options, text)
        missing |= getattr(suite, "missing", {})
        loaded[kind] = _checked(suite, kind, names[kind]) if kind.source else list(suite)
    measures = tuple(measure for kind in names for measure in loaded[kind])
    called = [measure.name for measure in measures]
    if invalid := next((name for name in called if not encodable(name)), ""):
        raise InputError(
            f"the task {invalid!r} is called after a file or folder whose name is not valid UTF-8; rename it"
        )
    if repeated := next((name for name in called if called.count(name) > 1), None):
        raise InputError(f"two tasks have the name {repeated!r}; rename one of the files")
    return Suite(measures, missing)


def fine_tuned_only(options: TasksSpec) -> TasksSpec:
    """Return the settings with the names alone that train an encoder further. Raises InputError for an unknown name."""
    return _only(options, lambda kind: kind.call("trains", False, options))


def apart_from_text(options: TasksSpec) -> TasksSpec:
    """Return the settings without the names of tasks that are made from the text of the corpus. Raises InputError."""
    return _only(options, lambda kind: not kind.call("uses_text", False))


def _only(options: TasksSpec, keeps: Callable[[Plug], bool]) -> TasksSpec:
    """Return the settings with the names of the kinds that `keeps` accepts."""
    names = tuple(word for word, (kind, _) in _of(options).items() if keeps(kind))
    return options.model_copy(update={"names": names or (NONE,)})


def of_corpus(options: TasksSpec) -> bool:
    """Return whether any task is made from held-out text of the corpus. Raises InputError for an unknown name."""
    return any(kind.call("uses_text", False) for kind, _ in _of(options).values())


def any_during_training(options: TasksSpec) -> bool:
    """Return whether any measure is also taken during training. Raises InputError for an unknown name."""
    return options.at != "none" and not all(kind.call("trains", False, options) for kind, _ in _of(options).values())


def local(options: TasksSpec) -> bool:
    """Return whether no task has to be downloaded from the hub. Raises InputError for an unknown name."""
    of_kinds = _of(options).values()
    return not any(kind.call("downloads", False, word, options) for kind, words in of_kinds for word in words)


def check_settings(options: TasksSpec, given: Mapping[str, Any]) -> None:
    """Raise InputError for the first of the `given` settings that no chosen task reads, and for a table that is absent.

    Keys without `tasks.` and values that are the default are accepted, and so is `tasks.at=none`, which holds. Tasks in
    files of one's own read what they say, or any setting if they say nothing.
    """
    usual = TasksSpec(at="none" if options.at == "none" else "auto")
    read, reads_anything = {"names"}, False
    for kind, words in _of(options).values():
        for word in words:
            read.update(kind.call("reads", (), word, options))
        reads_anything |= bool(kind.source) and not hasattr(kind.module, "reads")
        if options.at != "none" and not kind.call("trains", False, options):
            read.add("at")
    if reads_anything:
        return
    for key in given:
        part, _, name = key.partition(".")
        if part != "tasks" or name in read or getattr(options, name) == getattr(usual, name):
            continue
        option = f"--evaluate-at {options.at}" if name == "at" else f"--set {key}={given[key]}"
        raise InputError(
            f"{option} has no effect on --tasks {','.join(options.names)}: it is a setting of "
            f"{READERS.get(name, FINE_TUNING)}; leave it out, or name such a task with --tasks"
        )


def _unknown(word: str, kinds: Sequence[Plug]) -> str:
    """Return the message for a name that selects no task; with a slash it can only be a path."""
    from workbench.tasks.common.table_files import FORMATS

    if user_path(word, "--tasks").is_file():
        return (
            f"--tasks {word}: a table ends in {', '.join(FORMATS)}, and sentences of tagged words are named "
            f"tag:{word}; rename the file, or name it so"
        )
    if "/" in word:
        return f"--tasks {word}: there is no such file or folder"
    groups = [group for kind in kinds for group in kind.call("groups", ())]
    names = dict.fromkeys([NONE, *groups, *(name for kind in kinds for name in kind.names.values())])
    hint = suggest(word, names, lists="workbench list tasks")
    paths = "" if hint.endswith("?") else "; or give the path of a table, of minimal pairs, or of a task's file"
    return f"--tasks names an unknown task {word!r}{hint}{paths}"


# ---- measures of files that are not part of the package ----

TEXTS = ("name", "suite", "metric", "fingerprint", "act")
RETURNS: dict[str, Any] = {
    "seeds": int, "settings": Mapping, "baselines": Mapping, "cost": Cost, "measure": Scores, "reading": tuple,
    "check": object, "shared": object,
}  # fmt: skip


def _checked(suite: Any, kind: Plug, names: Sequence[str]) -> list[Measure]:
    """Return measures whose settings hold the hash of their file. Raises InputError if they are not measures."""
    file = file_of(kind.module)
    if not isinstance(suite, Iterable):
        raise InputError(f"task {file}: load() returns {suite!r:.80}, and must return a list of measures")
    with blaming(file, "load raised", "task"):  # as a generator may
        measures = list(suite)
    if not measures:
        raise InputError(f"task {file}: load() returns no measure for {', '.join(names)}")
    for measure in measures:
        lacking = [
            f"a text `{part}`" for part in TEXTS if not isinstance(text := getattr(measure, part, 0), str) or not text
        ]
        lacking += [f"a method `{part}`" for part in RETURNS if not callable(getattr(measure, part, None))]
        if lacking:
            raise InputError(
                f"task {file}: load() returns a {type(measure).__name__} without {lacking[0]}; write a subclass of "
                f"workbench.tasks.Measure, which has defaults for most"
            )
        if measure.name not in kind.names.values() and not hasattr(kind.module, "accepts"):
            raise InputError(f"task {file}: load() returns a measure {measure.name!r}, which names() does not list")
    return [cast(Measure, _OfFile(measure, file, kind.source)) for measure in measures]


class _OfFile:
    """A measure whose settings hold the hash of its file, and whose errors are one sentence that names the file."""

    def __init__(self, measure: Any, file: str, source: str) -> None:
        self._measure, self._file, self._source = measure, file, source

    def __getattr__(self, part: str) -> Any:
        value = getattr(self._measure, part)
        return functools.partial(self._call, part, value) if part in RETURNS else value

    def _call(self, part: str, method: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a method. Raises InputError if it fails, or if the result is not as in the contract."""
        doing = f"{part}() of {self._measure.name}"
        try:
            with blaming(self._file, f"{doing} raised", "task"):
                result = method(*given)
        except InputError as error:
            if isinstance(error.__cause__, (Diverged, LeaseLost, RankLost)):
                raise error.__cause__ from None
            raise
        if not isinstance(result, RETURNS[part]):
            wanted = RETURNS[part].__name__
            raise InputError(f"task {self._file}: {doing} returns {result!r:.60}, and must return a {wanted}")
        if part == "measure":
            self._check_scores(result, doing)
        return {**result, "source": self._source} if part == "settings" else result

    def _check_scores(self, scores: Scores, doing: str) -> None:
        """Raise InputError if the headline metric is not among the values, and Diverged if a value is not finite."""
        if (metric := self._measure.metric) not in next(iter(scores.values.values()), {}):
            raise InputError(f"task {self._file}: {doing} has no value of {metric!r} in the first part of its scores")
        for part, values in scores.values.items():
            for name, value in values.items():
                if not isinstance(value, (int, float)):
                    raise InputError(f"task {self._file}: {doing} has the value {value!r:.40} for {name} of {part}")
                if not math.isfinite(value):
                    raise Diverged(f"{doing} is {value} for {name} of {part}")
