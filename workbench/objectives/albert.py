"""ALBERT: predict the picked spans of words, and whether the two segments of a row are in order.

Lan et al. 2020, section 3.1: masked language modelling over spans of one to three whole words, and sentence-order
prediction: two segments that follow each other are swapped in half of the rows (google-research/albert,
`run_pretraining.py`, where label 1 is "swapped"). The two losses, each a mean, have equal weights. The encoder whose
layers share their weights is `encoder.family=albert`, its optimizer `optim.kind=lamb`.
"""

from __future__ import annotations

import math

from torch import nn

from workbench.models import flops
from workbench.models.corruption import WordStarts, mask_tokens
from workbench.models.encoder import Encoder, seeded
from workbench.models.flops import Flops
from workbench.models.frequencies import Frequencies
from workbench.models.heads import MlmHead, PairHead, pair_losses
from workbench.models.sentence_scores import Scorer, masked_scorers
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss

PAIRS = "order"  # sets `data.pairs`


class Options(Part):
    """The options of ALBERT; there are none."""


def cost(spec: RunSpec) -> Flops:
    """Return the cost of one forward pass over one row without padding."""
    head = flops.lm_head(spec.encoder, spec.data.length, spec.picks) + flops.pair_head(spec.encoder)
    return flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: token frequencies say nothing about the order of segments."""
    shares = words.spec.corruption
    return {"mlm_loss": words.masked(shares.mask, shares.random), "sop_loss": math.log(2)}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec = encoder, spec
        with seeded(spec.seed, "init", "head"):
            self.head = MlmHead(encoder, encoder.table)
        with seeded(spec.seed, "init", "pair-head"):
            self.pair_head = PairHead(encoder)
        self.pick = WordStarts(spec)

    def forward(self, batch: Batch) -> StepLoss:
        shares = self.spec.corruption
        masked = mask_tokens(batch, self.spec, shares.mask, shares.random, self.pick(batch))
        return pair_losses(self.encoder, self.head, self.pair_head, batch, masked, "sop")

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is the default."""
        return masked_scorers(self.encoder, self.head, self.spec.data.special)
