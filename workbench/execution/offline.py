"""Commands whose text and tasks are all local, which must not access the hub."""

from __future__ import annotations

import os

from workbench import tasks
from workbench.data import sources
from workbench.spec.run_spec import RunSpec


def stay_local(base: RunSpec, own_process: bool) -> None:
    """Forbid libraries to access the hub if corpus, tokenizer and tasks are all local; called before they are loaded.

    This sets environment variables, which only a command in a process of its own may do. Raises InputError, before
    anything slow begins, for a corpus that is neither local nor on the hub.
    """
    if not sources.local(base.data):
        named = tuple(name for name in base.data.corpus if name not in sources.BUILT_IN)  # always local
        if named:
            sources.resolve(base.data.model_copy(update={"corpus": named}))
    elif own_process and tasks.local(base.tasks):
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
