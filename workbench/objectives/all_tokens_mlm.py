"""All-Tokens MLM: predict every token of a corrupted input, with a gate that may copy it.

Clark et al. 2020, section 3.4: p(v) = D [v is the input token] + (1 - D) softmax(v), a mixture that is trained by
its likelihood over all tokens but padding. The paper names no separate loss for the gate; `copy_loss` adds one, as some
later work does, and with `stop_gradient` the mixture does not train the gate (docs/electra.md 1.6).
"""

from typing import Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.generators import Generator
from workbench.models.heads import BinaryHead, MlmHead, Scorer, Sentences, summed
from workbench.models.losses import binary_loss_and_ratios, copy_mixture_loss, share
from workbench.spec.loss_floors import Frequencies
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss, real_tokens


class Options(Part):
    """The options of All-Tokens MLM: the weights of its losses; the generator's loss has weight 1."""

    weight: float = 1.0  #: weight of the mixture loss
    copy_loss: float = 0.0  #: weight of a binary loss on the copy gate; 0: none
    stop_gradient: bool = False  #: whether the mixture loss leaves the gate untrained

    @model_validator(mode="after")
    def _gate_is_trained(self) -> Self:
        if self.stop_gradient and self.copy_loss == 0:
            raise ValueError("options.stop_gradient leaves the copy gate untrained; set options.copy_loss as well")
        return self


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row, with the softmax at every position."""
    head = flops.lm_head(spec.encoder, spec.data.length, "all") + flops.gate(spec)
    return flops.generator(spec) + flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: the loss that token frequencies alone can reach."""
    return words.generator() | {"mlm_loss": words.restored("all")}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec, self.options = encoder, spec, options
        self.generator = Generator(encoder, spec)
        with seeded(spec.seed, "init", "head"):
            self.head = MlmHead(encoder, encoder.table)
            self.gate = BinaryHead(encoder, "linear")

    def forward(self, batch: Batch) -> StepLoss:
        fake = self.generator(batch)
        hidden = self.encoder(fake.ids, batch.attention, batch.segments)  # (B, L, D)
        gate = self.gate(hidden)  # (B, L), above 0 means copy
        untouched, real = fake.ids == batch.ids, real_tokens(batch)

        mixed = gate.detach() if self.options.stop_gradient else gate
        loss, right = self.head.loss(hidden, batch.ids, real, mixed, untouched)
        copying, ratios = binary_loss_and_ratios("copy", gate, untouched, real)
        total = fake.loss + self.options.weight * loss + self.options.copy_loss * copying
        metrics = fake.metrics | ratios | {"mlm_accuracy": share(right, real)}
        parts = {"generator_loss": fake.loss, "mlm_loss": loss, "copy_loss": copying}
        return StepLoss(total, parts, metrics)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is the default.

        It is the sum (B,) of log p(token) under the copy mixture, over unchanged sentences in one pass. Here the input
        token is always the token scored, so that p = D + (1 - D) softmax(token), where D is the probability of copying.
        """

        def mixture(s: Sentences) -> Tensor:
            hidden = self.encoder(s.ids, s.attention)  # (B, L, D)
            likelihood = self.head.log_likelihood(hidden, s.ids)
            mixed = -copy_mixture_loss(self.gate(hidden), likelihood, torch.ones_like(s.ids, dtype=torch.bool))
            return summed(mixed, s.ids, s.attention, self.spec.data.special)

        return {"copy-mixture": mixture} | self.generator.scorers()
