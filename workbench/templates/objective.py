"""NAME: predict the picked tokens, which are masked. This line is the summary in `workbench list objectives`.

An objective is a file with three names, `Options`, `cost` and `Objective`. Commands with --objective run it:

    workbench check FILE
    workbench run ablation --objective bert-mlm --objective FILE --tasks pairs:replace

The hash of the file is part of a run's name, so an edited file makes other runs. Draw random numbers by the keys of the
rows (`workbench.rng.uniform`), so that a run that is stopped goes on with the same ones.

B rows, L positions, K picked positions of a row, D width of the encoder.
"""

from __future__ import annotations

from torch import Tensor, nn

from workbench.models import flops
from workbench.models.corruption import mask_tokens
from workbench.models.encoder import Encoder, seeded
from workbench.models.flops import Flops
from workbench.models.heads import MlmHead, pseudo_log_likelihood
from workbench.models.losses import gather, share, weighted_mean
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss


class Options(Part):
    """Settings of this objective alone, as in `--set options.shown=0.2`."""

    shown: float = 0.1  #: share of the picked tokens that are not masked


def cost(spec: RunSpec) -> Flops:
    """Return the FLOPs of one forward pass over one row; `workbench check` compares them with torch's counter.

    `workbench.models.flops` has the parts; budgets and plots of compute depend on this.
    """
    length = spec.data.length
    return flops.encoder(spec.encoder, length) + flops.lm_head(spec.encoder, length, spec.picks)


class Objective(nn.Module):
    """The module that a run trains. `self.encoder` is what is exported in the end; all else is kept beside it."""

    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec, self.options = encoder, spec, options
        with seeded(spec.seed, "init", "head"):  # so that initial weights depend on the seed alone
            self.head = MlmHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        """Return the loss of a batch: the total, its parts, and metrics as numerators and denominators.

        The names of parts and metrics become columns of metrics.jsonl.
        """
        masked = mask_tokens(batch, self.spec, 1 - self.options.shown)  # ids (B, L), positions and targets (B, K)
        states = self.encoder(masked.ids, batch.attention, batch.segments)  # (B, L, D)
        log_p, right = self.head.likelihood(gather(states, masked.positions), masked.targets)  # (B, K) each
        # `weighted_mean` makes a mean that is the same in any micro-batches, and on any number of devices.
        loss = -weighted_mean(log_p, masked.weights)  # unused slots have weight 0
        metrics = masked.metrics | {"mlm_accuracy": share(right, masked.weights)}
        return StepLoss(loss, {"mlm_loss": loss}, metrics)

    def score(self, ids: Tensor, attention: Tensor | None = None) -> Tensor:
        """Return how plausible each sentence is, (B,), for minimal pairs; without this method they are not measured."""
        return pseudo_log_likelihood(self.encoder, self.head, ids, attention, self.spec.data.special)
