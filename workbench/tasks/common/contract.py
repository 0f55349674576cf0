"""Score of one encoder by one measure of any kind, as its file holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench import __version__
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import digest
from workbench.spec.scoring import score_file
from workbench.store.run_directory import RunDir
from workbench.tasks.common.examples import Measure

Progress = Callable[[int, int], None]  # step, steps


MOST_ITEMS = 10_000  # test items whose results a score keeps; of more, another sample would hardly change an accuracy


def items_of(right: Sequence[float]) -> dict[str, str]:
    """Return the fact `items` of a score: "+" for each test item that is right, "-" for a wrong one, "=" for a half.

    The accuracy is the mean over the items. There is no such fact of more than MOST_ITEMS.
    """
    return {"items": as_signs(right)} if len(right) <= MOST_ITEMS else {}


def as_signs(right: Sequence[float]) -> str:
    """Return a character for each of 1, 0.5 and 0: "+", "=" and "-"."""
    return "".join("-=+"[round(2 * float(value))] for value in right)


@dataclass(frozen=True)
class Score:
    """Result of one measurement; all metrics are times 100.

    `value` is the headline metric on the first part of `values`. `seed` is that of fine-tuning, 0 if nothing is
    drawn at random. `finetune` holds the settings, whatever the kind of measure. `details` are further facts about
    this score; each becomes a key of its file. `files` are texts that are kept in `predictions` of a run: they have the
    name of the score's file with the keys as endings. `peak_memory_bytes` is the peak memory of a process that
    fine-tuned.
    """

    task: str
    suite: str
    metric: str
    seed: int
    value: float
    values: Mapping[str, Mapping[str, float]]
    baselines: Mapping[str, float]
    train_rows: int
    test_rows: int
    steps: int
    seconds: float
    finetune: Mapping[str, Any]
    data: str
    digest: str
    code: str = __version__
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    peak_memory_bytes: int | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the score's file."""
        content = asdict(self)
        del content["files"]
        if self.peak_memory_bytes is None:
            del content["peak_memory_bytes"]
        return {"format": 1, **content, **content.pop("details")}


def score_digest(measure: Measure, spec: TasksSpec) -> str:
    """Return 8 hex digits of a hash over settings and data; scores with equal digests measure the same thing."""
    return digest({"task": measure.name, "data": measure.fingerprint, "finetune": measure.settings(spec)}, 8)


def score_name(measure: Measure, spec: TasksSpec, seed: int) -> str:
    """Return the name of the file of this score."""
    return score_file(measure.name, score_digest(measure, spec), seed)


@dataclass(frozen=True)
class Effort:
    """What a fine-tuning took: steps, seconds, and the peak memory of the process in bytes."""

    steps: int
    seconds: float
    peak_memory_bytes: int


def fine_tuned(
    measure: Measure, spec: TasksSpec, seed: int, values: Mapping[str, Mapping[str, float]], rows: tuple[int, int],
    effort: Effort, details: Mapping[str, Any], files: Mapping[str, str] | None = None,
) -> Score:  # fmt: skip
    """Return the score of a fine-tuning from its metrics, times 100, by part, of which the first has the headline.

    `rows` are the numbers of rows that were trained on, and tested on for the headline metric.
    """
    return Score(
        task=measure.name, suite=measure.suite, metric=measure.metric, seed=seed,
        value=next(iter(values.values()))[measure.metric], values=values, baselines=dict(measure.baselines),
        train_rows=rows[0], test_rows=rows[1], steps=effort.steps, seconds=effort.seconds,
        finetune=measure.settings(spec), data=measure.fingerprint, digest=score_digest(measure, spec),
        details=details, files=files or {}, peak_memory_bytes=effort.peak_memory_bytes,
    )  # fmt: skip


def keep(run: RunDir, name: str, score: Score, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write a score with further facts to the file `name` of a run, after its files; return its content.

    If kernels for the CPU were to be used and could not be compiled, the score holds the reason.
    """
    from workbench.cpu import compiled

    facts = {**facts, **({"kernels_fault": fault} if (fault := compiled.fault()) else {})}
    files = {ending: text.encode() for ending, text in score.files.items()}
    return run.write_score(name, {**score.to_json(), **facts}, files)
