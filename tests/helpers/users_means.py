"""A user's means: predict tokens that a generator replaced, and detect them, with denominators of every kind.

The denominators are the picked tokens, all tokens, the replaced tokens, which depend on what the generator samples, the
rows, and 1 for a penalty on large weights.
"""

from torch import Tensor, nn

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.generators import Generator
from workbench.models.heads import BinaryHead, MlmHead
from workbench.models.losses import binary_loss, gather, share, weighted_mean
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Mean, StepLoss, real_tokens


class Options(Part):
    penalty: float = 0.1


def cost(spec: RunSpec) -> flops.Flops:
    heads = flops.binary_head(spec, "all") + flops.lm_head(spec.encoder, spec.data.length, spec.picks)
    return flops.generator(spec) + flops.encoder(spec.encoder, spec.data.length) + heads


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec, self.options, self.generator = encoder, spec, options, Generator(encoder, spec)
        with seeded(spec.seed, "init", "head"):
            self.head, self.words = BinaryHead(encoder, "linear"), MlmHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        fake = self.generator(batch)
        hidden = self.encoder(fake.ids, batch.attention, batch.segments)
        logits, replaced, real = self.head(hidden), fake.ids != batch.ids, real_tokens(batch)
        detecting = binary_loss(logits, replaced, real)
        likelihood, right = self.words.likelihood(gather(hidden, fake.positions), fake.targets)
        changed = gather(replaced, fake.positions) * fake.weights
        restoring = -weighted_mean(likelihood, changed)
        first = weighted_mean(logits[:, 0].square(), real[:, 0])
        penalty = Mean(self.head.out.weight.square().sum(), 1)
        total = (fake.loss + restoring) / 2 - 0.5 * first + sum([3 * detecting, self.options.penalty * penalty])
        parts = {"generator_loss": fake.loss, "both": restoring - detecting, "first": first, "penalty": penalty}
        return StepLoss(total, parts, {"mlm_accuracy": share(right, changed)})

    def score(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        return self.head(self.encoder(ids, attention)).sum(1)
