"""The function that carries out each kind of measure.

To add a kind, write a frozen dataclass with the members of `task.Measure` and a function with the arguments of
`take`, add a line for it to `take`, and let `tasks.load` read its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings.embedding_task import Embedding
from workbench.tasks.linear.problem import LinearProbe
from workbench.tasks.score import Progress, Score, score_name
from workbench.tasks.squad.questions import Squad
from workbench.tasks.tagging.tagging_task import Tagging
from workbench.tasks.task import Measure, Suite, Task
from workbench.tasks.zero_shot.minimal_pairs import PairSet

if TYPE_CHECKING:
    from workbench.tasks.finetuning.unfinished import Unfinished
    from workbench.training.distributed import Ranks


def take(
    encoder: Path, measure: Measure, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None,
    unfinished: Unfinished | None = None, ranks: Ranks | None = None,
) -> Score:  # fmt: skip
    """Measure the encoder in a folder and return its score; a fine-tuning goes on from the state in `unfinished`.

    If the encoder belongs to a run, it must be in its place in the run's folder, as some measures read what
    training left beside it. Minimal pairs are scored by all processes of `ranks`, if given. Raises InputError for a
    folder that cannot be measured, Diverged if numbers are not finite.
    """
    if isinstance(measure, Task):
        from workbench.tasks.finetuning.finetune import finetune

        return finetune(encoder, measure, spec, seed, host, progress, unfinished)
    if isinstance(measure, Tagging):
        from workbench.tasks.tagging.tagger import tag

        return tag(encoder, measure, spec, seed, host, progress, unfinished)
    if isinstance(measure, LinearProbe):
        from workbench.tasks.linear.measure import probe

        return probe(encoder, measure, spec, seed, host, progress)
    if isinstance(measure, Embedding) and measure.train is not None:
        from workbench.tasks.embeddings.contrastive import tune_and_embed

        return tune_and_embed(encoder, measure, spec, seed, host, progress, unfinished)
    if isinstance(measure, Embedding):
        from workbench.tasks.embeddings.embed import embed

        return embed(encoder, measure, spec, seed, host, progress)
    if isinstance(measure, PairSet):
        from workbench.tasks.zero_shot.preferences import zero_shot
        from workbench.training.distributed import ALONE

        return zero_shot(encoder, measure, spec, seed, host, progress, ranks or ALONE)
    if isinstance(measure, Squad):
        from workbench.tasks.squad.answering import answer

        return answer(encoder, measure, spec, seed, host, progress, unfinished)
    raise TypeError(f"no function measures a {type(measure).__name__}")


def expected(suite: Suite, spec: TasksSpec) -> Iterator[tuple[Measure, int, str]]:
    """Yield each score that a run should have: its measure, its seed and the name of its file."""
    for measure in suite.tasks:
        for seed in range(measure.seeds(spec)):
            yield measure, seed, score_name(measure, spec, seed)
