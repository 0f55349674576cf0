"""Published results for comparison: numbers as printed in Clark et al. 2020, arXiv 2003.10555v1.

GLUE is the unweighted mean of eight development scores (without WNLI), each the median of ten fine-tunings from one
pre-trained checkpoint; a spread over pre-training seeds was never published. Values that were printed only as a plot
(figure 3) or could not be transcribed (table 8) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MEASURED = "measured here"
PAPER = "Clark et al. 2020 (arXiv 2003.10555v1)"


@dataclass(frozen=True)
class Point:
    """A published model with its score and its training FLOPs under the paper's convention, NaN if not stated.

    The score is that of GLUE's development sets as printed, or for the family MEASURED one that was taken here, in the
    run `run_id`.
    """

    name: str
    family: str
    score: float
    flops: float
    source: str
    note: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class Column:
    """Published scores to be shown beside ours, by arm; `base` is the arm with which the others are compared."""

    title: str
    scores: Mapping[str, float]
    base: str
    source: str
    note: str


_HALF = (
    "the printed compute fits a generator of half the encoder's width, not the quarter of table 6 and the released "
    "script (1.29e18)"
)

POINTS: tuple[Point, ...] = (
    *(
        Point(name, family, glue, flops, f"{PAPER}, table 1", note)
        for name, family, glue, flops, note in (
            ("ELMo", "other", 71.2, 3.3e18, "the released script gives 3.41e18"),
            ("GPT", "other", 78.8, 4.0e19, ""),
            ("BERT-Small", "BERT", 75.1, 1.4e18, "the paper's own"),
            ("BERT-Base", "BERT", 82.2, 6.4e19, ""),
            ("ELECTRA-Small, 6.25 %", "ELECTRA", 74.1, 8.9e16, _HALF),
            ("ELECTRA-Small, 12.5 %", "ELECTRA", 76.0, 1.8e17, _HALF),
            ("ELECTRA-Small, 25 %", "ELECTRA", 77.7, 3.6e17, _HALF),
            ("ELECTRA-Small, 50 %", "ELECTRA", 79.0, 7.1e17, _HALF),
            ("ELECTRA-Small", "ELECTRA", 79.9, 1.4e18, _HALF),
            ("ELECTRA-Base", "ELECTRA", 85.1, 6.4e19, ""),
        )
    ),
    *(
        Point(name, family, glue, flops, f"{PAPER}, table 2", "")
        for name, family, glue, flops in (
            ("BERT-Large", "BERT", 84.0, 1.9e20),
            ("BERT-Large, theirs", "BERT", 87.2, 7.1e20),
            ("RoBERTa-100K", "other", 87.9, 6.4e20),
            ("RoBERTa-500K", "other", 88.9, 3.2e21),
            ("XLNet-Large", "other", 89.1, 3.9e21),
            ("ELECTRA-400K", "ELECTRA", 89.0, 7.1e20),
            ("ELECTRA-1.75M", "ELECTRA", 89.5, 3.1e21),
        )
    ),
)

# F1 on the development sets of SQuAD 1.1 and 2.0; a model whose F1 is printed for one of them alone has None.
SQUAD_F1: dict[str, tuple[str, float | None, float | None, float]] = {
    "BERT-Base": ("BERT", 88.5, None, 6.4e19),
    "BERT-Large": ("BERT", 90.9, 81.8, 1.9e20),
    "SpanBERT": ("other", 94.6, 88.7, 7.1e20),
    "XLNet-Large": ("other", 95.1, 90.6, 3.9e21),
    "RoBERTa-100K": ("other", 94.0, 87.7, 6.4e20),
    "RoBERTa-500K": ("other", 94.6, 89.4, 3.2e21),
    "ALBERT": ("other", 94.8, 90.2, 3.1e22),
    "BERT-Large, theirs": ("BERT", 93.7, 87.5, 7.1e20),
    "ELECTRA-Base": ("ELECTRA", 90.8, 83.3, 6.4e19),
    "ELECTRA-400K": ("ELECTRA", 94.2, 89.6, 7.1e20),
    "ELECTRA-1.75M": ("ELECTRA", 94.9, 90.6, 3.1e21),
}


def points_of(label: str, tasks: Iterable[str]) -> tuple[Point, ...]:
    """Return the paper's results that are comparable with a mean of this label over these tasks: of GLUE, or of SQuAD.

    Beside a mean over both versions of SQuAD stand the models with F1 on both. A part of a dev set has no results.
    """
    columns = [("squad1", "squad2").index(task) if task in ("squad1", "squad2") else -1 for task in tasks]
    if not columns or -1 in columns:
        return POINTS if label == "GLUE" else ()
    points = []
    for name, (family, *scores, flops) in SQUAD_F1.items():
        chosen = [scores[column] for column in columns]
        numbers = [score for score in chosen if score is not None]
        if len(numbers) == len(chosen):
            mean = sum(numbers) / len(numbers)
            points.append(Point(name, family, mean, flops, f"{PAPER}, table 4", "F1"))
    return tuple(points)


TABLE_5 = Column(
    title="Paper, table 5",
    scores={"rtd": 85.0, "all-tokens-mlm": 84.3, "replace-mlm": 82.4, "electra-15": 82.4, "bert-mlm": 82.2},
    base="bert-mlm",
    source=f"{PAPER}, table 5",
    note="GLUE development mean of eight tasks, measured at Base size (12 layers of 768); the steps of each arm and a "
    "spread over pre-training seeds are not given",
)

WEIGHT_TYING = Column(
    title="Paper, section 3.2",
    scores={"none": 83.6, "tokens": 84.3, "all": 84.4},
    base="none",
    source=f"{PAPER}, section 3.2",
    note="GLUE development mean of eight tasks, measured at Base size with a generator as large as the discriminator, "
    "500,000 steps; no spread is given",
)


@dataclass(frozen=True)
class MinimalPairs:
    """A published model's mean accuracy over the 67 paradigms of BabyLM's filtered BLiMP, in %.

    `data` is the number of words of its training text.
    """

    name: str
    year: int
    data: str
    blimp: float
    source: str


def _babylm(year: int, source: str, rows: Mapping[str, Mapping[str, float]]) -> tuple[MinimalPairs, ...]:
    """Return the models of one year, given as amount of data -> model -> accuracy."""
    return tuple(MinimalPairs(name, year, data, value, source) for data in rows for name, value in rows[data].items())


# Only the organisers' own baselines since 2024, which use the same filter and mean; 2023 had other tasks.
BABYLM: tuple[MinimalPairs, ...] = (
    *_babylm(
        2024,
        "babylm/evaluation-pipeline-2024 at d680c28, README",
        {"10M": {"BabyLlama": 69.8, "LTG-BERT": 60.6}, "100M": {"BabyLlama": 73.1, "LTG-BERT": 69.2}},
    ),
    *_babylm(
        2025,
        "babylm/evaluation-pipeline-2025 at bf55c11, README, in a comment",
        {"10M": {"GPT-2": 67.29, "GPT-BERT, mixed": 69.62}, "100M": {"GPT-2": 75.07, "GPT-BERT, mixed": 78.37}},
    ),
    *_babylm(2026, "babylm-org/babylm-eval at 45fe2c1, README", {"10M": {"GPT-2": 65.08}, "100M": {"GPT-2": 74.53}}),
)
BABYLM_NOTE = (
    "Those are single runs of larger encoders and decoders, trained for longer than most runs here. In the pipeline of "
    "2025 a tie counted as right, and a scorer that uses no context gives a tie for a fifth of the pairs"
)


@dataclass(frozen=True)
class Finding:
    """A statement of the paper about an axis for which it printed no table.

    `span` is the range of values on the axis that the paper found or chose, and `mark` is its label in a figure.
    """

    text: str
    source: str
    span: tuple[float, float] | None = None
    mark: str = ""


_FINDINGS = {
    "generator.width": Finding(
        "grey: the paper\u2019s best range, 1/4 to 1/2 of the discriminator (its section 3.2: GLUE, 500,000 steps for "
        "every size, so not equal compute). Its figure 3 was printed without numbers, so no curve of it is drawn here",
        f"{PAPER}, section 3.2",
        (0.25, 0.5),
        "paper\u2019s best",
    ),
    "options.weight": Finding(
        "grey: the paper\u2019s choice, 50, out of 1, 10, 20, 50 and 100; it gives no scores for the others",
        f"{PAPER}, appendix A",
        (50, 50),
        "paper\u2019s choice",
    ),
    "corruption.rate": Finding(
        "grey: the paper\u2019s rates, 15 % for Small and Base and 25 % for Large; it gives no scores for others",
        f"{PAPER}, table 6",
        (0.15, 0.25),
        "paper\u2019s rates",
    ),
}
_ALGORITHMS = Finding(
    "The paper ranks joint training above two-stage and adversarial training, and adversarial training above BERT "
    "(GLUE, figure 3, right, printed without numbers). Its adversarial generator of 256 hidden units reached 58 % "
    "masked-LM accuracy, the maximum-likelihood one 65 %.",
    f"{PAPER}, section 3.2 and appendix F",
)


def finding(axis: str, arms: Iterable[str] = ()) -> Finding | None:
    """Return the paper's statement for an experiment along this axis if its numbers are in no table here, else None."""
    if axis == "objective" and any(word in arm for arm in arms for word in ("two-stage", "adversarial")):
        return _ALGORITHMS
    return _FINDINGS.get(axis)


_BESIDE = {"objective": TABLE_5, "tying": WEIGHT_TYING}


def beside(axis: str, arms: Iterable[str]) -> Column | None:
    """Return the paper's numbers for an experiment along an axis (a key of the spec), or None.

    Numbers are returned only if the paper has them for at least two of the arms.
    """
    column = _BESIDE.get(axis)
    return column if column is not None and len(column.scores.keys() & set(arms)) > 1 else None
