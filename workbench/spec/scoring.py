"""What scores and their means are called. Pure arithmetic, so that reports and tables say the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# The paper's score: the unweighted mean of these eight; WNLI is left out, MNLI counts as matched (docs/electra.md 5).
GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")
PROBES = ("package", "order", "next", "signature")
LINEAR = tuple(f"linear:{name}" for name in PROBES)  # the same, read out of frozen states
SUITES = ("glue", "babylm", "probes", "pairs", "blimp", "minimal-pairs", "linear", "table")  # in the order of reports
FROM_PATHS = ("minimal-pairs", "linear", "table")  # suites whose tasks are named by paths
ZERO_SHOT = ("pairs", "blimp", "minimal-pairs")  # suites that nothing is trained for


def place_of(suite: str) -> tuple[int, str]:
    """Return what suites are sorted by."""
    return (SUITES.index(suite) if suite in SUITES else len(SUITES), suite)


def score_file(task: str, digest: str, seed: int) -> str:
    """Return the name of the file that holds a task's score under one fine-tuning setting and seed."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", task).strip("-") or "task"
    return f"{slug[:80]}-{digest}-{seed}.json"


def counted(suite: str, tasks: Iterable[str]) -> tuple[str, ...]:
    """The tasks that enter the mean, in a fixed order.

    With all eight there, a stand-in such as QNLI-devsplit does not join them; WNLI counts only when it is alone.
    """
    asked = list(dict.fromkeys(tasks))
    if suite == "glue":
        if all(name in asked for name in GLUE):
            return GLUE
        asked = [name for name in asked if name != "WNLI"] or asked
    order = {"glue": GLUE, "probes": PROBES, "linear": LINEAR}.get(suite, ())
    return tuple(sorted(asked, key=lambda name: (order.index(name) if name in order else len(order), name)))


def score_label(suite: str, tasks: Iterable[str]) -> str:
    """ "GLUE", "probe score" and "linear probe score" only for the whole suite, else the tasks by name."""
    names = counted(suite, tasks)
    if suite == "glue" and names == GLUE:
        return "GLUE"
    if suite == "probes" and names == PROBES:
        return "probe score"
    if suite == "linear" and names == LINEAR:
        return "linear probe score"
    return names[0] if len(names) == 1 else "mean of " + ", ".join(names)


def mean_score(suite: str, values: Mapping[str, float]) -> tuple[str, float]:
    """The label and the unweighted mean of headline values by task. Raises ValueError when there are none."""
    names = counted(suite, values)
    if not names:
        raise ValueError(f"no scores of {suite} to average")
    return score_label(suite, values), sum(values[name] for name in names) / len(names)
