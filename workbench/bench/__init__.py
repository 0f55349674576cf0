"""Benchmark of the shared trainer on this machine: the speed of every objective at every scale, and its parts.

Each cell (one objective at one scale) runs the real `loop.train` in a process of its own. The processes take turns in
the order A B C A B C, so that other work on the machine disturbs all cells alike. One more process takes turns to
measure the ceiling: the fastest square matrix product in the same precision.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from workbench import objectives
from workbench.bench.machine import Quiet, available_memory, free_memory
from workbench.bench.turns import Worker
from workbench.spec import presets
from workbench.spec.host import Host
from workbench.spec.stages import ResolvedSpec
from workbench.store.environment import environment
from workbench.training.plan import EFFICIENCY, Plan, plan

LONGEST_STEP = 5.0  # seconds; longer steps are cut to fewer rows
MEMORY_SHARE = 0.7  # of the free memory; the rest is left to the system
SPREAD = 0.1  # (slowest - fastest) / median of the turns, on a machine without other work
STEPS = 10**6  # length of a run that is stopped before its end

Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One objective at one scale, with the rows that are computed here; `batch` is the batch size of the scale.

    `skipped` is the reason why the cell is not measured, or "".
    """

    spec: ResolvedSpec
    priced: Plan
    batch: int
    skipped: str = ""

    @property
    def name(self) -> str:
        """Return the name of the cell in messages."""
        return f"{self.spec.objective} at {self.spec.scale}"


@dataclass(frozen=True)
class Settings:
    """The length of a turn, `seconds` or exactly `steps`, and the number of timed turns, `repeats`."""

    seconds: float = 3.0
    steps: int | None = None
    repeats: int = 3


def bench(specs: Sequence[ResolvedSpec], host: Host, settings: Settings, say: Say) -> list[dict[str, Any]]:
    """Return one row for each spec, in their order; a spec that needs too much memory has a row with the reason.

    The precision is the precision of runs here. Raises InputError if an objective or the device is not available.
    """
    host, by_precision = replace(host, device=host.resolved_device()), dict[Any, list[ResolvedSpec]]()
    for spec in specs:
        by_precision.setdefault(host.resolved_precision(spec.encoder.hidden), []).append(spec)
    row_of: dict[tuple[str, str], dict[str, Any]] = {}
    for precision, several in by_precision.items():
        rows = _bench(several, replace(host, precision=precision), settings, say)
        row_of |= {(row["objective"], row["scale"]): row for row in rows}
    return [row_of[spec.objective, spec.scale] for spec in specs]


def _bench(specs: Sequence[ResolvedSpec], host: Host, settings: Settings, say: Say) -> list[dict[str, Any]]:
    """Return a row of results for each spec, beside the speed of pure matrix products; all specs have one precision."""
    with Worker.ceiling(host) as ceiling:
        speed = float(ceiling.turn("time")["flops_per_second"])
        cells = [fitted(spec, host, speed) for spec in specs]
        for cell in cells:
            if cell.skipped:
                say(f"{cell.name} is left out: {cell.skipped}")
        results = dict(row for group in _groups(cells) for row in _measure(group, host, settings, ceiling, say))
    facts = environment([], device=host.device, precision=str(host.precision), threads=host.threads)
    about = {name: facts[name] for name in ("machine", "versions", "workbench", "git", "threads", "started")}
    return [_row(cell, results.get(cell.name), max(ceiling.speeds), host) | about for cell in cells]


def specs_of(words: Sequence[str], scales: Sequence[str], overrides: dict[str, Any]) -> list[ResolvedSpec]:
    """Return a spec for every objective at every scale. Raises InputError for unknown names."""
    named = [objectives.find(word) for word in words or objectives.names()]
    specs = []
    for scale in scales or list(presets.SCALES):
        base = presets.resolve(scale, overrides | {"budget.steps": STEPS})
        specs += [objectives.with_options(base.replace(objective=name, source=source)) for name, source in named]
    return specs


def fitted(spec: ResolvedSpec, host: Host, speed: float) -> Cell:
    """Return the cell with as many rows per step as memory and LONGEST_STEP allow; `speed` is the ceiling in FLOP/s."""
    free, rows = MEMORY_SHARE * available_memory(host), spec.batch.size
    while True:
        fewer = spec.changed({"batch.size": rows})
        cell = Cell(fewer, plan(fewer), spec.batch.size)
        seconds = float(cell.priced.flops_per_step["matmul"]) / (speed * EFFICIENCY)
        if rows == 1 or (cell.priced.memory_bytes <= free and seconds <= LONGEST_STEP):
            break
        rows = max(1, rows // 2)
    if cell.priced.memory_bytes <= free:
        return cell
    need, usable = cell.priced.memory_bytes / 2**30, free / 2**30
    return replace(cell, skipped=f"one row needs about {need:.1f} GiB of memory, and {usable:.1f} GiB may be used")


def _groups(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Yield groups of cells that take turns: cells of one scale that fit into memory together."""
    group: list[Cell] = []
    for cell in (cell for cell in cells if not cell.skipped):
        need = sum(other.priced.memory_bytes for other in [*group, cell])
        if group and (cell.spec.scale != group[0].spec.scale or need > MEMORY_SHARE * free_memory()):
            yield group
            group = []
        group.append(cell)
    if group:
        yield group


def _measure(
    cells: Sequence[Cell], host: Host, settings: Settings, ceiling: Worker, say: Say
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and results of each cell of a group: after turns A B C A B C, the parts of a step are measured."""
    with ExitStack() as stack:  # closes those that have started where another one does not
        workers = [stack.enter_context(Worker.cell(c.spec, host, settings.seconds, settings.steps)) for c in cells]
        turns: dict[str, list[dict[str, Any]]] = {cell.name: [] for cell in cells}
        quiet = Quiet()
        for number in range(settings.repeats):
            ceiling.turn("time")
            for cell, worker in zip(cells, workers, strict=True):
                begun = time.monotonic()
                with quiet.watching(worker.pid):
                    turns[cell.name].append(worker.turn("time"))
                tokens = turns[cell.name][-1]["tokens_per_second"]
                say(f"{cell.name}: turn {number + 1} of {settings.repeats}, {tokens:,.0f} tokens/s "
                    f"({time.monotonic() - begun:.0f} s)")  # fmt: skip
        for cell, worker in zip(cells, workers, strict=True):
            parts = worker.turn("parts")
            yield cell.name, {"turns": turns[cell.name], "shares": parts["shares"],
                              "memory": turns[cell.name][-1]["peak_memory_bytes"], "noise": quiet.notes()}  # fmt: skip


def _row(cell: Cell, results: dict[str, Any] | None, ceiling: float, host: Host) -> dict[str, Any]:
    spec = cell.spec
    row: dict[str, Any] = {
        "objective": spec.objective, "scale": spec.scale, "precision": host.precision, "device": host.device,
        "compile": host.compile, "rows": spec.batch.size, "batch_size": cell.batch, "length": spec.data.length,
        "parameters": cell.priced.parameters["total"], "tokens_per_second": None, "seconds_per_step": None,
        "seconds_spread": None, "processor_seconds_per_step": None, "steps": 0, "model_flops_utilisation": None,
        "ceiling_flops_per_second": ceiling,
        "peak_memory_bytes": None, "shares": None, "notes": [], "skipped": cell.skipped or None,
    }  # fmt: skip
    if results is None:
        return row
    seconds = [turn["seconds_per_step"] for turn in results["turns"]]
    middle = statistics.median(seconds)
    spread = (max(seconds) - min(seconds)) / middle
    notes = list(results["noise"])
    if spread > SPREAD:
        notes.append(f"turns differ by {spread:.0%}, more than the {SPREAD:.0%} of a machine without other work")
    if spec.batch.size < cell.batch:
        notes.append(
            f"{spec.batch.size} of {cell.batch} rows a step, to save time, so the optimizer's share is too large"
        )
    return row | {
        "tokens_per_second": spec.batch.size * spec.data.length / middle,
        "seconds_per_step": middle, "seconds_spread": [min(seconds), max(seconds)],
        "processor_seconds_per_step": statistics.median(t["processor_seconds_per_step"] for t in results["turns"]),
        "steps": sum(turn["steps"] for turn in results["turns"]),
        "model_flops_utilisation": float(cell.priced.flops_per_step["matmul"]) / middle / ceiling,
        "peak_memory_bytes": results["memory"], "shares": results["shares"], "notes": notes,
    }  # fmt: skip
