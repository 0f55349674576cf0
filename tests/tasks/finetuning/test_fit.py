"""The loop of a fine-tuning."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from workbench.errors import Interrupted
from workbench.signals import interrupting
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.finetuning.finetune import finetune
from workbench.tasks.task import Task

SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.1)

CPU = Host(device="cpu")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_got_lost_in_between_ends_it_at_the_next_step(encoder: Path, keyword: Task) -> None:
    class Loses:
        def __del__(self) -> None:  # what is raised in here is dropped
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(100):
                pass

    def progress(step: int, steps: int) -> None:
        assert step == 1 < steps
        Loses()

    with interrupting(), pytest.raises(Interrupted):
        finetune(encoder, keyword, SPEC, 0, CPU, progress)
