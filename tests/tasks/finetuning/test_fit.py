"""The loop of a fine-tuning."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from workbench.errors import Interrupted
from workbench.signals import interrupting
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.cost import step_count
from workbench.tasks.common.examples import Task
from workbench.tasks.common.fine_tuning import setting

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
        take(keyword, Model(encoder, SPEC, 0, progress), CPU)


@pytest.mark.parametrize(
    ("rows", "epochs", "steps"), [(64, 3.0, 6), (65, 3.0, 9), (33, 0.5, 1), (1, 0.1, 1), (320, 2.5, 25)]
)
def test_steps_are_those_of_the_epochs_with_a_last_batch_that_may_be_short(
    rows: int, epochs: float, steps: int
) -> None:
    assert step_count(rows, epochs, TasksSpec(batch=32)) == steps


def test_draws_are_a_function_of_task_and_seed_and_leave_those_outside_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    drawn = {}
    for task, seed in (("a", 0), ("a", 1), ("b", 0), ("a", 0)):
        with setting(task, seed, CPU) as where:
            drawn.setdefault((task, seed, where.order()), []).append(torch.rand(3).tolist())
    assert torch.equal(torch.random.get_rng_state(), before)
    values = [tuple(each[0]) for each in drawn.values()]
    assert len(drawn) == 3 and len(set(values)) == 3
    assert drawn["a", 0, next(order for task, seed, order in drawn if (task, seed) == ("a", 0))][1] == list(values[0])
