"""BERT: predict the picked tokens, and whether the second segment of a row follows the first.

Devlin et al. 2019, section 3.1: masked language modelling as in `bert-mlm`, plus next-sentence prediction from the
state of [CLS] through a dense layer with tanh. Half of the second segments are random; the two losses, each a mean,
have equal weights (google-research/bert, `run_pretraining.py`). Picks and pairs are drawn again in each epoch, or with
`data.copies` as often as there are copies, which is 10 in the released code.
"""

from __future__ import annotations

import math

from torch import nn

from workbench.models import flops
from workbench.models.corruption import mask_tokens
from workbench.models.encoder import Encoder, seeded
from workbench.models.flops import Flops
from workbench.models.frequencies import Frequencies
from workbench.models.heads import MlmHead, PairHead, pair_losses
from workbench.models.sentence_scores import Scorer, masked_scorers
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss

PAIRS = "next"  # sets `data.pairs`


class Options(Part):
    """The options of BERT; there are none."""


def cost(spec: RunSpec) -> Flops:
    """Return the cost of one forward pass over one row without padding."""
    head = flops.lm_head(spec.encoder, spec.data.length, spec.picks) + flops.pair_head(spec.encoder)
    return flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: token frequencies say nothing about which segment follows."""
    shares = words.spec.corruption
    return {"mlm_loss": words.masked(shares.mask, shares.random), "nsp_loss": math.log(2)}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec = encoder, spec
        with seeded(spec.seed, "init", "head"):
            self.head = MlmHead(encoder, encoder.table)
        with seeded(spec.seed, "init", "pair-head"):
            self.pair_head = PairHead(encoder)

    def forward(self, batch: Batch) -> StepLoss:
        shares = self.spec.corruption
        masked = mask_tokens(batch, self.spec, shares.mask, shares.random)
        return pair_losses(self.encoder, self.head, self.pair_head, batch, masked, "nsp")

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is the default."""
        return masked_scorers(self.encoder, self.head, self.spec.data.special)
