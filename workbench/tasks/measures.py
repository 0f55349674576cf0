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
from workbench.tasks.common.contract import Progress, Score, score_name
from workbench.tasks.common.examples import Measure, Suite, Task
from workbench.tasks.embeddings import Embedding
from workbench.tasks.linear_probe import LinearProbe
from workbench.tasks.minimal_pairs import PairSet
from workbench.tasks.squad import Squad
from workbench.tasks.tagging import Tagging

if TYPE_CHECKING:
    from workbench.tasks.common.fine_tuning import Unfinished
    from workbench.training.ranks import Ranks


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
        from workbench.tasks.common.classification import finetune

        return finetune(encoder, measure, spec, seed, host, progress, unfinished)
    if isinstance(measure, Tagging):
        from workbench.tasks._tagger import tag

        return tag(encoder, measure, spec, seed, host, progress, unfinished)
    if isinstance(measure, LinearProbe):
        from workbench.tasks._linear_readout import probe

        return probe(encoder, measure, spec, seed, host, progress)
    if isinstance(measure, Embedding) and measure.train is not None:
        from workbench.tasks._embedding_vectors import tune_and_embed

        return tune_and_embed(encoder, measure, spec, seed, host, progress, unfinished)
    if isinstance(measure, Embedding):
        from workbench.tasks._embedding_vectors import embed

        return embed(encoder, measure, spec, seed, host, progress)
    if isinstance(measure, PairSet):
        from workbench.tasks._preferences import zero_shot
        from workbench.training.ranks import ALONE

        return zero_shot(encoder, measure, spec, seed, host, progress, ranks or ALONE)
    if isinstance(measure, Squad):
        from workbench.tasks._squad_answers import answer

        return answer(encoder, measure, spec, seed, host, progress, unfinished)
    raise TypeError(f"no function measures a {type(measure).__name__}")


def expected(suite: Suite, spec: TasksSpec) -> Iterator[tuple[Measure, int, str]]:
    """Yield each score that a run should have: its measure, its seed and the name of its file."""
    for measure in suite.tasks:
        for seed in range(measure.seeds(spec)):
            yield measure, seed, score_name(measure, spec, seed)
