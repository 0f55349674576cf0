"""The option `--over`: values of a setting to compare, or a range of it to search."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.errors import InputError
from workbench.options import text_of
from workbench.spec import experiment as experiments
from workbench.spec.experiment import Experiment, check_key, question_text
from workbench.spec.parts import UNITS
from workbench.spec.run_spec import RunSpec, override_value

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
    axes = {key: () if isinstance(values, Range) else values for key, values in over.items()}
    experiment = experiments.load(word) if word else None
    unit = unit_of(match, experiment, base)
    new = [key for key in axes if experiment is None or key not in experiment.axes]
    first = "over" if experiment is None else f"{experiment.name}-over"
    name = "-".join([first, *(key.replace(".", "-").replace("_", "-") for key in new)])[:80]
    if experiment is None:
        if not axes:
            raise InputError("workbench sweep needs an experiment, such as generator-size, or --over key=1,2,3")
        keys = list(axes)
        amount = {"flops": "equal compute", "seconds": "an equal time"}.get(str(unit), f"an equal number of {unit}")
        which = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
        question = f"At {amount}, which {which} does best?"
        return Experiment(name, question_text(question, unit is not None), axes, match=unit)
    return replace(experiment, name=name if new else experiment.name, axes={**experiment.axes, **axes}, match=unit)
