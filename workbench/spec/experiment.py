"""An experiment file becomes runs. A file is a question, and the axes along which the runs differ.

    QUESTION = "At equal compute, how large should the generator be?"
    AXES = {"generator.width": (0.25, 0.5, 1.0)}
    VARIANTS = [{"generator.kind": "unigram"}]
    MATCH = "flops"
    CONTRASTS = {"generator.width": [(0.25, 1.0)]}

The runs are all combinations of AXES, then each of VARIANTS (if there are any) once for each objective, times the
seeds. A key is whatever `--set` takes, `options.NAME` of an objective, or `budget.share`, a part of the budget; an axis
of one value holds it fixed. MATCH (a budget's unit, such as tokens) is the unit in which all runs get the same amount;
left out, it is FLOPs. `--match` overrules it. CONTRASTS declares which comparisons the experiment is about (see
`contrasts`); without it, every two arms are compared.

A name is looked up as a path, then in `./experiments`, then among those that came with the package.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import InputError, encodable, suggest
from workbench.spec import contrasts
from workbench.spec.contrasts import Contrast
from workbench.spec.parts import LATER_TASK_FIELDS, UNITS, Budget, TasksSpec
from workbench.spec.run_spec import RunSpec, digest, known_keys
from workbench.spec.user_code import blaming

S = TypeVar("S", bound=RunSpec)  # a changed spec is of the same stage
SHARE = "budget.share"
EQUAL_WITHIN = 0.02  # arms whose FLOPs differ by more are not called equal; steps are whole, so some difference is left
_AT_EQUAL = re.compile(r",?\s*\bat (an )?equal (compute|cost|budget|time|flops|number of \w+)\b,?", re.IGNORECASE)

NAMES = ("QUESTION", "AXES", "VARIANTS", "MATCH", "CONTRASTS")
LARGEST = 1 << 20  # bytes of an experiment file
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Experiment:
    """`axes` maps dotted keys of the spec to the values they take; `variants` are runs beyond their combinations.

    `match` is the unit in which all runs get the same amount; None leaves budgets as they are given. `search` says in
    words what is searched for and how; the axes that it searches have no values here. `contrasts` are the comparisons
    declared beforehand.
    """

    name: str
    question: str
    axes: Mapping[str, Sequence[Any]]
    variants: Sequence[Mapping[str, Any]] = ()
    match: str | None = None
    search: str = ""
    contrasts: tuple[Contrast, ...] = ()

    @property
    def axis(self) -> str:
        """What reports compare along: the keys that vary, joined by commas. A budget is no arm of its own."""
        keys = [key for key in self.axes if not key.startswith("budget.")]
        return ",".join([key for key in keys if len(self.axes[key]) != 1] or keys[:1] or ["objective"])

    def cells(self) -> Iterator[dict[str, Any]]:
        """What sets each run of a seed apart from the base: dotted keys and values."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))
        fixed = {key: values[0] for key, values in self.axes.items() if len(values) == 1}
        for variant in self.variants:
            for objective in self.axes.get("objective", ()):
                yield fixed | {"objective": objective} | dict(variant)

    def check_size(self, seeds: int = 1) -> None:
        """Raise InputError for more runs than can be listed."""
        many = seeds * (math.prod(map(len, self.axes.values())) + len(self.variants))
        if many > MOST_RUNS:
            raise InputError(f"{self.name} with {seeds} seeds is {many:,} runs; give fewer values, up to {MOST_RUNS:,}")

    def runs(self, base: RunSpec, seeds: int) -> Iterator[RunSpec]:
        """One spec a seed and cell; seeds vary slowest, so that whole comparisons come in early.

        Raises InputError naming the first cell that cannot be built.
        """
        self.check_size(seeds)
        for seed in range(base.seed, base.seed + seeds):
            for values in self.cells():
                yield changed(base, values | {"seed": seed})

    def record_name(self, base: RunSpec) -> str:
        """`ablation-nano-1a2b3c4d`: all runs of one question about one base share it, whatever their budget."""
        given = base.identity()
        for key in ("budget", "seed", "objective", "options", "source"):
            given.pop(key)
        for key in {*self.axes, *(key for variant in self.variants for key in variant)}:
            part = given
            *path, last = key.split(".")
            for name in path:
                part = part.get(name, {})
            part.pop(last, None)
        tasks, usual = base.tasks.model_dump(mode="json"), TasksSpec().model_dump(mode="json")
        for key in LATER_TASK_FIELDS:
            if tasks[key] == usual[key]:
                del tasks[key]
        parts = [self.name, given, tasks, *([self.search] if self.search else [])]
        return f"{self.name}-{base.scale}-{digest(parts, 8)}"


def asked(question: str, equal: bool) -> str:
    """Return the question without its "at equal compute", unless the arms are known to spend the same."""
    if equal:
        return question
    text = re.sub(r"\s+([?.!,;])", r"\1", " ".join(_AT_EQUAL.sub(" ", question).split()))
    return text[:1].upper() + text[1:]


def changed(base: S, values: Mapping[str, Any]) -> S:
    """The base with a cell's values; a budget takes the place of the base's. Raises InputError naming the cell."""
    given = dict(values)
    unit = next((key for key in given if key.startswith("budget.") and key.removeprefix("budget.") in UNITS), None)
    share = given.pop(SHARE, None)
    try:
        if share is not None:
            base = base.replace(budget=portion(base.budget, float(share)))
        if unit:
            amount = {unit.removeprefix("budget."): given.pop(unit)}
            base = base.replace(budget={"convention": base.budget.convention} | amount)
        return base.changed(given)
    except (InputError, ValueError, TypeError) as error:
        told = ", ".join(f"{key}={value}" for key, value in values.items() if key != "seed")
        raise InputError(f"no run with {told} can be made: {error}") from None


def portion(budget: Budget, share: float) -> dict[str, Any]:
    """That part of a budget, as plain data; steps are rounded to whole ones."""
    if not 0 < share <= 1:
        raise InputError(f"{SHARE}={share:g} is not above 0 and at most 1")
    return budget.part(share)


def load(word: str) -> Experiment:
    """The experiment of a name or a path. Raises InputError where there is none, or its file is not one."""
    path = _locate(word)
    if path.stat().st_size > LARGEST:
        raise InputError(f"experiment file {path} has {path.stat().st_size} bytes; a question and its axes take few")
    found = importlib.util.spec_from_file_location(f"workbench_experiment_{path.stem}", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    with blaming(str(path), kind="experiment file"):
        found.loader.exec_module(module)
        said = {name: _copied(getattr(module, name, None)) for name in NAMES}
    question, axes = said["QUESTION"], said["AXES"]
    if not isinstance(question, str) or not question.strip() or not isinstance(axes, Mapping):
        raise InputError(f"experiment file {path} needs QUESTION, a sentence, and AXES, a dict of keys and values")
    if not encodable(question):
        raise InputError(f"experiment file {path}: QUESTION holds half of a surrogate pair, which is no text")
    for key, values in axes.items():
        check_key(key, f"AXES of experiment file {path}")
        if not isinstance(values, tuple) or not values:
            raise InputError(f"experiment file {path}: AXES[{key!r}] must be a list of values")
    variants, match = said["VARIANTS"] or (), said["MATCH"]
    if not isinstance(variants, tuple) or not all(isinstance(one, Mapping) for one in variants):
        raise InputError(f"experiment file {path}: VARIANTS must be a list of dicts of keys and values")
    for key in (key for variant in variants for key in variant):
        check_key(key, f"VARIANTS of experiment file {path}")
    if match not in (None, *UNITS):
        raise InputError(f"experiment file {path}: MATCH={match!r} is not one of {', '.join(UNITS)}")
    made = Experiment(path.stem.replace("_", "-"), question, axes, variants, match)
    made.check_size()
    where = f"CONTRASTS of experiment file {path}"
    return replace(made, contrasts=contrasts.read(said["CONTRASTS"] or (), made.axes, list(made.cells()), where))


def _copied(value: Any) -> Any:
    """Return a value with dicts and tuples of Python's own: what a person's classes do shows here, not later."""
    if isinstance(value, Mapping):
        return {key: _copied(value[key]) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        if len(value) > MOST_RUNS:
            raise ValueError(f"a list of {len(value):,} values; up to {MOST_RUNS:,} runs can be made")
        return tuple(_copied(each) for each in value)
    return value


def check_key(key: str, where: str) -> None:
    """Raise InputError unless `key` is one in which the runs of an experiment may differ."""
    if not isinstance(key, str):
        raise InputError(f"{where}: the key {key!r} is not text, as in 'optim.lr'")
    if key == "seed":
        raise InputError(f"{where}: seed is no axis, since runs are compared over seeds; say how many with --seeds N")
    known = [*known_keys(), SHARE]
    if not key.startswith("options.") and key not in known:
        raise InputError(f"unknown key {key!r} in {where}{suggest(key, known)}")


def listing() -> list[tuple[str, str, str]]:
    """(name, question, path) of every experiment that can be named."""
    found: dict[str, tuple[str, str, str]] = {}
    for folder in _folders():
        for path in sorted(folder.glob("[a-z]*.py")):
            name = path.stem.replace("_", "-")
            if name not in found:
                found[name] = (name, load(str(path)).question, str(path))
    return list(found.values())


def _folders() -> list[Path]:
    here = Path(__file__).parents[1]
    # Beside the package in a checkout, inside it in a wheel.
    return [path for path in (Path("experiments"), here / "experiments", here.parent / "experiments") if path.is_dir()]


def _locate(word: str) -> Path:
    if word.endswith(".py"):
        if Path(word).is_file():
            return Path(word)
        raise InputError(f"experiment {word}: there is no such file")
    stem = word.replace("-", "_")[:200]
    for folder in _folders():
        if (folder / f"{stem}.py").is_file():
            return folder / f"{stem}.py"
    known = {path.stem.replace("_", "-") for folder in _folders() for path in folder.glob("[a-z]*.py")}
    raise InputError(f"unknown experiment {word[:80]!r}{suggest(word, known) if known else ''}")
