"""Multi-word selection: RTD, and at the picks also the choice of the original among different samples (TEAMS).

Shen et al. 2021, "Training ELECTRA augmented with multi-word selection", section 3; weights of the released code. Left
out: a last layer of RTD's own, and the lower layers that generator and encoder share.
"""

from workbench.models import flops
from workbench.models.encoder import Encoder, seeded
from workbench.models.generators import require_weights
from workbench.models.heads import BinaryHead, SelectionHead
from workbench.models.losses import binary_loss_and_ratios, gather, share, weighted_mean
from workbench.objectives import rtd
from workbench.spec.parts import Extent
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss, real_tokens


class Options(rtd.Options):
    """The options of multi-word selection."""

    weight: float = 5.0  #: weight of the detection loss; the generator's loss has weight 1
    selection: float = 2.0  #: weight of the selection loss
    others: Extent = 4  #: other samples among which the original is chosen


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row; the generator's logits are computed twice, for candidates."""
    again = flops.lm_head(spec.generator_encoder, spec.data.length, spec.picks).frozen()
    among = 1 + Options(**spec.options).others
    return rtd.cost(spec) + again + flops.lm_head(spec.encoder, spec.data.length, spec.picks, among)


floors = rtd.floors


class Objective(rtd.Objective):
    options: Options

    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        require_weights(spec)
        super().__init__(encoder, spec, options)
        with seeded(spec.seed, "init", "head"):  # the second head draws after the first
            self.head, self.selection = BinaryHead(encoder, spec.head), SelectionHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        (fake, states), count = self.generator.with_states(batch), self.options.others
        hidden = self.encoder(fake.ids, batch.attention, batch.segments)  # (B, L, D)
        logits, replaced, real = self.head(hidden), fake.ids != batch.ids, real_tokens(batch)  # (B, L) each
        detecting, metrics = binary_loss_and_ratios("discriminator", logits, replaced, real)
        words = self.generator.candidates(gather(states, fake.positions), batch.keys, count, fake.targets)
        scores = self.selection(gather(hidden, fake.positions), words)  # (B, K, 1 + C), the first one is right
        selecting = weighted_mean(-scores.float().log_softmax(-1)[..., 0], fake.weights)
        metrics["selection_accuracy"] = share(scores.argmax(-1) == 0, fake.weights)
        parts = {"generator_loss": fake.loss, "discriminator_loss": detecting, "selection_loss": selecting}
        weighted = self.options.weight * detecting + self.options.selection * selecting
        return StepLoss(fake.loss + weighted, parts, fake.metrics | metrics)
