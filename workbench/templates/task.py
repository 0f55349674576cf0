"""NAME: which of three words is of another topic than the other two. This line is for people who open the file.

A kind of task is a file with two functions, `names` and `load`. Commands with --tasks measure it:

    workbench check FILE
    workbench run ablation --objective rtd --tasks FILE
    workbench evaluate DIR --tasks FILE:NAME_,CoLA

The hash of the file is part of the settings of its scores, so scores are taken again once the file changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.models import flops
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.tasks import Cost, HeldOut, Measure, Model, Scores

TOPICS = {
    "fruit": ("apple", "pear", "plum", "cherry", "lemon"),
    "tools": ("hammer", "saw", "drill", "chisel", "wrench"),
    "animals": ("horse", "cow", "sheep", "goat", "rabbit"),
}
LENGTH = 4  # tokens of a word at most, with [CLS] and [SEP]; for the price alone


def names() -> list[tuple[str, str, str, str]]:
    """Return for each name under --tasks: the name, the suite of its scores, the headline metric, a short summary.

    A report averages the tasks of a suite, and shows a suite of one's own beside GLUE and the others.
    """
    return [("NAME_", "NAME_", "accuracy", "which of three words is of another topic; nothing is trained")]


def load(names: Sequence[str], options: TasksSpec, text: HeldOut | None) -> list[Measure]:
    """Return the measure of each name that was chosen; `options` are the settings `tasks.KEY` of the command.

    To fine-tune on texts with labels, return `workbench.tasks.Task` with your rows as `Examples`, and write
    `trains = True` into the file: fine-tuning, baselines, price and metrics are there already.
    """
    triples = [
        (one[place], one[place - 1], other[place])
        for first, one in TOPICS.items()
        for second, other in TOPICS.items()
        if first != second
        for place in range(len(one))
    ]
    return [OddOneOut(triples)]


class OddOneOut(Measure):
    """Triples of two words of one topic and a third word; the third should have the least similar embedding."""

    name = suite = "NAME_"
    metric = "accuracy"  # the headline metric, from 0 to 100
    act = "comparing"  # in messages; measures that train weights have `FINE_TUNING`, and are taken at the end alone
    fingerprint = "1"  # of the data; here the hash of this file says it all

    def __init__(self, triples: list[tuple[str, str, str]]) -> None:
        self.triples = triples

    def settings(self, options: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score; scores with other settings are other scores."""
        return {"length": options.length}

    def baselines(self, cache: Path | None = None) -> Mapping[str, float]:
        """Return what needs no encoder, as reports show it beside the scores."""
        return {"chance": 100 / 3}

    def cost(self, spec: RunSpec, options: TasksSpec, tokenizer: Path) -> Cost:
        """Return the price of one score, which decides how often it is taken during training."""
        return Cost(3 * len(self.triples) * flops.encoder(spec.encoder, LENGTH).matmul)

    def measure(self, model: Model, host: Host) -> Scores:
        """Return the accuracy, times 100, of the encoder in the folder `model.folder`."""
        vectors = model.vectors([word for triple in self.triples for word in triple], host)  # (words, D), of norm 1
        right = 0
        for start in range(0, len(vectors), 3):
            one, same, odd = vectors[start : start + 3]
            right += int(one @ same > max(one @ odd, same @ odd))
        return Scores({"test": {"accuracy": 100 * right / len(self.triples)}}, rows=(0, len(self.triples)))
