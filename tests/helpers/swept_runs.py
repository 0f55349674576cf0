"""Sweeps over sizes of the generator, and the text of a page."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import made
import parsed

from workbench.store.run_store import RunStore

LEVEL = {0.125: 66.0, 0.25: 70.0, 0.5: 69.0, 1.0: 67.0, "unigram": 63.0, "uniform": 61.0}


def sweep(root: Path, cells: list[dict[str, Any]], seeds: int = 3, axis: str = "generator.width") -> tuple[Any, str]:
    """A store of one run for each cell and seed, with scores around the level of the generator's size."""
    store = RunStore(root / "runs")
    specs = [made.spec_of("rtd", seed, {"steps": 8}, **cell) for seed, cell in itertools.product(range(seeds), cells)]
    for spec in specs:
        kind = spec.generator.kind
        level = LEVEL[spec.generator.width if kind == "transformer" else kind] + (spec.encoder.hidden - 64) / 16
        made.scored(
            made.trained(store, spec, 8), "order", 0, level + 0.1 * spec.seed + 0.1 * random.Random(spec.name).random()
        )
    return store, made.recorded(store, specs, axis=axis, experiment="generator-size")


def said(tree: parsed.Element) -> str:
    return " ".join(tree.text.split())
