"""Cells of an experiment that would train one model: the settings that an objective reads, and what follows from them.

An objective declares nothing of this: it is built at a small size, and makes one step on made-up text, with a spec that
notes what is read. Two cells are one model if all that is read is equal in both, and all that other code reads.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import objectives
from workbench.errors import InputError, listed
from workbench.spec.experiment import Cell, Experiment, arm_text
from workbench.spec.run_spec import RunSpec, digest, merge, parse

if TYPE_CHECKING:
    from workbench.tensors import Batch

log = logging.getLogger("workbench")
SHOWN = 3  # cells in a message
SIZES: dict[str, Any] = {
    "encoder.hidden": 32, "encoder.layers": 2, "encoder.heads": 2, "encoder.vocab": 60, "encoder.positions": 40,
    "encoder.attention": "eager",  # torch's counter does not count its fused attention on a CPU
    "data.length": 16, "batch.size": 4, "budget.steps": 4, "optim.lr": 1e-2, "budget.convention": "matmul",
    **{f"data.special.{name}": place for place, name in enumerate(("pad", "unk", "cls", "sep", "mask"))},
}  # fmt: skip
OF_OBJECTIVES = ("generator", "corruption", "tying", "head")  # settings that no other code reads than the objective's


class Noting:
    """A spec, or its generator or corruption, that notes the keys that are read."""

    def __init__(self, part: Any, read: set[str], prefix: str = "") -> None:
        self._part, self._read, self._prefix = part, read, prefix

    def __getattr__(self, name: str) -> Any:
        value, key = getattr(self._part, name), self._prefix + name
        if key in ("generator", "corruption"):
            return Noting(value, self._read, f"{key}.")
        # The text of any other method contains the whole spec, on which its result may depend.
        self._read.update(("corruption.rate", "corruption.picks") if key == "picked" else (key,))
        return value


def batch_of(spec: RunSpec, rows: int = 4) -> Batch:
    """Return a batch of made-up rows without padding, of two segments each if the spec has pairs."""
    import torch

    from workbench.rng import row_keys
    from workbench.tensors import Batch

    special, length = spec.data.special, spec.data.length
    ids = torch.randint(5, spec.encoder.vocab, (rows, length), generator=torch.Generator().manual_seed(1))
    ids[:, 0], ids[:, -1] = special.cls, special.sep
    segments = broken = None
    if spec.data.pairs:
        ids[:, length // 2] = special.sep
        segments = (torch.arange(length) > length // 2).long().expand(rows, -1)
        broken = torch.arange(rows) % 2 == 0
    return Batch(ids, row_keys(0, torch.arange(rows)), None, segments, broken)


def other_settings(spec: RunSpec) -> dict[str, Any]:
    """Return the identity and scale of a spec, an arm's name, without the settings that only its objective may read."""
    known = spec.identity() | {"scale": spec.scale}
    for key in OF_OBJECTIVES:
        known.pop(key, None)
    known.get("optim", {}).pop("generator_lr", None)
    return known


def model_of(spec: RunSpec) -> str:
    """Return a hash that specs share if they train the same model on the same rows, whatever their names."""
    read = keys_read(spec)
    if "" in read:
        return spec.name
    values = {key: repr(attrgetter(key)(spec)) for key in read}
    if any(key.startswith("generator") for key in read):
        values["optim.generator_lr"] = repr(spec.optim.generator_lr)
    return digest([other_settings(spec), values])


def keys_read(spec: RunSpec) -> set[str]:
    """Return the dotted keys and the properties of a spec that its objective reads; "" stands for all of them."""
    from workbench.models.encoder import build_encoder
    from workbench.models.generators import count_text
    from workbench.training.loop import plainly

    raw = spec.model_dump() | {"start": None, "pair": None, "budget": {}}
    raw["encoder"] = spec.encoder.model_dump(include={"family", "source", "options", "causal"})
    key = digest([raw[name] for name in (*OF_OBJECTIVES, "objective", "source", "options", "encoder", "recipe")])
    if key in _read:
        return _read[key]
    read = set[str]()
    try:
        small = parse(merge(raw, SIZES))
        module, noting = objectives.load(small), Noting(small, read)
        pairs = np.arange(small.encoder.vocab**2, dtype=np.int64)
        module.cost(noting)
        model = module.Objective(build_encoder(small), noting, module.Options(**small.options))
        count_text(model, lambda: pairs[: small.encoder.vocab], lambda: (pairs, pairs + 1))
        plainly(model)(batch_of(small, 2))
    except Exception:  # of a plug-in, which may not work at this size
        read.add("")
    _read[key] = read
    return read


_read: dict[str, set[str]] = {}  # a cache, since a step takes 20 ms and an experiment may have many cells


def first_of_each(experiment: Experiment, cells: Sequence[Cell], runs: Sequence[RunSpec]) -> list[int]:
    """Return for each cell the place of the first cell whose run trains the same model. Raises InputError.

    It is raised for a mistake: all cells of an objective are one model, or two values of an axis are, whatever the
    other axes. Cells that are one model at some sizes, or with some values of other axes, are named in a warning.
    """
    others = [digest(other_settings(run)) for run in runs]
    several, models = Counter(others), dict[str, int]()
    first = list[int]()
    for place, (run, other) in enumerate(zip(runs, others, strict=True)):
        first.append(models.setdefault(model_of(run) if several[other] > 1 else other, place))
    of_objective = dict[str, list[int]]()  # different cells: a variant is made for each objective, and may name its own
    for place, run in enumerate(runs):
        if first[place] == place or cells[first[place]] != cells[place]:
            of_objective.setdefault(run.objective, []).append(place)
    for name, own in of_objective.items():
        if len(own) > 1 and len({first[place] for place in own}) == 1:
            advice = f"leave --objective {name} out" if len(of_objective) > 1 else "vary another setting"
            raise _no_difference(experiment, [cells[place] for place in own], name, advice)
    crossed = cells[: math.prod(map(len, experiment.axes.values()))]
    for key, values in experiment.axes.items():
        alike = dict[tuple[int, ...], Any]()  # values by the models of their cells, which have one order for each value
        for value in values:
            of_value = tuple(first[place] for place, cell in enumerate(crossed) if cell[key] == value)
            if alike.setdefault(of_value, value) is not value:
                pair = [{key: alike[of_value]}, {key: value}]
                raise _no_difference(experiment, pair, " and ".join(of_objective), "keep one of them")
    for place, same in enumerate(first):
        if cells[same] != cells[place]:
            log.warning(
                "%s: %s is the same model as %s at these settings, so it is trained once, and shown by the second name",
                experiment.name, arm_text(varied(experiment, cells[place])), arm_text(varied(experiment, cells[same])),
            )  # fmt: skip
    return first


def _no_difference(experiment: Experiment, cells: Sequence[Cell], objective: str, advice: str) -> InputError:
    keys = [key for key in dict.fromkeys(itertools.chain(*cells)) if len({repr(cell.get(key)) for cell in cells}) > 1]
    texts = [arm_text(varied(experiment, {key: cell[key] for key in keys if key in cell})) for cell in cells]
    runs = " and ".join(texts) if len(cells) == 2 else f"all {len(cells)} runs ({'; '.join(texts[:SHOWN])} ...)"
    return one_model(experiment.name, keys, objective, runs, advice)


def one_model(where: str, keys: Sequence[str], objective: str, runs: str, advice: str) -> InputError:
    """Return the error for `runs` that differ only in `keys`, which have no effect on the objective."""
    return InputError(
        f"{where}: {listed(keys)} {'makes' if len(keys) == 1 else 'make'} no difference to {objective} at these "
        f"settings, so {runs} would train one model; {advice}"
    )


def varied(experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """Return a cell as messages and reports name it, without the values that all cells have."""
    return {key: value for key, value in cell.items() if len(experiment.axes.get(key, ())) != 1}
