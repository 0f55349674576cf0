"""The results of a study as one typed structure, from which the page, its tables, LaTeX and Python are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.report import csv_tables
from workbench.report.comparison.boards import Board, Pair, boards
from workbench.report.comparison.spending import question
from workbench.report.comparison.verdict import Verdict, verdicts
from workbench.report.formatting import clean
from workbench.report.load import frames, report_folder
from workbench.report.load.frames import Frames
from workbench.report.load.naming import UNTRAINED, person_name
from workbench.report.report_options import ReportOptions
from workbench.report.statistics.noise import own_noises
from workbench.report.statistics.power import family_of, needed_seeds
from workbench.store.atomic import dumps

if TYPE_CHECKING:
    from workbench.store.run_store import RunStore

DERIVED = ("table.csv", "pairs.csv", "tasks.csv", "noise.csv", "verdict.csv")  # made again whenever a report is drawn


@dataclass(frozen=True)
class Results:
    """What a study measured (`frames`), and the comparisons made of it (`boards`, one for each measure).

    The first of the `verdicts` is that of the measure that decides. `missing` maps each unavailable task to
    the reason. `left_out` names what the data files of an older report do not hold, and `kept` are the bytes of these
    files, which are copied as they are.
    """

    frames: Frames
    boards: tuple[Board, ...]
    verdicts: tuple[Verdict, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    options: ReportOptions = field(default_factory=ReportOptions)
    left_out: tuple[str, ...] = ()
    kept: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def by_verdict(self) -> tuple[Board, ...]:
        """Return the boards in the order of the verdicts, the measure that decides first."""
        by_suite = {board.suite: board for board in self.boards}
        return tuple(by_suite[verdict.suite] for verdict in self.verdicts)

    @cached_property
    def question(self) -> str:
        """Return the question, with "at equal compute" only if the arms spent the same."""
        return question(self.frames)

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """Return the name of each arm that people say; two arms never share one."""
        arms = dict.fromkeys(str(row["arm"]) for row in self.frames.rows("runs"))
        titles = {arm: clean(person_name(self.frames.axis, arm)).replace(", generator ", ", ") for arm in arms}
        titles |= {UNTRAINED: "Untrained encoders"} if UNTRAINED in titles else {}
        counts = list(titles.values())
        return {arm: title if counts.count(title) == 1 else clean(arm) for arm, title in titles.items()}

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Return the arms in the order of the study: of its record, or by value on a numeric axis."""
        names = dict.fromkeys(str(row["arm"]) for row in self.frames.rows("runs") if row["role"] == "arm")
        return tuple(sorted(names, key=lambda arm: _place(arm, self.ordered)))

    @cached_property
    def ordered(self) -> bool:
        """Return whether the axis has an order: all arms are numbers, but for generators without a size."""
        if self.frames.axis == "objective":
            return False
        names = {str(row["arm"]) for row in self.frames.rows("runs") if row["role"] == "arm"}
        return sum(_value(arm) is not None for arm in names) >= max(2, len(names) / 2)

    def value(self, arm: str) -> float | None:
        """Return the place of an arm on a numeric axis; None for a word."""
        return _value(arm)

    def seeds_to_decide(self, board: Board, budget: str, pair: Pair) -> int | None:
        """Return about how many seeds would show a gap of the size that was measured; None if that is unknown.

        For a study whose seeds are added by a plan, the plan says how many there will be.
        """
        estimate, noise, family = pair.compared.estimate, pair.compared.noise, board.families.get(budget)
        if (family is not None and family.plan is not None) or estimate.n < 2 or estimate.half is None or not noise:
            return None
        arms = {cell.arm: cell.scores for cell in board.at(budget)}
        own = own_noises(arms).get(frozenset((pair.a, pair.b)))
        return needed_seeds(estimate.mean, noise, len(arms), family_of(list(arms), family.pairs if family else ()), own)

    def data_files(self) -> dict[str, bytes]:
        """Return the data files of the report by name: its CSV tables, and report.json."""
        sheets = csv_tables.sheets(self.frames, self.boards, self.verdicts)
        names = DERIVED if self.kept else tuple(sheets)
        files = {name: csv_tables.text(sheets[name]).encode("utf-8", "replace") for name in names}
        files["verdict.json"] = f"{dumps(self.verdicts[0].to_json() if self.verdicts else {})}\n".encode()
        if self.kept:
            return {**self.kept, **files}
        facts = report_folder.facts_text(self.frames, self.missing, workbench.__version__)
        return files | {report_folder.FACTS: facts.encode("utf-8", "replace")}


def results_of(loaded: Frames, missing: Mapping[str, str], options: ReportOptions) -> Results:
    """Return the results of an experiment that was read, the measure that decides first."""
    made = boards(loaded, options.order)
    return Results(loaded, tuple(made), tuple(verdicts(made, loaded)), missing, options)


def from_store(
    store: RunStore, record: str, missing: Mapping[str, str] | None = None, options: ReportOptions | None = None,
    loaded: Frames | None = None,
) -> Results:  # fmt: skip
    """Return the results of a record of a store, or of what was `loaded` of it. Raises InputError if there is none."""
    options = options or ReportOptions()
    if loaded is None:
        loaded = frames.read_and_warn(store, record, options.verify)
    return results_of(loaded, missing or {}, options)


def from_folder(folder: Path, options: ReportOptions | None = None, prefix: str = "") -> Results:
    """Return the results that the data files of a report hold, whose names begin with `prefix`.

    Raises InputError if they cannot be used.
    """
    options = options or ReportOptions()
    loaded, missing, left_out = report_folder.read(folder, prefix)
    names = (report_folder.FACTS, *(f"{name}.csv" for name in (*report_folder.REQUIRED, *report_folder.OPTIONAL)))
    paths = {name: folder / f"{prefix}{name}" for name in names}
    kept = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
    return replace(results_of(loaded, missing, options), left_out=left_out, kept=kept)


def _value(arm: str) -> float | None:
    try:
        return float(arm.split(",")[0])
    except ValueError:
        return None


def _place(arm: str, ordered: bool) -> tuple[Any, ...]:
    value = _value(arm) if ordered else None
    return (value is None, value or 0.0)
