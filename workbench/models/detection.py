"""Scores of sentences by a detector of replaced tokens, for RTD and the objectives that are derived from it.

B sentences, L positions. The input is the sentence without masks, in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench.models.corruption import Generator
from workbench.models.encoder import Encoder
from workbench.models.heads import BinaryHead
from workbench.models.sentence_scores import Scorer, summed


@dataclass(frozen=True)
class Detector:
    """An encoder with a head that detects replaced tokens (logits above 0), and the generator it was trained with."""

    encoder: Encoder
    head: BinaryHead
    generator: Generator

    def originality(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        """Return the sum (B,) of log P(original) over the tokens of sentences ids (B, L).

        Xia et al. 2022, "Prompting ELECTRA", score the options of a prompt in this way.
        """
        logits = self.head(self.encoder(ids, attention))  # (B, L)
        return summed(F.logsigmoid(-logits.float()), ids, attention, self.generator.spec.data.special)

    def electric(self, ids: Tensor, attention: Tensor | None, log_q: Tensor | None = None) -> Tensor:
        """Return the sum (B,) of log q(token) - logit: the generator's log-probability, corrected by the head.

        `log_q` (B,) is the generator's score of the sentences, if it is known.

        At the optimum, each term is log p(token | other tokens) up to a constant (Clark et al. 2020, "Pre-training
        transformers as energy-based cloze models"). Here this holds only roughly, since a sample that equals the
        original is labelled original.
        """
        logits = self.head(self.encoder(ids, attention))  # (B, L)
        corrections = summed(logits, ids, attention, self.generator.spec.data.special)
        return (self.generator.score(ids, attention) if log_q is None else log_q) - corrections

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways to score sentences, including those of the generator by itself."""
        return {
            "originality": lambda s: self.originality(s.ids, s.attention),
            "electric": lambda s: self.electric(
                s.ids, s.attention, s.once("generator-pll", lambda: self.generator.score(s.ids, s.attention))
            ),
            **self.generator.scorers(),
        }
