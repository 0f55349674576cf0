"""Experiments: files with a question and the axes along which runs differ, and the runs made from them.

    QUESTION = "At equal compute, how large should the generator be?"
    AXES = {"generator.width": (0.25, 0.5, 1.0)}
    VARIANTS = [{"generator.kind": "unigram"}]
    MATCH = "flops"
    CONTRASTS = {"generator.width": [(0.25, 1.0)]}

The runs are all combinations of AXES and, if VARIANTS are given, each of them with each objective; all of these with
every seed. A key is one that `--set` takes, `options.NAME` of an objective, or `budget.share`, a part of the budget; an
axis with one value gives it to all runs. A run with the key `scale` has all settings of that scale, also its budget,
besides those that the command gives. MATCH (a unit of budgets, such as tokens) is the unit in which all runs get
the same amount, FLOPs by default; `--match` overrides it. CONTRASTS declares the comparisons that the experiment is
about (see `Contrast`); without it, every two arms are compared.

A name that ends in .py is a path; any other is looked up in `./experiments`, then among the package's experiments.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import InputError, blaming, encodable, suggest
from workbench.options import text_of
from workbench.spec import presets
from workbench.spec.parts import LATER_TASK_FIELDS, TASK_PLACES, UNITS, TasksSpec
from workbench.spec.run_spec import (
    OWN_OPTIONS,
    RunSpec,
    digest,
    known_keys,
    override_value,
    refuse_found,
    unknown_key,
)

S = TypeVar("S", bound=RunSpec)  # a changed spec is at the same stage (see `stages`)
SHARE = "budget.share"
DATA_AXES = ("data.length", "data.pairs", "data.copies")  # how rows are made of a text; other keys of data decide it
EQUAL_WITHIN = 0.02  # largest relative difference of FLOPs called equal; whole steps cannot give exactly equal FLOPs
_AT_EQUAL = re.compile(r",?\s*\bat (an )?equal (compute|cost|budget|time|flops|number of \w+)\b,?", re.IGNORECASE)

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # except tabs and line breaks
# The folders in which a name is looked up. The package's own experiments lie beside it in a checkout, and inside it in
# a wheel.
_PACKAGE = Path(__file__).parents[1]
FOLDERS = (Path("experiments"), _PACKAGE / "experiments", _PACKAGE.parent / "experiments")
NAMES = ("QUESTION", "AXES", "VARIANTS", "MATCH", "CONTRASTS")
LARGEST = 1 << 20  # bytes of an experiment file
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Experiment:
    """A question and the settings of the runs that answer it.

    `axes` maps dotted keys of the spec to their values; `variants` are runs besides the combinations of these. `match`
    is the unit in which all runs get the same amount; None leaves budgets as they are given. `search` describes a
    search for settings in words; the axes that are searched have no values here. `contrasts` are the comparisons
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
        """The keys that distinguish arms in reports, joined by commas: those that vary, without keys of the budget."""
        varying, fixed = list[str](), list[str]()
        for key, values in self.axes.items():
            if not key.startswith("budget."):
                (fixed if len(values) == 1 else varying).append(key)
        return ",".join(varying or fixed[:1] or ["objective"])

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield the dotted keys and values in which each run of one seed differs from the base spec."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))
        for variant in self.variants:
            fixed = {key: values[0] for key, values in self.axes.items() if len(values) == 1}
            for objective in self.axes.get("objective", ()):
                yield fixed | {"objective": objective} | dict(variant)

    def check_size(self, seeds: int = 1) -> None:
        """Raise InputError if the experiment with this number of seeds has more than MOST_RUNS runs."""
        many = seeds * (math.prod(map(len, self.axes.values())) + len(self.variants))
        if many > MOST_RUNS:
            raise InputError(f"{self.name} with {seeds} seeds is {many:,} runs; give fewer values, up to {MOST_RUNS:,}")

    @property
    def scales(self) -> list[str]:
        """The scales that runs of the experiment name, in order; none if all have the base spec's scale."""
        named: dict[str, None] = {}
        for cell in self.cells():
            if "scale" in cell:
                named[str(cell["scale"])] = None
        return list(named)

    def runs(
        self, base: RunSpec, seeds: int, at_scale: Callable[[str], RunSpec] = presets.resolve
    ) -> Iterator[RunSpec]:
        """Yield one spec for each seed and cell, first all cells of one seed, so that comparisons are complete early.

        `at_scale` returns the base spec of a scale, for cells that name one. Raises InputError, which names the first
        cell for which no spec can be made.
        """
        self.check_size(seeds)
        bases = dict(zip(scales := self.scales, map(at_scale, scales), strict=True))
        for seed in range(base.seed, base.seed + seeds):
            for values in self.cells():
                yield changed(bases[str(values["scale"])] if "scale" in values else base, values | {"seed": seed})

    def record_name(self, base: RunSpec, measured: Iterable[str]) -> str:
        """Return the name of the experiment's record, such as `ablation-nano-1a2b3c4d`.

        Runs of one experiment from the same base settings share a record, even if their budgets differ. With several
        scales, the base is the spec of the first scale. `measured` are the names of the tasks, wherever their files
        are found.
        """
        given = base.identity()
        for key in ("budget", "seed", "objective", "options", "source"):
            given.pop(key)
        for key in set(self.axes).union(*self.variants):
            part = given
            *path, last = key.split(".")
            for name in path:
                part = part.get(name, {})
            part.pop(last, None)
        tasks = base.tasks.model_dump(mode="json", exclude={*TASK_PLACES})
        usual = TasksSpec().model_dump(mode="json")
        for key in LATER_TASK_FIELDS:
            if key in tasks and tasks[key] == usual[key]:
                del tasks[key]
        parts = [self.name, given, tasks | {"names": sorted(measured)}, *([self.search] if self.search else [])]
        return f"{self.name}-{base.scale}-{digest(parts, 8)}"


def question_text(question: str, equal: bool) -> str:
    """Return the question as it is if `equal`, that is, if all arms cost the same; else without "at equal compute"."""
    if equal:
        return question
    text = re.sub(r"\s+([?.!,;])", r"\1", " ".join(_AT_EQUAL.sub(" ", question).split()))
    return text[:1].upper() + text[1:]


def changed(base: S, values: Mapping[str, Any]) -> S:
    """Return the base spec with the values of a cell, also of its budget. Raises InputError, which names the cell."""
    given, amount = dict(values), dict[str, Any]()
    share = given.pop(SHARE, None)
    for unit in UNITS:
        if f"budget.{unit}" in given:
            amount[unit] = given.pop(f"budget.{unit}")
    try:
        if share is not None:
            if not 0 < float(share) <= 1:
                raise InputError(f"{SHARE}={float(share):g} must be above 0 and at most 1")
            base = base.replace(budget=base.budget.part(float(share)))
        if amount:
            base = base.replace(budget={"convention": base.budget.convention} | amount)
        return base.changed(given)
    except (InputError, ValueError, TypeError) as error:
        cell = ", ".join(f"{key}={value}" for key, value in values.items() if key != "seed")
        raise InputError(f"no run with {cell} can be made: {error}") from None


def load(word: str) -> Experiment:
    """Return the experiment of a name or a path. Raises InputError if there is none or its file is not valid."""
    path = _locate(word)
    if path.stat().st_size > LARGEST:
        raise InputError(f"experiment file {path} has {path.stat().st_size:,} bytes; at most {LARGEST:,} are allowed")
    module_spec = importlib.util.spec_from_file_location(f"workbench_experiment_{path.stem}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    with blaming(str(path), kind="experiment file"):
        module_spec.loader.exec_module(module)
        content = dict[str, Any]()
        for name in NAMES:
            content[name] = _copied(getattr(module, name, None))
    question, axes = content["QUESTION"], content["AXES"]
    if not isinstance(question, str) or not question.strip() or not isinstance(axes, Mapping):
        raise InputError(f"experiment file {path} needs QUESTION, a sentence, and AXES, a dict of keys and values")
    for name in NAMES:
        if not all(map(encodable, _texts(content[name]))):
            raise InputError(
                f"experiment file {path}: {name} contains half of a surrogate pair, which is not valid text"
            )
        if sign := next(filter(CONTROL.search, _texts(content[name])), None):
            raise InputError(f"experiment file {path}: {name} contains control characters, as in {sign!r:.200}")
    for key, values in axes.items():
        check_key(key, f"AXES of experiment file {path}")
        if not isinstance(values, tuple) or not values:
            raise InputError(f"experiment file {path}: AXES[{key!r}] must be a list of values")
        if len(set(map(repr, values))) < len(values):
            raise InputError(f"experiment file {path}: AXES[{key!r}] must list different values")
    variants, match = content["VARIANTS"] or (), content["MATCH"]
    if not isinstance(variants, tuple) or not {*map(type, variants)} <= {dict}:
        raise InputError(f"experiment file {path}: VARIANTS must be a list of dicts of keys and values")
    for key in itertools.chain(*variants):
        check_key(key, f"VARIANTS of experiment file {path}")
    if match not in (None, *UNITS):
        raise InputError(f"experiment file {path}: MATCH={match!r} is not one of {', '.join(UNITS)}")
    experiment = Experiment(path.stem.replace("_", "-"), question, axes, variants, match)
    experiment.check_size()
    where = f"CONTRASTS of experiment file {path}"
    declared = read_contrasts(content["CONTRASTS"] or (), axes, list(experiment.cells()), where)
    return replace(experiment, contrasts=declared)


def _copied(value: Any) -> Any:
    """Copy nested mappings to dicts and sequences to tuples; unusable values fail here, where the file is known."""
    if isinstance(value, Mapping):
        copied = dict[Any, Any]()
        for key in value:
            copied[_copied(key)] = _copied(value[key])
        return copied
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        if len(value) > MOST_RUNS:
            raise ValueError(f"a list has {len(value):,} values, but at most {MOST_RUNS:,} runs can be made")
        return tuple(map(_copied, value))
    repr(value)  # which messages show, and fails for integers of more than 4,300 digits
    return value


def _texts(value: Any) -> Iterator[str]:
    """Yield every string in nested dicts and tuples (see `_copied`), keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, tuple):
        for each in value:
            yield from _texts(each)


def check_key(key: str, where: str) -> None:
    """Raise InputError unless `key` is one in which the runs of an experiment may differ."""
    if not isinstance(key, str):
        raise InputError(f"{where}: the key {key!r} must be text, as in 'optim.lr'")
    if key == "seed":
        raise InputError(f"{where}: seed cannot be an axis, since arms are compared over seeds; use --seeds N")
    if key == "recipe":
        raise InputError(
            f"{where}: recipe cannot be an axis, since it stands for a table of settings that is read before runs are "
            f"made; vary settings of it, such as corruption.picks, or give one command for each recipe"
        )
    if key.startswith("tasks."):
        raise InputError(
            f"{where}: {key} cannot be an axis, since all runs of a command are measured in the same way; give one "
            f"command for each value, with --set {key}=..."
        )
    refuse_found(key, where)
    if key.startswith("data.") and key not in DATA_AXES and key in known_keys():
        raise InputError(
            f"{where}: {key} cannot be an axis, since all runs of a command read the same text; give one command for "
            f"each value, with --set {key}=..."
        )
    known = [*known_keys(), SHARE]
    if not key.startswith(OWN_OPTIONS) and key not in known:
        raise unknown_key(key, where, known)


def listing() -> list[tuple[str, str, str]]:
    """Return (name, question, path) of every experiment that can be given by name."""
    rows: dict[str, tuple[str, str, str]] = {}
    for folder in FOLDERS:
        for path in sorted(folder.glob("[a-z]*.py")):
            name = path.stem.replace("_", "-")
            if name not in rows:
                rows[name] = (name, load(str(path)).question, str(path))
    return list(rows.values())


def _locate(word: str) -> Path:
    """Return the path of an experiment file, given by name or path. Raises InputError if there is none."""
    if word.endswith(".py"):
        if Path(word).is_file():
            return Path(word)
        raise InputError(f"experiment {word}: there is no such file")
    stem = word.replace("-", "_")[:200]
    for folder in FOLDERS:
        if (folder / f"{stem}.py").is_file():
            return folder / f"{stem}.py"
    known = {path.stem.replace("_", "-") for folder in FOLDERS for path in folder.glob("[a-z]*.py")}
    raise InputError(f"unknown experiment {word[:80]!r}{suggest(word, known) if known else ''}")


# ----------------------------------------
# The option `--over`: values of a setting to compare, or a range of it to search.


NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included, on a logarithmic scale if `log`, and whole numbers if `whole`."""

    low: float
    high: float
    log: bool
    whole: bool

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"


Values = tuple[Any, ...]  # as typed or given in Python; None for `unset`, which clears the field
Space = Mapping[str, Range | Values]


def space_of(over: Mapping[str, Any] | None) -> dict[str, Range | Values]:
    """Return the values or range of each key: text as `1,2,3` or `1e-4..1e-3:log`, or values. Raises InputError."""
    space: dict[str, Range | Values] = {}
    for key, given in (over or {}).items():
        check_key(key, "--over")
        if isinstance(given, str) and ".." in given and "/" not in given:
            space[key] = _range(f"{key}={given}", given)
            continue
        if isinstance(given, str):
            values = [each.strip() for each in given.split(",")]
        else:
            values = list(given) if isinstance(given, Iterable) and not isinstance(given, Mapping) else [given]
        if "" in values or not values or len(set(map(repr, values))) < len(values):
            raise InputError(f"--over {f'{key}={text_of(given)}'!r} must list different values, separated by commas")
        space[key] = tuple(override_value(key, each, "--over") for each in values)
    return space


def _range(text: str, value: str) -> Range:
    """Return the range of `key=1e-4..1e-3:log`. Raises InputError."""
    match = RANGE.fullmatch(value)
    if not match:
        raise InputError(f"--over {text!r}: a range is two numbers, as in optim.lr=1e-4..1e-3:log")
    low, high = float(match[1]), float(match[2])
    if not low < high:
        raise InputError(f"--over {text!r}: {match[1]} must be below {match[2]}")
    if not math.isfinite(high - low):
        raise InputError(f"--over {text!r}: the range is too wide to be searched; give numbers that are less far apart")
    if match[3] and low <= 0:
        raise InputError(f"--over {text!r}: a logarithmic range must begin above 0")
    return Range(low, high, bool(match[3]), all(re.fullmatch(r"[+-]?\d+", match[i]) for i in (1, 2)))


def unit_of(match: str | None, experiment: Experiment | None, base: RunSpec) -> str | None:
    """Return the unit in which all runs get the same amount; None for `--match none`. Raises InputError.

    Without `--match`, it is MATCH of the experiment's file; without that, seconds if the budget is in seconds, else
    FLOPs.
    """
    if match not in (None, *UNITS, "none"):
        raise InputError(f"--match {match!r} is not one of {', '.join((*UNITS, 'none'))}")
    if match == "none":
        return None
    return match or (experiment and experiment.match) or ("seconds" if base.budget.unit == "seconds" else "flops")


def grid(word: str | None, over: Space, match: str | None, base: RunSpec, objectives: Sequence[str] = ()) -> Experiment:
    """Return the experiment of a name or file with the axes of `--over` added, or one of these axes alone.

    All runs get the same amount in the unit that `unit_of` returns. Raises InputError.
    """
    if objectives and "objective" in over:
        raise InputError("--objective and --over objective=... contradict each other; keep one")
    experiment = load(word) if word else None
    unit = unit_of(match, experiment, base)
    axes: dict[str, Values] = {}
    name = first = "over" if experiment is None else f"{experiment.name}-over"
    for key, values in over.items():
        axes[key] = () if isinstance(values, Range) else values
        if experiment is None or key not in experiment.axes:
            name += "-" + key.replace(".", "-").replace("_", "-")
    if experiment is None:
        if not axes:
            raise InputError(
                "sweep needs an experiment, such as generator-size (workbench list experiments), or --over key=1,2,3"
            )
        keys = list(axes)
        amount = {"flops": "equal compute", "seconds": "an equal time"}.get(str(unit), f"an equal number of {unit}")
        which = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
        question = f"At {amount}, which {which} does best?"
        return Experiment(name[:80], question_text(question, unit is not None), axes, match=unit)
    name = experiment.name if name == first else name[:80]
    return replace(experiment, name=name, axes={**experiment.axes, **axes}, match=unit)


# ----------------------------------------
# Comparisons between arms that an experiment file declares beforehand, in CONTRASTS.
#
#     CONTRASTS = [("rtd", "bert-mlm"), ("rtd", "electra-15", "a loss on all tokens")]      values of the only axis
#     CONTRASTS = {"tying": [("embeddings", "none")]}                                       values of a named axis
#     CONTRASTS = [({"generator.kind": "unigram"}, {"generator.width": 0.25})]              keys and values of an arm
#
# An arm is identified by some of its keys with their values, and an arm of VARIANTS by all keys that it sets. If
# further axes vary, the arms compared are those with equal values on these axes. A third entry is a label, which
# reports print.

Cell = Mapping[str, Any]  # dotted keys and values of one arm


@dataclass(frozen=True)
class Contrast:
    """A comparison of two arms, each given by the keys and values that identify it."""

    a: Cell
    b: Cell
    label: str = ""

    def __str__(self) -> str:
        return f"{arm_text(self.a)} against {arm_text(self.b)}"


def arm_text(arm: Cell) -> str:
    """Return an arm as messages and reports name it, such as `rtd` or `generator.width=0.25`."""
    words = list[str]()
    for key, value in arm.items():
        words.append(str(value) if key == "objective" else f"{key}={value}")
    return ", ".join(words)


def read_contrasts(
    raw: Any, axes: Mapping[str, Sequence[Any]], cells: Sequence[Cell], where: str
) -> tuple[Contrast, ...]:
    """Return the contrasts of an experiment file.

    `cells` are the arms of the experiment, and `where` names CONTRASTS in messages. Raises InputError for an entry that
    is not a pair of arms of the experiment, or is declared twice.
    """
    contrasts, varying = list[Contrast](), list[str]()
    for key, values in axes.items():
        varying += [key] if len(values) > 1 else []
    if not isinstance(raw, Mapping):  # the axis of plain values is "" if they could be of several axes
        raw = {varying[0] if len(varying) == 1 else "": raw}
    for key, entries in raw.items():
        if key not in axes and key != "":
            raise InputError(f"{where}: {key!r} is not a key of AXES{suggest(str(key), axes)}")
        if isinstance(entries, str) or not isinstance(entries, Sequence):
            raise InputError(f"{where} must be a list of pairs of arms, or a dict with such a list for each axis")
        for entry in entries:
            contrasts.append(_contrast(entry, key, axes, where))
    seen: dict[frozenset[int], Contrast] = {}
    for contrast in contrasts:
        for side in (contrast.a, contrast.b):
            if not matching(side, cells, axes):
                # a misspelt value is suggested where one key alone identifies the arm
                near = {str(cell[key]) for key in side for cell in cells if key in cell} if len(side) == 1 else set()
                meant = suggest(str(*side.values()), near) if near else ""
                raise InputError(f"{where} names {arm_text(side)}, which is not an arm of it{meant}")
        pairs = list(expand(contrast, cells, axes))
        if not pairs:
            raise InputError(f"{where}: {contrast} compares no two arms that are equal in all other keys")
        for pair in map(frozenset, pairs):
            if len(pair) == 1:
                raise InputError(f"{where} compares {arm_text(contrast.a)} with itself")
            if pair in seen:
                raise InputError(f"{where} declares {contrast} twice, the first time as {seen[pair]}")
            seen[pair] = contrast
    return tuple(contrasts)


def _contrast(entry: Any, key: str, axes: Mapping[str, Sequence[Any]], where: str) -> Contrast:
    """Return the contrast of one entry; `key` is the axis of plain values in it, or "". Raises InputError."""
    if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) not in (2, 3):
        raise InputError(f"{where}: {entry!r} is not a pair of arms, as in ('rtd', 'bert-mlm')")
    *sides, label = entry if len(entry) == 3 else (*entry, "")
    if not isinstance(label, str):
        raise InputError(f"{where}: the label of {entry[:2]!r} is {label!r}, which is not text")
    if not key and (plain := [side for side in sides if not isinstance(side, Mapping)]):
        several = f"may be a value of any of the axes {', '.join(axes)}; write {{axis: [(one, other)]}}"
        raise InputError(f"{where}: {plain[0]!r} {several}")
    for place, side in enumerate(sides):
        sides[place] = dict(side) if isinstance(side, Mapping) else {key: side}
    return Contrast(sides[0], sides[1], label)


def matching(arm: Cell, cells: Sequence[Cell], axes: Collection[str]) -> list[int]:
    """Return the indices of the cells with the arm's values in its keys and no other key of VARIANTS."""
    others = arm.keys() | set(axes)
    numbers = list[int]()
    for number, cell in enumerate(cells):
        if cell.keys() <= others and _agree(cell, arm, arm):
            numbers.append(number)
    return numbers


def expand(contrast: Contrast, cells: Sequence[Cell], axes: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the indices of each two cells that a contrast compares: cells equal in all keys that neither arm names."""
    for one in matching(contrast.a, cells, axes):
        for two in matching(contrast.b, cells, axes):
            rest = (cells[one].keys() | cells[two].keys()) - contrast.a.keys() - contrast.b.keys()
            if _agree(cells[one], cells[two], rest):
                yield one, two


def _agree(one: Cell, other: Cell, keys: Collection[str]) -> bool:
    """Return whether both arms have these keys, with equal values; one may be the text of the other, a number."""
    for key in keys:
        if key not in one or key not in other:
            return False
        if one[key] != other[key] and str(one[key]) != str(other[key]):
            try:
                if float(one[key]) != float(other[key]):
                    return False
            except (TypeError, ValueError):
                return False
    return True
