"""ELECTRA 15%: detect replaced tokens, with a loss at the picked positions only.

Clark et al. 2020, section 3.4, use it to measure how much of the gain comes from learning at every position.
"""

from workbench.models import flops
from workbench.models.losses import binary_loss_and_ratios, gather
from workbench.objectives import rtd
from workbench.spec.loss_floors import Frequencies
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss


class Options(rtd.Options):
    """The options of ELECTRA 15%; the paper does not state lambda for this objective (docs/electra.md 1.9)."""

    weight: float = 50.0  #: lambda, the weight of the detection loss; the generator's loss has weight 1


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row."""
    body = flops.encoder(spec.encoder, spec.data.length)
    return flops.generator(spec) + body + flops.binary_head(spec, spec.picks)


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floors of the losses and the ROC area by name: what token frequencies alone can reach."""
    return words.generator() | words.detection("picks")


class Objective(rtd.Objective):
    def forward(self, batch: Batch) -> StepLoss:
        fake = self.generator(batch)
        hidden = gather(self.encoder(fake.ids, batch.attention, batch.segments), fake.positions)  # (B, K, D)
        logits = self.head(hidden)  # (B, K), above 0 means replaced
        replaced = gather(fake.ids, fake.positions) != fake.targets
        loss, metrics = binary_loss_and_ratios("discriminator", logits, replaced, fake.weights)
        total = fake.loss + self.options.weight * loss
        return StepLoss(total, {"generator_loss": fake.loss, "discriminator_loss": loss}, fake.metrics | metrics)
