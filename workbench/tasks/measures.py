"""The one place that says how each kind of measure is carried out.

A new kind is a frozen dataclass with the members of `task.Measure`, a function that takes the same arguments as
`take`, and a line there; `tasks.load` reads its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.score import Progress, Score, score_name
from workbench.tasks.task import Measure, Suite, Task
from workbench.tasks.zero_shot.minimal_pairs import PairSet


def take(
    encoder: Path, measure: Measure, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None
) -> Score:
    """Measure the encoder in a folder.

    Of a run the folder is `encoder`, beside the rest of what training left. Raises InputError for a folder that cannot
    be measured, Diverged where numbers are not finite.
    """
    if isinstance(measure, Task):
        from workbench.tasks.finetuning.finetune import finetune

        return finetune(encoder, measure, spec, seed, host, progress)
    if isinstance(measure, LinearProbe):
        from workbench.tasks.linear.measure import probe

        return probe(encoder, measure, spec, seed, host, progress)
    if isinstance(measure, PairSet):
        from workbench.tasks.zero_shot.preferences import zero_shot

        return zero_shot(encoder, measure, spec, seed, host, progress)
    raise TypeError(f"nothing is known of how to measure {type(measure).__name__}")


def expected(suite: Suite, spec: TasksSpec) -> Iterator[tuple[Measure, int, str]]:
    """Yield each score that a run is to have: its measure, its seed and the name of its file."""
    for measure in suite.tasks:
        for seed in range(measure.seeds(spec)):
            yield measure, seed, score_name(measure, spec, seed)
