"""Comparisons between arms that an experiment file declares beforehand, in CONTRASTS.

    CONTRASTS = [("rtd", "bert-mlm"), ("rtd", "electra-15", "a loss on all tokens")]      values of the only axis
    CONTRASTS = {"tying": [("embeddings", "none")]}                                       values of a named axis
    CONTRASTS = [({"generator.kind": "unigram"}, {"generator.width": 0.25})]              keys and values of an arm

An arm is identified by some of its keys with their values, and an arm of VARIANTS by all keys that it sets. If further
axes vary, the arms compared are those with equal values on these axes. A third entry is a label, which reports print.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import InputError, suggest

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
    return ", ".join(str(value) if key == "objective" else f"{key}={value}" for key, value in arm.items())


def read(raw: Any, axes: Mapping[str, Sequence[Any]], cells: Sequence[Cell], where: str) -> tuple[Contrast, ...]:
    """Return the contrasts of an experiment file.

    `cells` are the arms of the experiment, and `where` names CONTRASTS in messages. Raises InputError for an entry that
    is not a pair of arms of the experiment, or is declared twice.
    """
    contrasts = tuple(_contrast(entry, key, axes, where) for key, entry in _entries(raw, axes, where))
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
    return contrasts


def _entries(raw: Any, axes: Mapping[str, Sequence[Any]], where: str) -> Iterator[tuple[str, Any]]:
    """Yield the axis and the entry of each declared pair; the axis is "" if plain values could be of several axes."""
    varying = [key for key, values in axes.items() if len(values) > 1]
    groups = raw if isinstance(raw, Mapping) else {varying[0] if len(varying) == 1 else "": raw}
    for key, entries in groups.items():
        if key not in axes and key != "":
            raise InputError(f"{where}: {key!r} is not a key of AXES{suggest(str(key), axes)}")
        if isinstance(entries, str) or not isinstance(entries, Sequence):
            raise InputError(f"{where} must be a list of pairs of arms, or a dict with such a list for each axis")
        yield from ((key, entry) for entry in entries)


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
    one, two = (dict(side) if isinstance(side, Mapping) else {key: side} for side in sides)
    return Contrast(one, two, label)


def matching(arm: Cell, cells: Sequence[Cell], axes: Collection[str]) -> list[int]:
    """Return the indices of the cells with the arm's values in its keys and no other key of VARIANTS."""
    return [
        number
        for number, cell in enumerate(cells)
        if all(key in cell and same(cell[key], value) for key, value in arm.items())
        and all(key in arm or key in axes for key in cell)
    ]


def expand(contrast: Contrast, cells: Sequence[Cell], axes: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the indices of each two cells that a contrast compares: cells equal in all keys that neither arm names."""
    for one in matching(contrast.a, cells, axes):
        for two in matching(contrast.b, cells, axes):
            rest = (cells[one].keys() | cells[two].keys()) - contrast.a.keys() - contrast.b.keys()
            if all(key in cells[one] and key in cells[two] and same(cells[one][key], cells[two][key]) for key in rest):
                yield one, two


def same(value: Any, other: Any) -> bool:
    """Return whether two values of a key are equal; those of the command line are text, others may be numbers."""
    if value == other or str(value) == str(other):
        return True
    try:
        return float(value) == float(other)
    except (TypeError, ValueError):
        return False
