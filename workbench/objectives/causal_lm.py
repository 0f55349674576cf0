"""Causal LM: predict each token from those before it, by an encoder in which no position sees a later one.

Radford et al. 2018, "Improving language understanding by generative pre-training", section 3.1, over the encoder and
the head of the other objectives, or with `encoder.family=gpt2` those of GPT-2 (Radford et al. 2019, section 2.3). Tasks
read its last token. There is neither a generator nor a corruption.
"""

from torch import Tensor, nn

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.heads import MlmHead, Scorer, Sentences, TiedHead, summed
from workbench.models.losses import share
from workbench.spec.loss_floors import Frequencies, entropy
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss, ordinary

CAUSAL = True  # sets `encoder.causal`
Options = Part  # there are none


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row, with the softmax at every position.

    Products with keys that a position may not see are counted, because they are computed.
    """
    head = flops.lm_head(spec.encoder, spec.data.length, "all")
    return flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: the loss that token frequencies alone can reach."""
    return {"lm_loss": entropy(words.words)}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec = encoder, spec
        with seeded(spec.seed, "init", "head"):
            tied = encoder.family.TIED_HEAD
            self.head = TiedHead(encoder.table) if tied else MlmHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        hidden = self.encoder(batch.ids, batch.attention, batch.segments)  # (B, L, D)
        # Position t predicts token t + 1; [CLS], [SEP] and padding are never predicted, and the last position nothing.
        targets = batch.ids.roll(-1, 1)
        counted = ordinary(batch.ids, batch.attention, self.spec.data.special).roll(-1, 1)
        counted[:, -1] = False
        weights = counted.float()
        loss, right = self.head.loss(hidden, targets, weights)
        return StepLoss(loss, {"lm_loss": loss}, {"lm_accuracy": share(right, weights)})

    def scorers(self) -> dict[str, Scorer]:
        """Return the way to score sentences: the sum (B,) of log p(token | tokens before it), in one pass."""

        def causal(s: Sentences) -> Tensor:
            hidden, targets = self.encoder(s.ids, s.attention)[:, :-1], s.ids[:, 1:]
            likelihood = self.head.log_likelihood(hidden, targets)
            attention = None if s.attention is None else s.attention[:, 1:]
            return summed(likelihood, targets, attention, self.spec.data.special)

        return {"causal": causal}
