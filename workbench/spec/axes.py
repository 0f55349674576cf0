"""What `--over` says: values to compare, or a range to search."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.errors import InputError
from workbench.spec import experiment as experiments
from workbench.spec.experiment import Experiment, asked, check_key
from workbench.spec.parts import UNITS
from workbench.spec.run_spec import RunSpec, override_value

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; `whole` ones if both ends are written as such."""

    low: float
    high: float
    log: bool
    whole: bool

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"


Values = tuple[str | None, ...]  # as typed; None where the field is cleared
Space = Mapping[str, Range | Values]


def parse_over(texts: Sequence[str]) -> dict[str, Range | Values]:
    """`a.b=1,2,3` as values and `a.b=1e-4..1e-3:log` as a range, by key. Raises InputError."""
    found: dict[str, Range | Values] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise InputError(f"--over {text!r} is not of the form key=1,2,3 or key=1e-4..1e-3:log")
        check_key(key, "--over")
        if key in found:
            raise InputError(f"--over {key} is given twice; give all its values at once, as in --over {key}=1,2,3")
        found[key] = _range(text, value) if ".." in value and "/" not in value else _values(text, key, value)
    return found


def _values(text: str, key: str, value: str) -> Values:
    """Return the values of `key=1,2,3`, as text that the field's type reads later. Raises InputError."""
    values = [each.strip() for each in value.split(",")]
    if not all(values) or len(set(values)) < len(values):
        raise InputError(f"--over {text!r} must name different values, with commas between them")
    return tuple(override_value(key, each, "--over") for each in values)


def _range(text: str, value: str) -> Range:
    match = RANGE.fullmatch(value)
    if not match:
        raise InputError(f"--over {text!r}: a range is two numbers, as in optim.lr=1e-4..1e-3:log")
    low, high = float(match[1]), float(match[2])
    if not low < high or not math.isfinite(high):
        raise InputError(f"--over {text!r}: {match[1]} is not below {match[2]}")
    if match[3] and low <= 0:
        raise InputError(f"--over {text!r}: a logarithmic range begins above 0")
    return Range(low, high, bool(match[3]), all(re.fullmatch(r"[+-]?\d+", match[i]) for i in (1, 2)))


def unit_of(match: str | None, found: Experiment | None, base: RunSpec) -> str | None:
    """Return the unit in which all runs get the same amount; None with `--match none`. Raises InputError.

    Without `--match` it is what the experiment's file says, else FLOPs; a budget in seconds stays one.
    """
    if match not in (None, *UNITS, "none"):
        raise InputError(f"--match {match!r} is not one of {', '.join((*UNITS, 'none'))}")
    if match == "none":
        return None
    return match or (found and found.match) or ("seconds" if base.budget.unit == "seconds" else "flops")


def grid(word: str | None, over: Space, match: str | None, base: RunSpec, objectives: Sequence[str] = ()) -> Experiment:
    """An experiment by its name or file with further axes, or one made of axes alone. Raises InputError.

    All runs get the same amount of what `unit_of` says.
    """
    if objectives and "objective" in over:
        raise InputError("--objective and --over objective=... contradict each other; keep one")
    axes = {key: () if isinstance(values, Range) else values for key, values in over.items()}
    found = experiments.load(word) if word else None
    unit = unit_of(match, found, base)
    if found is None:
        if not axes:
            raise InputError("sweep needs an experiment, as in generator-size, or --over key=1,2,3")
        keys = list(axes)
        amount = {"flops": "equal compute", "seconds": "an equal time"}.get(str(unit), f"an equal number of {unit}")
        which = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
        question = f"At {amount}, which {which} does best?"
        return Experiment(_name("over", keys), asked(question, unit is not None), axes, match=unit)
    new = [key for key in axes if key not in found.axes]
    name = _name(f"{found.name}-over", new) if new else found.name
    return replace(found, name=name, axes={**found.axes, **axes}, match=unit)


def _name(first: str, keys: Sequence[str]) -> str:
    return "-".join([first, *(key.replace(".", "-").replace("_", "-") for key in keys)])[:80]
