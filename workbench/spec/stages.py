"""The stages of a run before it is carried out, each with a type of its own.

`RunSpec`       what the words of a command say: a draft, whose objective may lack options.
`ResolvedSpec`  the same with the options of its objective, and of its parent's, checked and written out in full and
                with the hash of the objective's file: `workbench.objectives.with_options` returns it. A plan takes it.
`BoundRun`      a resolved spec whose text is prepared and whose budget is matched with the other runs of its command:
                `workbench.execution.run_list.bound_runs` returns it. It has a `run_id` and can be opened in a store.

A resolved spec differs from a draft by what is known of it and not by its fields, and both are the same JSON, so it is
a name for mypy and no class of its own. Changes of other fields leave options as they are, so `replace` and `changed`
return the stage that they are given; whoever changes `objective` or `options` resolves the spec again. A bound run is
a class, so that a store refuses at run time what has no final name yet.

The plan of a run is no part of it, since it is made at two places: once for a whole command, from resolved specs and
before any text is read (`run_list.plans`), and once by the process that begins the run, which may be another one and
times the steps that a budget in seconds holds. From there on it stands in plan.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from workbench.spec.run_spec import RunSpec

ResolvedSpec = NewType("ResolvedSpec", RunSpec)


@dataclass(frozen=True)
class BoundRun:
    """One run whose name is final, since nothing that decides what it computes is left open."""

    spec: ResolvedSpec

    @property
    def run_id(self) -> str:
        """The name of the run and of its folder in a store: `rtd-nano-s0-3f9c2a1b04de`."""
        return self.spec.name

    def parent(self) -> BoundRun | None:
        """Return the run whose weights this one starts from, which reads the same text; None where there is none."""
        parent = self.spec.parent()
        return None if parent is None else BoundRun(parent)
