"""The stages of a run's spec before the run is carried out, each with its own type.

`RunSpec`       the settings given by a command: a draft, in which options of the objective may be missing.
`ResolvedSpec`  the same with the options of its objective, and of its parent's, checked and filled in, and with the
                hash of the objective's file: `workbench.objectives.with_options` returns it. A plan is made from it.
`BoundRun`      a resolved spec whose text is prepared and whose budget is matched with the other runs of its command:
                `workbench.execution.study.bound_runs` returns it. It has a `run_id` and can be opened in a store.

A resolved spec has the same fields and the same JSON as a draft, so it is not a class: only mypy tells the two apart.
Changes of other fields do not affect options, so `replace` and `changed` return a spec of the same stage; code that
changes `objective` or `options` must resolve the spec again. A bound run is a class, so that a store can refuse, at run
time, a spec whose name is not final.

A bound run carries its plan, which is made once, when a command prices its runs, and is kept in plan.json. A budget in
seconds alone is planned by the process that begins the run, which measures how long a step takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NewType

from workbench.spec.run_spec import RunSpec

ResolvedSpec = NewType("ResolvedSpec", RunSpec)


@dataclass(frozen=True)
class Plan:
    """The cost of one run: training FLOPs (forward and backward) under each convention, and an estimate of memory.

    Tokens, words and FLOPs include those of the runs that this run starts from; `parent` has the id of its parent, and
    the sums of steps, tokens and FLOPs of that run and its own parents. `words` is the number of words seen, in
    `epochs` epochs of the text; both are None if the text is not prepared. If the
    run continues its parent's training, the first `first` of the `steps` steps are the parent's.
    """

    steps: int
    tokens: int
    rows: int
    picks: int
    warmup_steps: int
    flops: dict[str, int | float]
    flops_per_step: dict[str, int | float]
    parameters: dict[str, int]
    memory_bytes: int
    budget: dict[str, Any]
    first: int = 0
    parent: dict[str, Any] | None = None
    words: float | None = None
    epochs: float | None = None


@dataclass(frozen=True)
class BoundRun:
    """One run whose name is final, since all settings that decide what it computes are known.

    `plan` is None until the run is priced, or if its budget is in seconds, which are turned into steps by timing.
    """

    spec: ResolvedSpec
    plan: Plan | None = None

    @property
    def run_id(self) -> str:
        """The name of the run and of its folder in a store: `rtd-nano-s0-3f9c2a1b04de`."""
        return self.spec.name

    def parent(self) -> BoundRun | None:
        """Return the run whose weights this one starts from, which reads the same text, or None if there is none."""
        parent = self.spec.parent()
        return None if parent is None else BoundRun(parent)
