"""Names and means of scores, in one place, so that reports and tables agree; and the scores that others published."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# The paper's score is the unweighted mean of these eight, without WNLI, and with the matched MNLI (docs/electra.md 5).
GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")
PROBES = ("package", "order", "next", "signature")
LINEAR = tuple(f"linear:{name}" for name in PROBES)  # the same, as linear probes of frozen hidden states
SQUAD = "squad"
# In the order of reports.
SUITES = (
    "glue", "superglue", SQUAD, "babylm", "probes", "pairs", "blimp", "minimal-pairs", "linear", "tagging", "table",
    "similarity", "retrieval",
)  # fmt: skip
# Suites whose tasks can be given as paths of files.
FROM_PATHS = ("minimal-pairs", "linear", "tagging", "table", "similarity", "retrieval")
PATH_PREFIXES = ("tag:", "choice:", "spans:", "similarity:", "retrieval:")  # of names under --tasks, before a path
# The parts that a task is tested on; the scores on both are kept. The headline is the score on test if the task has
# test rows, and else on dev, since settings and epochs may have been chosen on dev.
TESTED = ("test", "dev")
EMBEDDINGS = ("similarity", "retrieval")
ZERO_SHOT = ("pairs", "blimp", "minimal-pairs")  # suites for which no weights are trained
# Suites that measure an arm by a scorer of its own objective, which each score names: they treat arms alike only where
# all have one scorer. Every other suite reads all encoders in the same way.
OWN_SCORERS = ZERO_SHOT
# Measures as people say them; those of single tasks are named with the task.
SPOKEN = {
    "glue": "GLUE", "superglue": "SuperGLUE", SQUAD: "SQuAD", "babylm": "BabyLM\u2019s fine-tuning",
    "probes": "fine-tuned probes", "pairs": "minimal pairs", "blimp": "BLiMP", "minimal-pairs": "minimal pairs",
    "linear": "linear probes", "tagging": "tagging", "table": "fine-tuning on a table",
    "similarity": "text similarity", "retrieval": "retrieval",
}  # fmt: skip


def place_of(suite: str) -> tuple[int, str]:
    """Return the key by which suites are sorted."""
    return (SUITES.index(suite) if suite in SUITES else len(SUITES), suite)


def score_file(task: str, digest: str, seed: int) -> str:
    """Return the name of the file that holds a task's score under one fine-tuning setting and seed."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", task).strip("-") or "task"
    return f"{slug[:80]}-{digest}-{seed}.json"


def counted(suite: str, tasks: Iterable[str]) -> tuple[str, ...]:
    """Return the tasks that enter the mean of a suite, in a fixed order.

    If all eight tasks of GLUE are there, no others such as QNLI-devsplit enter; WNLI enters only if it is alone.
    """
    names = list(dict.fromkeys(tasks))
    if suite == "glue":
        if all(name in names for name in GLUE):
            return GLUE
        names = [name for name in names if name != "WNLI"] or names
    order = {"glue": GLUE, "probes": PROBES, "linear": LINEAR}.get(suite, ())
    return tuple(sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name)))


def score_label(suite: str, tasks: Iterable[str]) -> str:
    """Return the label of a mean: "GLUE", "probe score" or "linear probe score" for a whole suite, else its tasks."""
    names = counted(suite, tasks)
    whole = {("glue", GLUE): "GLUE", ("probes", PROBES): "probe score", ("linear", LINEAR): "linear probe score"}
    return whole.get((suite, names)) or label_of_tasks(names)


def label_of_tasks(names: Sequence[str]) -> str:
    """Return the label of a mean over some tasks of a suite, which names them: `RTE`, `mean of CoLA, RTE`."""
    return names[0] if len(names) == 1 else "mean of " + ", ".join(names)


def spoken(suite: str, tasks: Sequence[str]) -> str:
    """Return a measure as people say it: `GLUE`, or with its only task `linear probes (linear:next)`."""
    name = SPOKEN.get(suite, suite)
    return name if len(tasks) != 1 or tasks[0] == suite else f"{name} ({tasks[0]})"


def mean_score(suite: str, values: Mapping[str, float]) -> tuple[str, float]:
    """Return the label and the unweighted mean of headline values by task. Raises ValueError if there are none."""
    names = counted(suite, values)
    if not names:
        raise ValueError(f"no scores of {suite} to average")
    return score_label(suite, values), sum(values[name] for name in names) / len(names)


# ----------------------------------------
# Published results for comparison: numbers as printed in Clark et al. 2020, arXiv 2003.10555v1.
#
# GLUE is the unweighted mean of eight development scores (without WNLI), each the median of ten fine-tunings from one
# pre-trained checkpoint; a spread over pre-training seeds was never published. Values that were printed only as a plot
# (figure 3) or could not be transcribed (table 8) are left out.

PAPER = "Clark et al. 2020 (arXiv 2003.10555v1)"


class Point(NamedTuple):
    """A published model with its score and its training FLOPs under the paper's convention, NaN if not stated.

    The score is on GLUE's development sets as printed, or was measured here in the run `run_id`.
    """

    name: str
    score: float
    flops: float
    source: str
    run_id: str = ""


class Column(NamedTuple):
    """Published scores to be shown beside ours, by arm."""

    title: str
    scores: Mapping[str, float]
    source: str


# The released script gives ELMo 3.41e18, and ELECTRA-Small 1.29e18: the printed compute of ELECTRA-Small fits a
# generator of half the encoder's width, not the quarter of table 6 and the script. BERT-Small is the paper's own.
POINTS: tuple[Point, ...] = (
    *(Point(*row, f"{PAPER}, table 1") for row in (
        ("ELMo", 71.2, 3.3e18), ("GPT", 78.8, 4.0e19), ("BERT-Small", 75.1, 1.4e18), ("BERT-Base", 82.2, 6.4e19),
        ("ELECTRA-Small, 6.25 %", 74.1, 8.9e16), ("ELECTRA-Small, 12.5 %", 76.0, 1.8e17),
        ("ELECTRA-Small, 25 %", 77.7, 3.6e17), ("ELECTRA-Small, 50 %", 79.0, 7.1e17), ("ELECTRA-Small", 79.9, 1.4e18),
        ("ELECTRA-Base", 85.1, 6.4e19),
    )),
    *(Point(*row, f"{PAPER}, table 2") for row in (
        ("BERT-Large", 84.0, 1.9e20), ("BERT-Large, theirs", 87.2, 7.1e20), ("RoBERTa-100K", 87.9, 6.4e20),
        ("RoBERTa-500K", 88.9, 3.2e21), ("XLNet-Large", 89.1, 3.9e21), ("ELECTRA-400K", 89.0, 7.1e20),
        ("ELECTRA-1.75M", 89.5, 3.1e21),
    )),
)  # fmt: skip

# F1 on the development sets of SQuAD 1.1 and 2.0, None where it is not printed, and training FLOPs.
SQUAD_F1: dict[str, tuple[float | None, float | None, float]] = {
    "BERT-Base": (88.5, None, 6.4e19), "BERT-Large": (90.9, 81.8, 1.9e20), "SpanBERT": (94.6, 88.7, 7.1e20),
    "XLNet-Large": (95.1, 90.6, 3.9e21), "RoBERTa-100K": (94.0, 87.7, 6.4e20), "RoBERTa-500K": (94.6, 89.4, 3.2e21),
    "ALBERT": (94.8, 90.2, 3.1e22), "BERT-Large, theirs": (93.7, 87.5, 7.1e20), "ELECTRA-Base": (90.8, 83.3, 6.4e19),
    "ELECTRA-400K": (94.2, 89.6, 7.1e20), "ELECTRA-1.75M": (94.9, 90.6, 3.1e21),
}  # fmt: skip


def points_of(label: str, tasks: Iterable[str]) -> tuple[Point, ...]:
    """Return the paper's results that are comparable with a mean of this label over these tasks: of GLUE, or of SQuAD.

    Beside a mean over both versions of SQuAD stand the models with F1 on both. A part of a dev set has no results.
    """
    columns = [("squad1", "squad2").index(task) if task in ("squad1", "squad2") else -1 for task in tasks]
    if not columns or -1 in columns:
        return POINTS if label == "GLUE" else ()
    points = []
    for name, (*scores, flops) in SQUAD_F1.items():
        numbers = [score for column in columns if (score := scores[column]) is not None]
        if len(numbers) == len(columns):
            points.append(Point(name, sum(numbers) / len(numbers), flops, f"{PAPER}, table 4"))
    return tuple(points)


# GLUE development means of eight tasks at Base size, without a spread over pre-training seeds. The steps of each arm of
# table 5 are not given; in section 3.2 the generator is as large as the discriminator, over 500,000 steps.
_BESIDE = {
    "objective": Column(
        "Paper, table 5",
        {"rtd": 85.0, "all-tokens-mlm": 84.3, "replace-mlm": 82.4, "electra-15": 82.4, "bert-mlm": 82.2},
        f"{PAPER}, table 5",
    ),
    "tying": Column("Paper, section 3.2", {"none": 83.6, "tokens": 84.3, "all": 84.4}, f"{PAPER}, section 3.2"),
}


def beside(axis: str, arms: Iterable[str]) -> Column | None:
    """Return the paper's numbers for an experiment along an axis if it has them for at least two of the arms."""
    column = _BESIDE.get(axis)
    return column if column is not None and len(column.scores.keys() & set(arms)) > 1 else None


# Statements of the paper on axes for which it printed no table: section 3.2, appendix A, table 6.
_FINDINGS = {
    "generator.width":
        "In the paper, 1/4 to 1/2 of the discriminator is best (section 3.2: GLUE, 500,000 steps for every size, so "
        "not equal compute). Its figure 3 has no numbers, so no curve of it is drawn here.",
    "options.weight": "In the paper, \u03bb is 50, chosen from 1, 10, 20, 50 and 100; it has no scores of the others.",
    "corruption.rate":
        "In the paper, the rate is 15 % for Small and Base and 25 % for Large; it has no scores of others.",
}  # fmt: skip
_ALGORITHMS = (  # section 3.2 and appendix F
    "The paper ranks joint training above two-stage and adversarial training, and adversarial training above BERT "
    "(GLUE, figure 3, right, printed without numbers). Its adversarial generator of 256 hidden units reached 58 % "
    "masked-LM accuracy, the maximum-likelihood one 65 %."
)


def finding(axis: str, arms: Iterable[str] = ()) -> str:
    """Return the paper's statement for an experiment along this axis if no table here has its numbers, else ""."""
    if axis == "objective" and any(word in arm for arm in arms for word in ("two-stage", "adversarial")):
        return _ALGORITHMS
    return _FINDINGS.get(axis, "")


class MinimalPairs(NamedTuple):
    """A published model's mean accuracy over the 67 paradigms of BabyLM's filtered BLiMP, in %.

    `data` is the number of words of its training text.
    """

    year: int
    data: str
    name: str
    blimp: float
    source: str


# Only the organisers' own baselines since 2024, which use the same filter and mean; 2023 had other tasks.
_SOURCES = {
    2024: "babylm/evaluation-pipeline-2024 at d680c28, README",
    2025: "babylm/evaluation-pipeline-2025 at bf55c11, README, in a comment",
    2026: "babylm-org/babylm-eval at 45fe2c1, README",
}
BABYLM = tuple(MinimalPairs(*row, _SOURCES[row[0]]) for row in (
    (2024, "10M", "BabyLlama", 69.8), (2024, "10M", "LTG-BERT", 60.6), (2024, "100M", "BabyLlama", 73.1),
    (2024, "100M", "LTG-BERT", 69.2), (2025, "10M", "GPT-2", 67.29), (2025, "10M", "GPT-BERT, mixed", 69.62),
    (2025, "100M", "GPT-2", 75.07), (2025, "100M", "GPT-BERT, mixed", 78.37), (2026, "10M", "GPT-2", 65.08),
    (2026, "100M", "GPT-2", 74.53),
))  # fmt: skip
BABYLM_NOTE = (
    "Those are single runs of larger encoders and decoders, trained for longer than most runs here. In the pipeline of "
    "2025 a tie counted as right, and a scorer that uses no context gives a tie for a fifth of the pairs"
)
