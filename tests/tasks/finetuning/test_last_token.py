"""Causal encoders and XLNet are read at their last token, the only one whose state depends on the whole text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Task


@pytest.mark.parametrize("kind", ["gpt2", "gpt2 with head", "electra decoder", "electra decoder with head", "xlnet"])
def test_what_a_bag_of_words_solves_it_learns_too(kind: str, make: Callable[[str], Path], keyword: Task) -> None:
    spec = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.0)
    assert take(keyword, Model(make(kind), spec, 0), Host(device="cpu")).value > 85
