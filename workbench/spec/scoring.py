"""Names and means of scores, in one place, so that reports and tables agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

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
