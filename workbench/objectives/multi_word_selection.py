"""Multi-word selection: RTD, and at the picks also the choice of the original among different samples (TEAMS).

Shen et al. 2021, "Training ELECTRA augmented with multi-word selection", section 3; weights of the released code. Left
out: a last layer of RTD's own, and the lower layers that generator and encoder share.
"""

import torch
from torch import Tensor, nn

from workbench.models import flops
from workbench.models.corruption import Generator, real_tokens, require_weights
from workbench.models.detection import Detector
from workbench.models.encoder import Encoder, seeded
from workbench.models.frequencies import Frequencies
from workbench.models.heads import BinaryHead, SelectionHead
from workbench.models.losses import binary_loss, binary_ratios, cross_entropy, gather, share, weighted_mean
from workbench.models.sentence_scores import Scorer
from workbench.spec.parts import Extent, Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss


class Options(Part):
    """Weights of the losses of detection and selection, beside the generator's of 1; the number of other samples."""

    weight: float = 5.0
    selection: float = 2.0
    others: Extent = 4


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row; the generator's logits are computed twice, for candidates."""
    again = flops.lm_head(spec.generator_encoder, spec.data.length, spec.picks).frozen()
    heads = flops.lm_head(spec.encoder, spec.data.length, spec.picks, 1 + Options(**spec.options).others)
    heads += flops.binary_head(spec, "all")
    return flops.generator(spec) + again + flops.encoder(spec.encoder, spec.data.length) + heads


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
        fake, states = self.generator.with_states(batch)
        hidden = self.encoder(fake.ids, batch.attention, batch.segments)  # (B, L, D)
        logits, replaced, real = self.head(hidden), fake.ids != batch.ids, real_tokens(batch)  # (B, L) each
        detection = binary_loss(logits, replaced, real)
        at_picks, others = gather(states, fake.positions), self.options.others
        candidates = self.generator.candidates(at_picks, batch.keys, others, without=fake.targets)
        candidates = torch.cat([fake.targets[..., None], candidates], -1)
        scores = self.selection(gather(hidden, fake.positions), candidates)  # (B, K, 1 + C), the first one is right
        selection = weighted_mean(cross_entropy(scores, torch.zeros_like(fake.targets)), fake.weights)
        metrics = fake.metrics | binary_ratios("discriminator", logits, replaced, real)
        metrics["selection_accuracy"] = share(scores.argmax(-1) == 0, fake.weights)
        parts = {"generator_loss": fake.loss, "discriminator_loss": detection, "selection_loss": selection}
        weighted = self.options.weight * detection + self.options.selection * selection
        return StepLoss(fake.loss + weighted, parts, metrics)

    def score(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        """Return the sum (B,) of log P(original) over the tokens of sentences ids (B, L), in one pass."""
        return Detector(self.encoder, self.head, self.generator).originality(ids, attention)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is that of `score`."""
        return Detector(self.encoder, self.head, self.generator).scorers()
