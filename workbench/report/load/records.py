"""Search for the record of an experiment that a command names, among several of the same experiment."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

from workbench.errors import InputError, plural, suggest
from workbench.report.load.run_files import FINISHED
from workbench.store.run_store import ExperimentRecord, RunStore

log = logging.getLogger("workbench")


@dataclass(frozen=True)
class Candidate:
    """A record of an experiment, with the number of its runs in each state."""

    record: ExperimentRecord
    states: Counter[str]

    @property
    def finished(self) -> bool:
        """Return whether every run of the record is trained and has all of its scores."""
        return set(self.states) == {"done"}

    @property
    def state(self) -> str:
        """Return one word for the whole record."""
        if self.finished:
            return "finished"
        return "running" if self.states["running"] else "unfinished" if self._failed() else "interrupted"

    def _failed(self) -> bool:
        """Return whether all remaining runs failed or diverged, so that the same command would not resume any."""
        return not self.states.keys() & {"new", "interrupted", "missing"}

    def __str__(self) -> str:
        done = sum(self.states[state] for state in FINISHED)
        runs = plural(self.states.total(), "run")
        return f"{self.record.name} ({self.state}, {done} of {runs}, {self.record.updated[:16]})"


def find_record(store: RunStore, word: str) -> str:
    """Return the name of a record, given that name or the name of its experiment.

    If an experiment has several records, this is the finished one that was updated last, or else the one that was
    updated last. A warning names the record, and each of the others. Raises InputError if there is none.
    """
    everything = store.experiments()
    for record in everything:
        if record.damage and (record.name == word or record.name.startswith(f"{word}-")):
            raise InputError(f"{store.root / 'experiments' / record.name}.json {record.damage}")
    records = [record for record in everything if not record.damage]
    if any(record.name == word for record in records):
        return word
    of_experiment = [record for record in records if record.experiment == word]
    if len(of_experiment) == 1:
        log.warning("%s is read from the record %s, the only one of this experiment", word, of_experiment[0].name)
        return of_experiment[0].name
    if of_experiment:
        return _chosen(word, [candidate(store, record) for record in of_experiment]).record.name
    names = {name for record in records for name in (record.name, record.experiment)}
    raise InputError(f"{store.root} holds no experiment {word!r}{suggest(word, names) if names else ''}")


def candidate(store: RunStore, record: ExperimentRecord) -> Candidate:
    """Return the record with the states of its runs, read from their directories."""
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
        log.warning("another record of %s, which may be named instead: %s", word, other)
    return first
