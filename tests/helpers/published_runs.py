"""Published models in a store, as an evaluation leaves them."""

from __future__ import annotations

from workbench.execution.published_runs import _bound
from workbench.spec.parts import PublishedSpec
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore

TASKS = ("package", "order")


def published(store: RunStore, name: str, flops: float | None, source: str = "a paper") -> RunDir:
    """Write a published run as `workbench evaluate` leaves it, without scores."""
    run = store.open(_bound(PublishedSpec(name=name, files=name * 3)))
    stated = {"flops": {} if flops is None else {"paper": flops}, "flops_source": source}
    run.finish({"steps": 0, "tokens": 0, "encoder": {"model.safetensors": "a" * 64}, **stated})
    return run
