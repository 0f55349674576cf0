"""BERT: predict the picked tokens, and whether the second segment of a row follows the first.

Devlin et al. 2019, section 3.1: masked language modelling as in `bert-mlm`, plus next-sentence prediction from the
state of [CLS] through a dense layer with tanh. Half of the second segments are random; the two losses, each a mean,
have equal weights (google-research/bert, `run_pretraining.py`). Picks and pairs are drawn again in each epoch, or with
`data.copies` as often as there are copies, which is 10 in the released code.
"""

import math

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.heads import PairHead, pair_losses
from workbench.objectives import bert_mlm
from workbench.spec.loss_floors import Frequencies
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss

PAIRS = "next"  # sets `data.pairs`
Options = bert_mlm.Options


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row without padding."""
    return bert_mlm.cost(spec) + flops.pair_head(spec.encoder)


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: token frequencies say nothing about which segment follows."""
    return bert_mlm.floors(words) | {"nsp_loss": math.log(2)}


class Objective(bert_mlm.Objective):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__(encoder, spec, options)
        with seeded(spec.seed, "init", "pair-head"):
            self.pair_head = PairHead(encoder)

    def forward(self, batch: Batch) -> StepLoss:
        return pair_losses(self.encoder, self.head, self.pair_head, batch, self.masked(batch), "nsp")
