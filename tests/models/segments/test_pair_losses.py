"""The head and the losses of pairs of segments, against the cross-entropy of both classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from objective_oracle import shaken, synthetic, tiny
from torch.nn import functional as F  # noqa: N812

from workbench.models.corruption import mask_tokens
from workbench.models.heads import pair_losses


def made() -> Any:
    return shaken(tiny("bert")).eval()


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 99))
def test_the_loss_of_a_head_is_the_cross_entropy_of_its_two_outputs(broken: list[bool], seed: int) -> None:
    head, answers = made().pair_head, torch.tensor(broken)
    states = torch.randn(len(broken), 32, generator=torch.Generator().manual_seed(seed)) * 3
    with torch.no_grad():
        logits = torch.tanh(states @ head.dense.weight.T + head.dense.bias) @ head.out.weight.T + head.out.bias
        loss, metrics = head.loss(states, answers, "nsp")
    assert float(loss) == pytest.approx(float(F.cross_entropy(logits, answers.long())), rel=1e-4, abs=1e-6)
    right = (logits.argmax(1) == answers.long()).sum()
    assert [int(n) for n in metrics["nsp_accuracy"]] == [int(right), len(broken)]
    assert [int(n) for n in metrics["nsp_broken_rate"]] == [sum(broken), len(broken)]


def test_a_batch_without_pairs_is_a_fault_of_the_program() -> None:
    objective = made()
    batch = replace(synthetic(objective.spec, rows=2), broken=None)
    with pytest.raises(AssertionError, match="rows without pairs"):
        pair_losses(objective.encoder, objective.head, objective.pair_head, batch, None, "nsp")  # type: ignore[arg-type]


def test_only_the_state_of_cls_enters_the_pair_loss() -> None:
    """Its gradient is 0 at every other position; that of the masked tokens is not."""
    objective = made()
    batch = synthetic(objective.spec, rows=4)
    masked = mask_tokens(batch, objective.spec, 0.8, 0.1)
    kept = []
    objective.encoder.register_forward_hook(lambda module, given, states: kept.append(states) or states.retain_grad())
    loss = pair_losses(objective.encoder, objective.head, objective.pair_head, batch, masked, "sop")
    loss.parts["sop_loss"].backward()
    used = (kept[0].grad != 0).any(-1)
    assert used[:, 0].all() and not used[:, 1:].any()
    assert loss.total.item() == (loss.parts["mlm_loss"] + loss.parts["sop_loss"]).item()
