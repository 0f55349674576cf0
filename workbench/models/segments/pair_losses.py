"""The two losses of models that are trained on pairs of segments: masked tokens, and whether the pair was taken apart.

B rows, L positions, D width of the encoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.models.corruption import real_tokens
from workbench.models.encoder import Encoder, initialise
from workbench.models.heads import MlmHead
from workbench.models.losses import binary_loss_and_ratios, gather, share
from workbench.tensors import Batch, Corruption, Mean, Ratio, StepLoss


class PairHead(nn.Module):
    """The head that predicts whether the second segment of a row follows the first, from the state of [CLS].

    A dense layer with tanh, BERT's pooler, and a layer with two outputs, as in the released code
    (google-research/bert, `modeling.py` and `run_pretraining.py`).
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        width = encoder.spec.hidden
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 2)
        initialise(self, encoder.spec.init)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits (B, 2), of "follows" and of "does not follow", for hidden (B, D)."""
        out: Tensor = self.out(torch.tanh(self.dense(hidden)))
        return out

    def loss(self, hidden: Tensor, broken: Tensor, name: str) -> tuple[Mean, dict[str, Ratio]]:
        """Return the mean cross-entropy of broken (B,) bool given the states of [CLS], hidden (B, D), and metrics.

        The metrics have names that begin with `name`: those of `binary_ratios`, and the share of broken pairs.
        """
        logits = self(hidden).float()
        margin, counted = logits[:, 1:] - logits[:, :1], torch.ones_like(broken)[:, None]  # (B, 1) each
        loss, metrics = binary_loss_and_ratios(name, margin, broken[:, None], counted)
        return loss, metrics | {f"{name}_broken_rate": share(broken[:, None], counted)}


def pair_losses(
    encoder: Encoder, head: MlmHead, pair_head: PairHead, batch: Batch, masked: Corruption, name: str
) -> StepLoss:
    """Return the sum of both losses, each a mean, for the masked rows of a batch of pairs.

    `name` is that of the second loss in metrics: `nsp` for the next sentence, `sop` for the order of sentences.
    """
    assert batch.broken is not None, "rows without pairs"
    hidden = encoder(masked.ids, batch.attention, batch.segments)  # (B, L, D)
    words, right = head.loss(gather(hidden, masked.positions), masked.targets, masked.weights)
    pairs, metrics = pair_head.loss(hidden[:, 0], batch.broken, name)
    metrics |= masked.metrics | {
        "mlm_accuracy": share(right, masked.weights),
        "replaced_rate": share(masked.ids != batch.ids, real_tokens(batch)),
    }
    return StepLoss(words + pairs, {"mlm_loss": words, f"{name}_loss": pairs}, metrics)
