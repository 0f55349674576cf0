"""Warnings of training that collapsed, by the last tenth of the log of each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from workbench.report.comparison import reached
from workbench.report.formatting import listing
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED

# A metric, whether its value means a collapse on any text, and the sentence on it.
COLLAPSES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    (
        "discriminator_recall",
        lambda v: v < 0.01,
        "the discriminator detects less than 1 % of the replaced tokens (it nearly always predicts the majority class)",
    ),
    (
        "discriminator_positive_rate",
        lambda v: v < 0.001 or v > 0.999,
        "the discriminator gives the same answer for at least 999 tokens in 1,000",
    ),
    (
        "generator_entropy",
        lambda v: v < 0.05,
        "the generator\u2019s entropy is below 0.05 nats, so it nearly always writes the same token",
    ),
)


def collapsed(frames: Frames) -> list[str]:
    """Return sentences on finished runs whose training collapsed, by the last tenth of their logs."""
    sentences = reached.sentences(frames)
    finished = {row["run_id"] for row in frames.rows("runs") if row["state"] in FINISHED}
    bad_of: dict[str, list[str]] = {metric: [] for metric, _, _ in COLLAPSES}
    for run_id, rows in frames.logged.items():
        for metric, bad, _ in COLLAPSES if run_id in finished else ():
            if (end := at_end(rows, metric)) is not None and bad(end):
                bad_of[metric].append(run_id)
    for metric, _, sentence in COLLAPSES:
        runs = bad_of[metric]
        if runs:
            sentences.append(f"At the end of training, {sentence} in {listing(runs)}.")
    return sentences


def at_end(rows: Iterable[Mapping[str, float]], metric: str) -> float | None:
    """Return the mean of a metric over the last tenth of its logged values; None if it was not logged."""
    values = [row[metric] for row in rows if metric in row]
    tail = values[-max(1, len(values) // 10) :]
    return sum(tail) / len(tail) if tail else None
