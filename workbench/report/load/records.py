"""Which record of an experiment a command means, and which others there are."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

from workbench.errors import InputError, suggest
from workbench.report.load.run_files import FINISHED
from workbench.store.run_store import ExperimentRecord, RunStore

log = logging.getLogger("workbench")


@dataclass(frozen=True)
class Candidate:
    """A record of an experiment, and how many of its runs are in which state."""

    record: ExperimentRecord
    states: Counter[str]

    @property
    def finished(self) -> bool:
        """Whether every run of the record is trained, with all of its scores."""
        return set(self.states) == {"done"}

    @property
    def state(self) -> str:
        """Return one word for the whole record."""
        if self.finished:
            return "finished"
        return "running" if self.states["running"] else "unfinished" if self._answers() else "interrupted"

    def _answers(self) -> bool:
        """Whether what is missing has failed or diverged, so that the same command would not go on with it."""
        return not self.states.keys() & {"new", "interrupted", "missing"}

    def __str__(self) -> str:
        done = sum(self.states[state] for state in FINISHED)
        return f"{self.record.name} ({self.state}, {done} of {self.states.total()} runs, {self.record.updated[:16]})"


def find_record(store: RunStore, word: str) -> str:
    """Return the name of a record, from its own name or that of its experiment.

    Of several records of an experiment it is the one updated last among those that are finished, else the one updated
    last; which it is, and which others there are, is said. Raises InputError when there is none.
    """
    everything = store.experiments()
    for record in everything:
        if record.damage and (record.name == word or record.name.startswith(f"{word}-")):
            raise InputError(
                f"{store.root / 'experiments' / record.name}.json is damaged: {record.damage}; move it away"
            )
    records = [record for record in everything if not record.damage]
    if any(record.name == word for record in records):
        return word
    mine = [record for record in records if record.experiment == word]
    if mine:
        return _chosen(word, [candidate(store, record) for record in mine]).record.name
    known = {name for record in records for name in (record.name, record.experiment)}
    raise InputError(f"{store.root} holds no experiment {word!r}{suggest(word, known) if known else ''}")


def candidate(store: RunStore, record: ExperimentRecord) -> Candidate:
    """Look at the files of a record's runs."""
    names = dict.fromkeys([*record.runs, *record.untrained])
    return Candidate(record, Counter(_state(store, name) for name in names))


def _state(store: RunStore, run_id: str) -> str:
    try:
        return store.get(run_id).state
    except InputError:
        return "missing"
    except OSError:
        return "damaged"


def _chosen(word: str, candidates: list[Candidate]) -> Candidate:
    ordered = sorted(candidates, key=lambda each: (each.finished, each.record.updated, each.record.name), reverse=True)
    first, *others = ordered
    log.warning("%s is read from the record %s", word, first)
    for other in others:
        log.warning("another record of %s, to be named in its place: %s", word, other)
    return first
