"""Heads of span answering on an encoder, with their loss: where an answer begins and ends, and whether there is none.

As in the released code (`finetune/qa/qa_tasks.py`, docs/electra.md 5). In the joint head the end depends on the start:
on the true one in training, and on each of the most probable ones in a test. The answerability head reads the state of
"no answer", [CLS], and the mean state under the probabilities of the start. It is trained in SQuAD 1.1 too.

Shapes: B windows, L tokens, D width, K starts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.tasks.finetuning.classifier import has_segments, states
from workbench.tasks.squad.questions import ANSWERABLE, BEAM
from workbench.tasks.squad.windows import Batch

WIDTH = 512  # of the hidden layers of the heads
NEVER = -1e4  # added to the logit of a position where no answer begins or ends
# Numbers in the hidden layer of the end that are computed at once; what fits in a CPU's cache takes a tenth of the time
AT_ONCE = {"cpu": 1 << 19}
ELSEWHERE = 1 << 24


class SpanModel(nn.Module):
    """An encoder with the heads; `joint` chooses an end that depends on the start."""

    def __init__(self, encoder: Any, joint: bool) -> None:
        super().__init__()
        self.encoder, self.joint = encoder, joint
        self.segments = has_segments(encoder)
        width = int(encoder.config.hidden_size)
        self.start = _linear(width, 1)
        self.end_hidden = _linear(2 * width, WIDTH) if joint else None
        self.end = _linear(WIDTH if joint else width, 1)
        self.answerable_hidden = _linear(2 * width, WIDTH)
        self.answerable = _linear(WIDTH, 1)

    def hidden(self, batch: Batch) -> Tensor:
        """Return the last hidden states (B, L, D)."""
        return states(self.encoder, self.segments, batch.inputs)

    def start_logits(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the logits of each token as the start (B, L), in float32."""
        return _masked(self.start(hidden)[..., 0], batch.allowed)

    def end_logits(self, hidden: Tensor, allowed: Tensor, starts: Tensor) -> Tensor:
        """Return the logits of each token as the end (B, L), in float32, for one start of each row (B,)."""
        if self.end_hidden is None:
            return _masked(self.end(hidden)[..., 0], allowed)
        return self.joint_ends(self.tokens_share(hidden), _at(hidden, starts), allowed)

    def tokens_share(self, hidden: Tensor) -> Tensor:
        """Return what the states of tokens (B, L, D) add to the hidden layer of the joint end (B, L, WIDTH)."""
        assert self.end_hidden is not None
        return functional.linear(hidden, self.end_hidden.weight[:, hidden.shape[-1] :], self.end_hidden.bias)

    def joint_ends(self, share: Tensor, starts: Tensor, allowed: Tensor) -> Tensor:
        """Return the logits of each token as the end (S, L), from the tokens' share (S, L, WIDTH) and starts (S, D).

        For several starts of one row, the share is (L, WIDTH) and `allowed` is (L,).
        """
        assert self.end_hidden is not None
        of_start = functional.linear(starts, self.end_hidden.weight[:, : starts.shape[-1]])
        activated = functional.gelu(share + of_start[:, None])
        return _masked(self.end(activated)[..., 0], allowed)

    def null_logits(self, hidden: Tensor, batch: Batch, start_logits: Tensor) -> Tensor:
        """Return the log-odds that the question has no answer (B,), in float32."""
        attended = (start_logits.softmax(1)[:, None].to(hidden.dtype) @ hidden)[:, 0]  # (B, D)
        both = torch.cat([_at(hidden, batch.none), attended], 1)
        logits: Tensor = self.answerable(functional.gelu(self.answerable_hidden(both)))
        return logits[:, 0].float()


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with Glorot's initial weights and no bias at first."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _masked(logits: Tensor, allowed: Tensor) -> Tensor:
    return logits.float().masked_fill(~allowed, NEVER)


def _at(hidden: Tensor, places: Tensor) -> Tensor:
    """Return the states (B, D) at one position of each row, (B,)."""
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


def span_loss(model: SpanModel, batch: Batch, total: bool) -> Tensor:
    """Return the loss () of a batch: half of start and end each, and the weighted loss of answerability.

    It is the mean over the windows, or their sum with `total`. A window without the answer is to begin and end at
    "no answer", also in SQuAD 1.1, while the label of its answerability is that of the question.
    """
    reduction = "sum" if total else "mean"
    hidden = model.hidden(batch)
    starts = model.start_logits(hidden, batch)
    ends = model.end_logits(hidden, batch.allowed, batch.spans[:, 0])
    nulls = model.null_logits(hidden, batch, starts)
    loss = sum(
        functional.cross_entropy(logits, batch.spans[:, side], reduction=reduction) / 2
        for side, logits in enumerate((starts, ends))
    )
    return loss + ANSWERABLE * functional.binary_cross_entropy_with_logits(nulls, batch.impossible, reduction=reduction)


def best_spans(model: SpanModel, batch: Batch, begins: Tensor) -> dict[str, Any]:
    """Return the best starts of each window, the best ends of each start, and the log-odds of no answer, as arrays.

    `starts` and `start_scores` are (B, K), `ends` and `end_scores` (B, K, K), `nulls` (B,), and `begins` (B, K) says
    at which starts an answer may begin by the mask `begins` (B, L); other starts have no ends. The scores of the joint
    head are log-probabilities, those of independent heads logits.
    """
    hidden = model.hidden(batch)
    logits = model.start_logits(hidden, batch)
    nulls = model.null_logits(hidden, batch, logits)
    count = min(BEAM, logits.shape[1])
    start_scores, starts = (logits.log_softmax(1) if model.joint else logits).topk(count, 1)
    may_begin = begins.gather(1, starts)
    if model.joint:
        end_scores, ends = _joint_ends(model, hidden, batch.allowed, starts, may_begin)
    else:
        best = model.end_logits(hidden, batch.allowed, starts[:, 0]).topk(count, 1)
        end_scores, ends = (each[:, None].expand(-1, count, -1) for each in best)
    tensors = {
        "starts": starts, "start_scores": start_scores, "ends": ends, "end_scores": end_scores, "nulls": nulls,
        "begins": may_begin,
    }  # fmt: skip
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def _joint_ends(
    model: SpanModel, hidden: Tensor, allowed: Tensor, starts: Tensor, may_begin: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the scores and places (B, K, K) of the best ends of those starts (B, K) at which an answer may begin."""
    shape, device = (*starts.shape, starts.shape[1]), starts.device
    scores = torch.zeros(shape, device=device)
    places = torch.zeros(shape, dtype=torch.int64, device=device)
    shares = model.tokens_share(hidden)
    size = max(1, AT_ONCE.get(device.type, ELSEWHERE) // (shares.shape[1] * WIDTH))
    for row, share in enumerate(shares):
        for columns in may_begin[row].nonzero()[:, 0].split(size):
            logits = model.joint_ends(share, hidden[row, starts[row, columns]], allowed[row])
            scores[row, columns], places[row, columns] = logits.log_softmax(1).topk(shape[2], 1)
    return scores, places
