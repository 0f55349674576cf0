"""The stages of a run's spec before the run is carried out, each with its own type.

`RunSpec`       the settings given by a command: a draft, in which options of the objective may be missing.
`ResolvedSpec`  the same with the options of its objective, and of its parent's, checked and filled in, and with the
                hash of the objective's file: `workbench.objectives.with_options` returns it. A plan is made from it.
`BoundRun`      a resolved spec whose text is prepared and whose budget is matched with the other runs of its command:
                `workbench.execution.run_list.bound_runs` returns it. It has a `run_id` and can be opened in a store.

A resolved spec has the same fields and the same JSON as a draft, so it is not a class: only mypy tells the two apart.
Changes of other fields do not affect options, so `replace` and `changed` return a spec of the same stage; code that
changes `objective` or `options` must resolve the spec again. A bound run is a class, so that a store can refuse, at run
time, a spec whose name is not final.

The plan of a run is not part of its spec, since it is made twice: for a whole command, from resolved specs and before
any text is read (`run_list.plans`), and by the process that begins the run, possibly another one, which measures how
many steps a budget in seconds allows. From then on the plan is read from plan.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from workbench.spec.run_spec import RunSpec

ResolvedSpec = NewType("ResolvedSpec", RunSpec)


@dataclass(frozen=True)
class BoundRun:
    """One run whose name is final, since all settings that decide what it computes are known."""

    spec: ResolvedSpec

    @property
    def run_id(self) -> str:
        """The name of the run and of its folder in a store: `rtd-nano-s0-3f9c2a1b04de`."""
        return self.spec.name

    def parent(self) -> BoundRun | None:
        """Return the run whose weights this one starts from, which reads the same text, or None if there is none."""
        parent = self.spec.parent()
        return None if parent is None else BoundRun(parent)
