"""Multi-word selection: RTD, and at the picks also the choice of the original among different samples (TEAMS).

Shen et al. 2021, "Training ELECTRA augmented with multi-word selection", section 3; weights of the released code. Left
out: a last layer of RTD's own, and the lower layers that generator and encoder share.
"""

from torch import nn

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.frequencies import Frequencies
from workbench.models.generators import Detector, Generator, require_weights
from workbench.models.heads import BinaryHead, SelectionHead
from workbench.models.losses import binary_loss_and_ratios, gather, share, weighted_mean
from workbench.models.sentence_scores import Scorer
from workbench.spec.parts import Extent, Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss, real_tokens


class Options(Part):
    """The options of multi-word selection."""

    weight: float = 5.0  #: weight of the detection loss; the generator's loss has weight 1
    selection: float = 2.0  #: weight of the selection loss
    others: Extent = 4  #: other samples among which the original is chosen


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row; the generator's logits are computed twice, for candidates."""
    more = flops.lm_head(spec.generator_encoder, spec.data.length, spec.picks).frozen() + flops.binary_head(spec, "all")
    more += flops.lm_head(spec.encoder, spec.data.length, spec.picks, 1 + Options(**spec.options).others)
    return flops.generator(spec) + flops.encoder(spec.encoder, spec.data.length) + more


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floors of the losses and the ROC area by name: what token frequencies alone can reach."""
    return words.generator() | words.detection("all")


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        require_weights(spec)
        self.encoder, self.spec, self.options, self.generator = encoder, spec, options, Generator(encoder, spec)
        with seeded(spec.seed, "init", "head"):
            self.head, self.selection = BinaryHead(encoder, spec.head), SelectionHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        (fake, states), count = self.generator.with_states(batch), self.options.others
        hidden = self.encoder(fake.ids, batch.attention, batch.segments)  # (B, L, D)
        logits, replaced, real = self.head(hidden), fake.ids != batch.ids, real_tokens(batch)  # (B, L) each
        detecting, metrics = binary_loss_and_ratios("discriminator", logits, replaced, real)
        words = self.generator.candidates(gather(states, fake.positions), batch.keys, count, fake.targets)
        scores = self.selection(gather(hidden, fake.positions), words)  # (B, K, 1 + C), the first one is right
        selecting = weighted_mean(-scores.float().log_softmax(-1)[..., 0], fake.weights)
        metrics["selection_accuracy"] = share(scores.argmax(-1) == 0, fake.weights)
        parts = {"generator_loss": fake.loss, "discriminator_loss": detecting, "selection_loss": selecting}
        weighted = self.options.weight * detecting + self.options.selection * selecting
        return StepLoss(fake.loss + weighted, parts, fake.metrics | metrics)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is the default."""
        return Detector(self.encoder, self.head, self.generator).scorers()
