"""Replace MLM: predict the picked tokens from an input that holds a generator's samples in place of [MASK].

Clark et al. 2020, section 3.4: how much of the gain comes from never seeing [MASK] in pre-training.
"""

from __future__ import annotations

from torch import nn

from workbench import flops
from workbench.corruption import Generator
from workbench.flops import Flops
from workbench.frequencies import Frequencies
from workbench.losses import gather, share
from workbench.models.encoder import Encoder, seeded
from workbench.models.heads import MlmHead
from workbench.parts import Part
from workbench.spec import RunSpec
from workbench.tensors import Batch, StepLoss


class Options(Part):
    """`weight` of the main loss; the generator's has weight 1. Not stated in the paper (docs/electra.md 1.9)."""

    weight: float = 1.0


def cost(spec: RunSpec) -> Flops:
    """Of one forward pass over one row."""
    head = flops.lm_head(spec.encoder, spec.data.length, spec.picks)
    return flops.generator(spec) + flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return what each loss comes to for a model that knows token frequencies and no more."""
    return words.generator() | {"mlm_loss": words.restored("picks")}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.options = encoder, options
        self.generator = Generator(encoder, spec)
        with seeded(spec.seed, "init", "head"):
            self.head = MlmHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        fake = self.generator(batch)
        hidden = gather(self.encoder(fake.ids, batch.attention), fake.positions)  # (B, K, D)
        loss, right = self.head.loss(hidden, fake.targets, fake.weights)
        metrics = fake.metrics | {"mlm_accuracy": share(right, fake.weights)}
        total = fake.loss + self.options.weight * loss
        return StepLoss(total, {"generator_loss": fake.loss, "mlm_loss": loss}, metrics)
