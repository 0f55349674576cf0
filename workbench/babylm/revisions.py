"""BabyLM's revisions of a model, `main` and `chck_1M` to `chck_1000M`, and the weights of a run that belong to each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.spec.words_seen import MILLION, words_of_tokens
from workbench.store.run_directory import RunDir
from workbench.training.snapshots import WORDS, mark_of_words

SMALL = (*range(1, 10), *range(10, 101, 10))  # millions of words seen, of the track strict-small
STRICT = (*SMALL, *range(200, 1001, 100))
MARKS = {mark_of_words(amount): amount // MILLION for amount in WORDS}  # of points kept by `--evaluate-at words`


@dataclass(frozen=True)
class Revision:
    """One of BabyLM's revisions of a model, such as `chck_10M`, and where its weights are in the run's folder.

    `place` is "" for the end of training, else "points/STEP/".
    """

    name: str
    place: str

    def folder(self, run: RunDir) -> Path:
        """Return the folder that holds `encoder`, `heads` and `scores` of this revision."""
        return run.path / self.place


def revisions(run: RunDir) -> list[Revision]:
    """Return the revisions for which a trained run has weights, `main` first, then in the order of words seen."""
    places = {millions: place for place, millions in _kept(run)}
    if (last := _at_end(run)) is not None:
        places[last] = ""
    return [Revision("main", ""), *(Revision(f"chck_{count}M", places[count]) for count in sorted(places))]


def missing(run: RunDir) -> list[str]:
    """Return the revisions for which a run has no weights, up to the number of words that it was trained on."""
    names = {revision.name for revision in revisions(run)}
    most = seen(run) / MILLION
    return [f"chck_{count}M" for count in STRICT if count <= most and f"chck_{count}M" not in names]


def track(run: RunDir) -> tuple[str, ...]:
    """Return all revisions of the run's track: strict-small up to 100 million words seen, else strict."""
    small = seen(run) < 101 * MILLION
    return tuple(f"chck_{count}M" for count in (SMALL if small else STRICT))


def seen(run: RunDir) -> float:
    """Return the number of words that a run was trained on, 0 if the words of its text were not counted."""
    spec = run.spec()
    return words_of_tokens(run.read_json("done.json")["tokens"], spec.data) if spec.data.words else 0.0


def _kept(run: RunDir) -> list[tuple[str, int]]:
    """Return place and millions of words of each point of the schedule `words`."""
    marks = ((place, run.read_json(place + "point.json")["mark"]) for place in run.points())
    return [(place, MARKS[mark]) for place, mark in marks if mark in MARKS]


def _at_end(run: RunDir) -> int | None:
    """Return the millions of words of the revision that is the end of training; None if there is none.

    One step more would go beyond that number of words.
    """
    spec, words = run.spec(), seen(run)
    if not words:
        return None
    step = words_of_tokens(spec.batch.size * spec.data.length, spec.data)
    return next((count for count in STRICT if words <= count * MILLION * (1 + 1e-12) < words + step), None)
