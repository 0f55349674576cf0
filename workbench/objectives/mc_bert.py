"""MC-BERT: at every token, choose the original among candidates of a controller, or "neither" if it was not replaced.

Xu et al. 2020, "MC-BERT", and its released code; the generator is the controller. The first candidate is "neither",
right for a token that was not replaced, the second the original of one that was, the others samples, maybe the same.
"""

import torch
from torch import Tensor, nn

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.generators import Generator, require_weights
from workbench.models.heads import Scorer, SelectionHead, Sentences, summed
from workbench.models.losses import cross_entropy, share, weighted_mean
from workbench.spec.loss_floors import Frequencies
from workbench.spec.parts import Extent, Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss, real_tokens


class Options(Part):
    """The options of MC-BERT."""

    weight: float = 50.0  #: weight of the loss; the controller's loss has weight 1
    tokens: Extent = 9  #: candidates besides "neither"


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row; the controller's logits are computed at all positions too."""
    everywhere = flops.lm_head(spec.generator_encoder, spec.data.length, "all").frozen()
    head = flops.lm_head(spec.encoder, spec.data.length, "all", 1 + Options(**spec.options).tokens)
    return flops.generator(spec) + everywhere + flops.encoder(spec.encoder, spec.data.length) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of the controller's loss by its name: the loss that token frequencies alone can reach."""
    return words.generator()


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        require_weights(spec)
        self.encoder, self.spec, self.options, self.generator = encoder, spec, options, Generator(encoder, spec)
        with seeded(spec.seed, "init", "head"):
            self.head = SelectionHead(encoder, encoder.table, neither=True)

    def forward(self, batch: Batch) -> StepLoss:
        fake, states = self.generator.with_states(batch)
        replaced, real = fake.ids != batch.ids, real_tokens(batch)
        samples = self.generator.candidates(states, batch.keys, self.options.tokens)  # (B, L, C)
        first = torch.where(replaced, batch.ids, samples[..., 0])
        candidates = torch.cat([first[..., None], samples[..., 1:]], -1)
        logits = self.head(self.encoder(fake.ids, batch.attention, batch.segments), candidates)  # (B, L, 1 + C)
        loss = weighted_mean(cross_entropy(logits, replaced.long()), real)
        chosen = logits.argmax(-1)
        metrics = {"selection_accuracy": share(chosen == replaced, real), "neither_rate": share(chosen == 0, real)}
        parts = {"generator_loss": fake.loss, "selection_loss": loss}
        return StepLoss(fake.loss + self.options.weight * loss, parts, fake.metrics | metrics)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name: first the sum of log P("neither"), all words being candidates."""

        def neither(s: Sentences) -> Tensor:
            log_likelihoods = self.head.log_neither(self.encoder(s.ids, s.attention))
            return summed(log_likelihoods, s.ids, s.attention, self.spec.data.special)

        return {"neither": neither} | self.generator.scorers()
