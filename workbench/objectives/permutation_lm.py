"""Permutation LM: predict some of the tokens in a random order, each from those before it and all that are given.

Yang et al. 2019, "XLNet: Generalized autoregressive pretraining for language understanding", sections 2.2 and 2.3, over
the encoder of the other objectives, or with `encoder.family=xlnet` that of XLNet. Inputs are not corrupted: tokens are
hidden by attention masks that follow the order, and predicted by a second stream of states that does not see the token
at its own position. There is neither a generator nor a corruption.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from workbench.models import flops
from workbench.models.corruption import pick_spans, slots, visible_before, visible_except, visible_in_order
from workbench.models.encoder import Encoder, seeded
from workbench.models.families import family_of
from workbench.models.heads import MlmHead, Scorer, Sentences, TiedHead, pseudo_log_likelihood, summed
from workbench.models.losses import gather, share
from workbench.models.two_streams import Queries
from workbench.spec.loss_floors import Frequencies, entropy
from workbench.spec.parts import Part
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, StepLoss, real_tokens


class Options(Part):
    """The options of permutation LM, with the values of the released code."""

    alpha: Annotated[int, Field(ge=1, le=2**20)] = 6  #: one token in so many is predicted
    longest: Annotated[int, Field(ge=1, le=100)] = 5  #: longest span of predicted tokens


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row: both streams, and the softmax at the predicted positions."""
    length = spec.data.length
    predicted = slots(length, int(spec.options["alpha"]))
    head = flops.lm_head(spec.encoder, length, predicted, dense=not family_of(spec.encoder).TIED_QUERY_HEAD)
    return flops.two_streams(spec.encoder, length, predicted) + head


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floor of each logged loss by its name: the loss that token frequencies alone can reach."""
    return {"lm_loss": entropy(words.words)}


class Objective(nn.Module):
    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        super().__init__()
        self.encoder, self.spec, self.options = encoder.with_query_stream(), spec, options
        with seeded(spec.seed, "init", "head"):
            tied = encoder.family.TIED_QUERY_HEAD
            self.head = TiedHead(encoder.table, with_bias=True) if tied else MlmHead(encoder, encoder.table)

    def forward(self, batch: Batch) -> StepLoss:
        special = self.spec.data.special
        positions, weights = pick_spans(batch, special, self.options.alpha, self.options.longest)  # (B, K) each
        visible = visible_in_order(batch, special, positions, weights)  # (B, L, L)
        weights = weights * gather(visible, positions).any(-1)  # in a row of three tokens, one may see nothing
        hidden = self.encoder(batch.ids, segments=batch.segments, queries=Queries(visible, positions))  # (B, K, D)
        loss, right = self.head.loss(hidden, gather(batch.ids, positions), weights)

        picked = torch.zeros_like(batch.ids, dtype=torch.bool).scatter(1, positions, weights > 0)
        metrics = {"lm_accuracy": share(right, weights), "mask_rate": share(picked, real_tokens(batch))}
        return StepLoss(loss, {"lm_loss": loss}, metrics)

    def states_at(self, ids: Tensor, attention: Tensor | None, places: Tensor) -> Tensor:
        """Return states (B, D) that predict the tokens at places (B,) from all other tokens, which do not see them."""
        states: Tensor = self.encoder(ids, queries=Queries(visible_except(ids, attention, places), places[:, None]))
        return states[:, 0]

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences by name; the first is the default.

        `left-to-right` is the sum (B,) of log p(token | tokens before it), in one pass: the factorisation of the
        likelihood from left to right (equation 1), one of the orders of equation 3. `pll` is the sum of log p(token |
        all other tokens) (Salazar et al. 2020), where each token is the last one of an order.
        """
        special = self.spec.data.special

        def left_to_right(s: Sentences) -> Tensor:
            targets = s.ids[:, 1:]
            places = torch.arange(1, s.ids.shape[1], device=s.ids.device).expand(len(s.ids), -1)
            hidden = self.encoder(s.ids, queries=Queries(visible_before(s.ids, s.attention), places))  # (B, L - 1, D)
            likelihood = self.head.log_likelihood(hidden, targets)
            return summed(likelihood, targets, None if s.attention is None else s.attention[:, 1:], special)

        return {
            "left-to-right": left_to_right,
            "pll": lambda s: pseudo_log_likelihood(self, self.head, s.ids, s.attention, special),
        }
