# %% [markdown]
# # An objective of one's own
#
# An objective is a module with three names: `Options`, `cost` and `Objective` (CONTRIBUTING.md, "An objective"). It is
# written to a file, since the file's hash is part of what a run is: an edited objective makes other runs. This one is
# BERT's, with half of the picked tokens masked and the other half kept.

# %%
from pathlib import Path

import workbench as wb

OBJECTIVE = '''"""Half-masked: predict the picked tokens, of which every other one is shown as it is."""

from torch import nn

from workbench.models import flops
from workbench.models.corruption import mask_tokens
from workbench.models.heads import MlmHead
from workbench.models.losses import gather, share, weighted_mean
from workbench.spec.parts import Part
from workbench.tensors import StepLoss


class Options(Part):
    shown: float = 0.5


def cost(spec):
    head = flops.lm_head(spec.encoder, spec.data.length, spec.picks)
    return flops.encoder(spec.encoder, spec.data.length) + head


class Objective(nn.Module):
    def __init__(self, encoder, spec, options):
        super().__init__()
        self.encoder, self.spec, self.options = encoder, spec, options
        self.head = MlmHead(encoder, encoder.table)

    def forward(self, batch):
        masked = mask_tokens(batch, self.spec, 1 - self.options.shown)
        hidden = gather(self.encoder(masked.ids, batch.attention), masked.positions)
        likelihood, right = self.head.likelihood(hidden, masked.targets)
        loss = -weighted_mean(likelihood, masked.weights)
        return StepLoss(loss, {"mlm_loss": loss}, {"mlm_accuracy": share(right, masked.weights)})
'''
Path("half_masked.py").write_text(OBJECTIVE)

# %% [markdown]
# What would be run? Each run gets the FLOPs of the first, by the price that `cost` gives.

# %%
words = {"objectives": ["bert-mlm", "./half_masked.py"], "tasks": "linear:next", "seeds": 3, "workers": 2}
print(wb.plan("ablation", **words)[["objective", "seed", "steps", "tokens"]])

# %%
study = wb.run("ablation", **words)
print(study.compare("half-masked", "bert-mlm"))
