"""Measures that all processes of a run take together, each its share of the items: minimal pairs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import Diverged, InputError
from workbench.execution.several_devices.devices import host_of_each, together
from workbench.spec.host import Host, launched
from workbench.spec.parts import TasksSpec
from workbench.store.run_store import RunDir
from workbench.tasks.common.contract import Measure, Model, take
from workbench.tasks.minimal_pairs import PairSet

if TYPE_CHECKING:
    from workbench.training.ranks import Ranks

WORTH = 10_000  # pairs from which on it pays to start processes, which takes about as long as scoring these on a GPU


@contextlib.contextmanager
def scoring_together(run: RunDir, encoder: str, measure: Measure, tasks: TasksSpec, host: Host) -> Iterator[Ranks]:
    """Yield the processes that take a measure of an encoder, a folder of this run, together: this one alone, if any.

    Only minimal pairs are shared. All processes raise the same errors, so that these do not end the others. Raises
    RankLost as `together` does.
    """
    from workbench.training.ranks import ALONE

    shared = measure.shared() if host.devices > 1 else None
    if shared is None or not is_shared(shared[0], host):
        yield ALONE
        return
    error: Exception | None = None
    scoring = {"encoder": encoder, "pairs": shared[1], "tasks": tasks.model_dump(mode="json")}
    with together(run, host_of_each(host), scoring) as ranks:
        try:
            yield ranks
        except (InputError, Diverged) as raised:
            error = raised
    if error is not None:
        raise error


def is_shared(items: int, host: Host) -> bool:
    """Return whether processes share items: if they run already, or have a GPU each and enough to do to start.

    Processes that are started on a CPU would share its cores, all of which the first process uses alone.
    """
    if host.devices == 1:
        return False
    return launched() > 1 or (host.resolved_device().startswith("cuda") and items >= WORTH)


def part_of_scoring(run: RunDir, host: Host, given: Mapping[str, Any]) -> Callable[[Ranks], None]:
    """Return the work of this process for pairs that all processes score."""
    pairs, tasks = PairSet.from_json(given["pairs"]), TasksSpec(**given["tasks"])

    def work(ranks: Ranks) -> None:
        with contextlib.suppress(InputError, Diverged):  # which the first process raises as well
            take(pairs, Model(run.path / given["encoder"], tasks, ranks=ranks), host)

    return work
