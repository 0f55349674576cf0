"""ALBERT: predict the picked spans of words, and whether the two segments of a row are in order.

Lan et al. 2020, section 3.1: masked language modelling over spans of one to three whole words, and sentence-order
prediction: two segments that follow each other are swapped in half of the rows (google-research/albert,
`run_pretraining.py`, where label 1 is "swapped"). The two losses, each a mean, have equal weights. The encoder whose
layers share their weights is `encoder.family=albert`, its optimizer `optim.kind=lamb`.
"""

import math

from workbench.models.corruption import WordStarts
from workbench.models.encoder import Encoder
from workbench.models.heads import pair_losses
from workbench.objectives import bert, bert_mlm
from workbench.spec.loss_floors import Frequencies
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss

PAIRS = "order"  # sets `data.pairs`
Options = bert.Options
cost = bert.cost


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: token frequencies say nothing about the order of segments."""
    return bert_mlm.floors(words) | {"sop_loss": math.log(2)}


class Objective(bert.Objective):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__(encoder, spec, options)
        self.pick = WordStarts(spec)

    def forward(self, batch: Batch) -> StepLoss:
        masked = self.masked(batch, self.pick(batch))
        return pair_losses(self.encoder, self.head, self.pair_head, batch, masked, "sop")
