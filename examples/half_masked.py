"""Half-masked: predict the picked tokens; about half of them are masked, and the others stay as they are."""

from workbench.models.corruption import mask_tokens
from workbench.models.losses import gather
from workbench.objectives import bert_mlm
from workbench.spec.parts import Part
from workbench.tensors import StepLoss


class Options(Part):
    shown: float = 0.5  # share of the picked tokens; --set options.shown=0.3


cost = bert_mlm.cost  # the same encoder and head, so the same FLOPs


class Objective(bert_mlm.Objective):
    def __init__(self, encoder, spec, options):
        super().__init__(encoder, spec, options)
        self.options = options

    def forward(self, batch):
        masked = mask_tokens(batch, self.spec, 1 - self.options.shown)
        hidden = gather(self.encoder(masked.ids, batch.attention, batch.segments), masked.positions)
        loss, _ = self.head.loss(hidden, masked.targets, masked.weights)
        return StepLoss(loss, {"mlm_loss": loss}, masked.metrics)
