"""No question to the hub about what is not there."""

from __future__ import annotations

import os

from workbench import tasks
from workbench.data import sources
from workbench.spec.run_spec import RunSpec


def stay_local(base: RunSpec, own_process: bool) -> None:
    """Keep every library from asking the hub where nothing asked for is there; before any of them is loaded.

    That takes environment variables, which only a command in a process of its own may set. Raises InputError for a
    corpus that is neither here nor there, before anything slow is begun.
    """
    if not sources.local(base.data):
        others = tuple(name for name in base.data.corpus if name != "docs")  # the built-in text is always here
        if others:
            sources.resolve(base.data.model_copy(update={"corpus": others}))
    elif own_process and tasks.local(base.tasks):
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
