"""Replace MLM: predict the picked tokens from an input that contains a generator's samples instead of [MASK].

Clark et al. 2020, section 3.4, use it to measure how much of the gain comes from pre-training without [MASK].
"""

from torch import Tensor, nn

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.generators import Generator
from workbench.models.heads import MlmHead, Scorer, Sentences, summed
from workbench.models.losses import gather, share
from workbench.spec.loss_floors import Frequencies
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss


class Options(Part):
    """The options of Replace MLM; the paper does not state this weight (docs/electra.md 1.9)."""

    weight: float = 1.0  #: weight of the MLM loss; the generator's loss has weight 1


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row."""
    head = flops.lm_head(spec.encoder, spec.data.length, spec.picks)
    return flops.generator(spec) + flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: the loss that token frequencies alone can reach."""
    return words.generator() | {"mlm_loss": words.restored("picks")}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec, self.options = encoder, spec, options
        self.generator = Generator(encoder, spec)
        with seeded(spec.seed, "init", "head"):
            self.head = MlmHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        fake = self.generator(batch)
        hidden = gather(self.encoder(fake.ids, batch.attention, batch.segments), fake.positions)  # (B, K, D)
        loss, right = self.head.loss(hidden, fake.targets, fake.weights)
        metrics = fake.metrics | {"mlm_accuracy": share(right, fake.weights)}
        total = fake.loss + self.options.weight * loss
        return StepLoss(total, {"generator_loss": fake.loss, "mlm_loss": loss}, metrics)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is the default.

        It is the sum (B,) of log p(token) over the tokens of unchanged sentences, in one pass. The inputs of
        pre-training have no [MASK] either, but contain samples of the generator. For a masked language model, this is
        the "holistic" score of Zaczynska et al. 2020.
        """

        def one_pass(s: Sentences) -> Tensor:
            hidden = self.encoder(s.ids, s.attention)  # (B, L, D)
            likelihood = self.head.log_likelihood(hidden, s.ids)
            return summed(likelihood, s.ids, s.attention, self.spec.data.special)

        return {"one-pass": one_pass} | self.generator.scorers()
