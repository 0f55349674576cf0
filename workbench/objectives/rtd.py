"""RTD, replaced token detection: is each token the original or a generator's sample?

This is ELECTRA (Clark et al. 2020, section 3.1). A sample that equals the original counts as original; the loss is a
mean over all tokens but padding; lambda is 50 (`options.weight`). No gradient passes from the detector to the
generator, except to weights that they share.
"""

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.generators import Generator
from workbench.models.heads import BinaryHead, Scorer, Sentences, summed
from workbench.models.losses import binary_loss_and_ratios
from workbench.spec.loss_floors import Frequencies
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss, real_tokens


class Options(Part):
    """The options of RTD."""

    weight: float = 50.0  #: lambda, the weight of the detection loss; the generator's loss has weight 1


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row."""
    body = flops.encoder(spec.encoder, spec.data.length)
    return flops.generator(spec) + body + flops.binary_head(spec, "all")


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floors of the losses and the ROC area by name: what token frequencies alone can reach."""
    return words.generator() | words.detection("all")


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec, self.options = encoder, spec, options
        self.generator = Generator(encoder, spec)
        with seeded(spec.seed, "init", "head"):
            self.head = BinaryHead(encoder, spec.head)

    def forward(self, batch: Batch) -> StepLoss:
        fake = self.generator(batch)
        logits = self.head(self.encoder(fake.ids, batch.attention, batch.segments))  # (B, L), above 0 means replaced
        replaced, real = fake.ids != batch.ids, real_tokens(batch)
        loss, metrics = binary_loss_and_ratios("discriminator", logits, replaced, real)
        total = fake.loss + self.options.weight * loss
        return StepLoss(total, {"generator_loss": fake.loss, "discriminator_loss": loss}, fake.metrics | metrics)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name: originality, electric, and the generator's own ways.

        Originality is the sum (B,) of log P(original) over tokens (Xia et al. 2022, "Prompting ELECTRA"). Electric is
        the sum (B,) of log q(token) - logit: the generator's log-probability, corrected by the head. At the optimum,
        each term is log p(token | other tokens) up to a constant (Clark et al. 2020, "Pre-training transformers as
        energy-based cloze models"). Here this holds only roughly, since a sample that equals the original is labelled
        original.
        """
        encoder, head, generator, special = self.encoder, self.head, self.generator, self.spec.data.special

        def originality(s: Sentences) -> Tensor:
            logits = head(encoder(s.ids, s.attention))  # (B, L), above 0 means replaced
            return summed(F.logsigmoid(-logits.float()), s.ids, s.attention, special)

        def electric(s: Sentences) -> Tensor:
            corrections = summed(head(encoder(s.ids, s.attention)), s.ids, s.attention, special)
            return s.once("generator-pll", lambda: generator.score(s.ids, s.attention)) - corrections

        return {"originality": originality, "electric": electric, **generator.scorers()}
