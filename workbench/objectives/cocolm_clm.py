"""Corrected LM of COCO-LM: which tokens were replaced, and at the picks also the original token.

Meng et al. 2021, "COCO-LM", section 3.2, without its contrast of sequences. As in the released code (COCO-LM of
microsoft), the log-likelihood of a pick is weighted by the probability that it is not copied, without gradient, and the
binary loss has weight 50. The MLM head has a dense layer before the token table, as in the other objectives; that of
the code has none.
"""

from workbench.models import flops
from workbench.models.losses import binary_loss_and_ratios, gather, share, weighted_mean
from workbench.objectives import all_tokens_mlm
from workbench.spec.loss_floors import Frequencies
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Mean, StepLoss, real_tokens


class Options(Part):
    """The options of corrected LM."""

    copy_loss: float = 50.0  #: weight of the binary loss; the other two have weight 1


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row."""
    head = flops.lm_head(spec.encoder, spec.data.length, spec.picks) + flops.gate(spec)
    return flops.generator(spec) + flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of the generator's loss by its name: the loss that token frequencies alone can reach."""
    return words.generator()


class Objective(all_tokens_mlm.Objective):
    options: Options  # type: ignore[assignment]  # not the options of the base class

    def forward(self, batch: Batch) -> StepLoss:
        fake = self.generator(batch)
        hidden = self.encoder(fake.ids, batch.attention, batch.segments)  # (B, L, D)
        gate, untouched, real = self.gate(hidden), fake.ids == batch.ids, real_tokens(batch)  # (B, L) each
        copying, ratios = binary_loss_and_ratios("copy", gate, untouched, real)
        written = (-gather(gate, fake.positions)).detach().float().sigmoid()  # (B, K), the probability not to copy
        over_written, right = self.head.loss(gather(hidden, fake.positions), fake.targets, written * fake.weights)
        # A mean over picks, and not over the probabilities.
        loss = Mean(over_written.value * weighted_mean(written, fake.weights).value, fake.weights.sum())
        parts = {"generator_loss": fake.loss, "mlm_loss": loss, "copy_loss": copying}
        total = fake.loss + self.options.copy_loss * copying + loss
        return StepLoss(total, parts, fake.metrics | ratios | {"mlm_accuracy": share(right, fake.weights)})
