"""The contract of a kind of task: what a file of this folder, an installed package or a file of one's own provides.

A kind of task is a module with `names` and `load` (`Kind`). It loads measures (`Measure`); each gives one
score of an encoder, or one for each fine-tuning seed. Everything in which kinds differ is a member of these two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from workbench import __version__
from workbench.spec.host import Host
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.spec.run_spec import RunSpec, digest
from workbench.spec.scoring import score_file
from workbench.store.run_directory import RunDir

if TYPE_CHECKING:
    from workbench.tasks.common.fine_tuning import Unfinished
    from workbench.training.distributed import Ranks

FINE_TUNING = "fine-tuning"
MOST_ITEMS = 10_000  # test items whose results a score keeps; of more, another sample would hardly change an accuracy
# What the readers of a setting `tasks.NAME` are called; all others are settings of fine-tuning.
READERS = {
    **dict.fromkeys(("text", "pair", "label"), "tables of your own"),
    **dict.fromkeys(("kind", "metric", "folds"), "tables of your own with a label in each row"),
    "glue": "tasks of GLUE",
    "blimp": "blimp and its variants",
    "babylm": "tasks of BabyLM",
    "superglue": "tasks of SuperGLUE",
    "tagging": "the tasks ner-dane and conll2003",
    **dict.fromkeys(("squad", "squad_head", "squad_length", "squad_stride"), "tasks of SQuAD"),
    "scorers": "minimal pairs",
    "embeddings": "similarity and retrieval",
    "control": "linear probes",
    "at": "tasks without fine-tuning",
    "length": "tasks that read texts in rows",
    "rows": "tasks that learn from rows",
    "held_out": "tasks",
    "lm_weight": FINE_TUNING,
}
TUNING = frozenset(TasksSpec.model_fields) - {"names", *READERS}  # settings of every fine-tuning
OF_TEXTS = frozenset({*TUNING, "length", "rows", "held_out", "lm_weight"})  # of fine-tuning on texts

Progress = Callable[[int, int], None]  # step, steps
HeldOut = Callable[[], tuple[DataSpec, Path]]  # returns a corpus and the folder with its prepared text
Name = tuple[str, str, str, str]  # a name under --tasks, the suite of its scores, the headline metric, a short summary


@dataclass(frozen=True)
class Origin:
    """How the run of an encoder measures it (`models.export.add_origin`)."""

    row_length: int  # tokens of a row of pre-training
    scale: str
    tasks: Mapping[str, Any]  # settings of fine-tuning


@dataclass(frozen=True)
class EncoderFacts:
    """Sizes of an encoder, and how it reads texts."""

    layers: int
    hidden: int
    longest: int | None  # tokens that it can read, None if there is no limit
    reads_last: bool  # whether a text is read at its last token
    origin: Origin | None = None  # how its run measures it, None for a model that others trained

    def cut(self, length: int) -> int:
        """Return the tokens of a text that is cut to `length` tokens, or to fewer if the encoder reads fewer."""
        return min(length, self.longest or length)


class Kind(Protocol):
    """A kind of task: a module with `names` and `load`, and where the defaults are wrong with more members.

    A member is a constant, or a function that returns it.

    - `groups`: words under `--tasks`, in lower case, that stand for several names
    - `accepts(word) -> bool`: whether a word under `--tasks` that is none of these selects this kind, by its form
    - `trains`: whether weights of the encoder are trained, False by default; as a function it gets the options
    - `reads`: the settings `tasks.NAME` that are read, none by default; as a function it gets the word and the options
    - `downloads(word, options) -> bool`: whether the data of a word has to be downloaded from the hub
    - `uses_text`: whether the tasks are made from the held-out text of the corpus, False by default
    """

    # What `--tasks` accepts; a name with a capitalised word, such as `tag:FILE`, stands for a form.
    names: Sequence[Name]
    # Returns the measures of some names, as the user wrote them, made with the options and the prepared corpus; in a
    # `Suite` if members of a suite may be missing. Raises InputError for data that cannot be used.
    load: Callable[[Sequence[str], TasksSpec, HeldOut | None], Iterable[Measure]]


class Measure(Protocol):
    """One way of measuring an encoder, as plain data. Subclasses need `cost` and `measure`, and most need `settings`.

    A report averages the scores of a `suite`. `metric` is the headline metric, a number from 0 to 100, and
    `fingerprint` is a hash of all texts and labels. `act` names one measurement in messages; measures that train
    weights have `FINE_TUNING`, and all others are also taken during training.
    """

    name: str
    suite: str
    metric: str
    fingerprint: str
    act: str

    def seeds(self, options: TasksSpec) -> int:
        """Return how many scores a run has: one for each seed of fine-tuning, or one if nothing is trained."""
        return options.seeds if self.act == FINE_TUNING else 1

    def settings(self, options: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score."""
        return {}

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        """Return values of the headline metric that need no encoder, its chance level among them."""
        return {}

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the cost of one score of an encoder of this spec, whose tokenizer is in a folder."""

    def measure(self, model: Model, host: Host) -> Scores:
        """Measure an encoder. Raises InputError if that is impossible, Diverged if numbers are not finite."""

    def reading(self, options: TasksSpec, facts: EncoderFacts) -> tuple[str, dict[str, Any]]:
        """Return how fine-tuning reads its rows, in a phrase, and the facts that `evaluate` adds to its scores.

        Both are empty if nothing is trained. `facts` are sizes and limits of the encoder.
        """
        return "", {}

    def check(self, folder: Path) -> None:
        """Raise InputError if the model in a folder cannot be measured, before anything is written."""
        return None

    def shared(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return how many items several processes can share, and the measure as plain data; None if one takes it.

        The other processes rebuild the measure as `minimal_pairs.PairSet(**data)`.
        """
        return None


@dataclass(frozen=True)
class Model:
    """An encoder that is measured: its folder, the settings of the measurement, and the seed of fine-tuning.

    An encoder that belongs to a run must be in its place in the run's folder, as some measures read what training left
    beside it. `progress` is called with (step, steps). A fine-tuning continues from the state in `unfinished`. Minimal
    pairs are scored by all processes of `ranks`.
    """

    folder: Path
    options: TasksSpec
    seed: int = 0
    progress: Progress | None = None
    unfinished: Unfinished | None = None
    ranks: Ranks | None = None

    def vectors(self, texts: Sequence[str], host: Host, pooling: Literal["mean", "cls"] = "mean") -> Any:
        """Return a vector (N, D) of norm 1 for each text by the frozen encoder; texts are cut to `tasks.length` tokens.

        The vector is the mean of the last states of all tokens, or the state of [CLS]. Raises InputError or Diverged.
        """
        from workbench.tasks._embedding_vectors import embeddings

        return embeddings(self.folder, list(texts), self.options.length, host, self.progress)[pooling]


@dataclass(frozen=True)
class Cost:
    """Cost of one score in FLOPs of matrix products (`flops`, convention `matmul`), training included.

    Measures that train have `steps`, each with some `passes` over its rows, and `lengths`, the tokens of some training
    rows.
    """

    flops: float
    steps: int = 0
    passes: int = 1
    lengths: Sequence[int] = ()


@dataclass(frozen=True)
class Scores:
    """Result of one measurement: the metrics, times 100, of each part; the first part has the headline metric.

    `rows` are the numbers of rows that were trained on, and tested on for the headline metric. `details` become keys of
    the score's file. `files` are kept in `predictions` of a run, under the name of the score's file with the keys as
    endings. `seconds` are counted by the caller if they are None.
    """

    values: Mapping[str, Mapping[str, float]]
    rows: tuple[int, int]
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    steps: int = 0
    seconds: float | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True)
class Suite:
    """Measures that were selected; `missing` maps each that is not available to where it was looked for."""

    tasks: tuple[Measure, ...]
    missing: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Measure]:
        return iter(self.tasks)


@dataclass(frozen=True)
class Score:
    """Score of one encoder by one measure, as its file holds it; all metrics are times 100.

    `value` is the headline metric on the first part of `values`. `seed` is the seed of fine-tuning, 0 if nothing is
    drawn at random. `finetune` holds the settings, whatever the kind of measure.
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


def take(measure: Measure, model: Model, host: Host) -> Score:
    """Measure an encoder and return its score. Raises InputError or Diverged as `Measure.measure` does."""
    begun = time.perf_counter()
    found = measure.measure(model, host)
    seconds = time.perf_counter() - begun if found.seconds is None else found.seconds
    return Score(
        task=measure.name, suite=measure.suite, metric=measure.metric, seed=model.seed,
        value=next(iter(found.values.values()))[measure.metric], values=found.values,
        baselines=dict(measure.baselines()), train_rows=found.rows[0], test_rows=found.rows[1], steps=found.steps,
        seconds=seconds, finetune=measure.settings(model.options), data=measure.fingerprint,
        digest=score_digest(measure, model.options), details=found.details, files=found.files,
        peak_memory_bytes=found.peak_memory_bytes,
    )  # fmt: skip


def expected(suite: Suite, options: TasksSpec) -> Iterator[tuple[Measure, int, str]]:
    """Yield each score that a run should have: its measure, its seed and the name of its file."""
    for measure in suite.tasks:
        for seed in range(measure.seeds(options)):
            yield measure, seed, score_name(measure, options, seed)


def score_digest(measure: Measure, options: TasksSpec) -> str:
    """Return 8 hex digits of a hash over settings and data; scores with equal digests measure the same thing."""
    return digest({"task": measure.name, "data": measure.fingerprint, "finetune": measure.settings(options)}, 8)


def score_name(measure: Measure, options: TasksSpec, seed: int) -> str:
    return score_file(measure.name, score_digest(measure, options), seed)


def items_of(right: Sequence[float]) -> dict[str, str]:
    """Return the fact `items` of a score, a sign for each test item (`as_signs`), if there are at most MOST_ITEMS."""
    return {"items": as_signs(right)} if len(right) <= MOST_ITEMS else {}


def as_signs(right: Sequence[float]) -> str:
    """Return "+" for each item that is right (1), "=" for a half (0.5) and "-" for a wrong one (0)."""
    return "".join("-=+"[round(2 * float(value))] for value in right)


def keep(run: RunDir, name: str, score: Score, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write a score with further facts to the file `name` of a run, after its files; return its content."""
    from workbench.cpu import compiled

    faults = {"kernels_fault": fault} if (fault := compiled.fault()) else {}
    files = {ending: text.encode() for ending, text in score.files.items()}
    return run.write_score(name, {**score.to_json(), **facts, **faults}, files)
