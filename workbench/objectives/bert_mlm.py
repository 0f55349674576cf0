"""BERT MLM: predict the picked tokens from a masked input.

Devlin et al. 2019; Clark et al. 2020, section 3.4: 80 % of the picks become [MASK], 10 % a random token, and 10 % stay
as they are. The shares are `corruption.mask` and `corruption.random`; there is no generator.
"""

from torch import Tensor, nn

from workbench.models import flops
from workbench.models.corruption import mask_tokens
from workbench.models.encoder import Encoder, seeded
from workbench.models.heads import MlmHead, Scorer, masked_scorers
from workbench.models.losses import gather, share
from workbench.spec.loss_floors import Frequencies
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Corruption, StepLoss, real_tokens

Options = Part  # there are none


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row."""
    return flops.encoder(spec.encoder, spec.data.length) + flops.lm_head(spec.encoder, spec.data.length, spec.picks)


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: the loss that token frequencies alone can reach."""
    shares = words.spec.corruption
    return {"mlm_loss": words.masked(shares.mask, shares.random)}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec = encoder, spec
        with seeded(spec.seed, "init", "head"):
            self.head = MlmHead(encoder, encoder.table)

    def masked(self, batch: Batch, picks: tuple[Tensor, Tensor] | None = None) -> Corruption:
        """Return the batch with its picks as [MASK], as random tokens or unchanged, in the shares of the spec."""
        shares = self.spec.corruption
        return mask_tokens(batch, self.spec, shares.mask, shares.random, picks)

    def forward(self, batch: Batch) -> StepLoss:
        masked = self.masked(batch)
        hidden = gather(self.encoder(masked.ids, batch.attention, batch.segments), masked.positions)  # (B, K, D)
        loss, right = self.head.loss(hidden, masked.targets, masked.weights)
        metrics = masked.metrics | {
            "mlm_accuracy": share(right, masked.weights),
            "replaced_rate": share(masked.ids != batch.ids, real_tokens(batch)),
        }
        return StepLoss(loss, {"mlm_loss": loss}, metrics)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is the default."""
        return masked_scorers(self.encoder, self.head, self.spec.data.special)
