"""A pytest plugin for runs under mutmut, in which pytest starts anew for every mutant, in a fork.

Quick tests go first, since a mutant is done with at its first failure. Hypothesis draws the same few examples every
time, and is told not to look for the smallest failing one. What takes long is done once, before the forks: loading
the modules that torch loads in the middle of a test, compiling kernels, and looking through all objects for garbage.
"""

from __future__ import annotations

import gc
import importlib
import json
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import transformers.models.auto.modeling_auto  # noqa: F401
from hypothesis import Phase, settings

from workbench.cpu import compiled

for family in ("albert", "bert", "deberta_v2", "electra", "gpt2", "mpnet", "roberta"):
    importlib.import_module(f"transformers.models.{family}.modeling_{family}")
for kind in (torch.float32, torch.bfloat16):
    compiled.available(kind)

STATS = Path("mutmut-stats.json")  # mutmut runs pytest inside its folder `mutants`
EXAMPLES = 10

PHASES = (Phase.explicit, Phase.generate)
settings.register_profile(
    "mutants", max_examples=EXAMPLES, derandomize=True, phases=PHASES, deadline=None, database=None
)
settings.load_profile("mutants")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Sort tests by how long they took when mutmut looked which of them reach which function."""
    if STATS.is_file():
        took = json.loads(STATS.read_text())["duration_by_test"]
        items.sort(key=lambda item: took.get(item.nodeid, 0.0))
    for item in items:
        given = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if given is not None and given.max_examples > EXAMPLES:
            item.obj._hypothesis_internal_use_settings = settings(given, max_examples=EXAMPLES)
    gc.collect()
    gc.freeze()  # later collections, pytest's own at its end too, pass over what is there by now
