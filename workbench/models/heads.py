"""The heads of an encoder in pre-training, and scores of sentences by them. The encoder is exported without its heads.

B rows, N positions, D width of the encoder, E width of the embeddings, V size of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from workbench.cpu import functions
from workbench.models.encoder import Encoder, initialise
from workbench.models.losses import (
    CHUNK,
    binary_loss_and_ratios,
    copy_mixture_loss,
    cross_entropy,
    gather,
    guess_by_blocks,
    is_most_probable,
    share,
    token_log_likelihood,
    weighted_mean,
)
from workbench.spec.parts import Special
from workbench.tensors import Batch, Corruption, Guess, Mean, Ratio, StepLoss, ordinary, real_tokens, sample


class MlmHead(nn.Module):
    """A dense layer to embedding width, GELU and layer norm, then the product with a token table, plus a bias.

    The table is not a copy, so that this head also trains a tied table (docs/electra.md 1.2 and 2). Losses are computed
    by `cpu/functions.py`, except if `plain`, or under torch.compile.
    """

    plain = False

    def __init__(self, encoder: Encoder, table: nn.Embedding) -> None:
        super().__init__()
        self.dense = nn.Linear(encoder.spec.hidden, table.embedding_dim)
        self.norm = nn.LayerNorm(table.embedding_dim, eps=1e-12)
        initialise(self, encoder.spec.init)
        self.table = table
        self.bias = nn.Parameter(table.weight.new_zeros(table.num_embeddings))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., V) for hidden (..., D)."""
        return F.linear(self._transform(hidden), self.table.weight, self.bias)

    def likelihood(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return log q(target) for hidden (B, N, D), and whether the target is the most probable token, (B, N) each."""
        return token_log_likelihood(self._transform(hidden), self.table.weight, self.bias, targets)

    @torch.no_grad()
    def log_likelihood(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return log q(target) (...) for hidden (..., D), in fp32 or wider, without gradient."""
        states, words = hidden.flatten(0, -2), targets.flatten()
        if self._stepwise:
            return self.likelihood(states[None], words[None])[0].view_as(targets)
        found = functions.log_likelihood(self._transform(states), self.table.weight, self.bias, words)
        return found.view_as(targets)

    def loss(
        self, hidden: Tensor, targets: Tensor, weights: Tensor, gate: Tensor | None = None,
        untouched: Tensor | None = None,
    ) -> tuple[Mean, Tensor]:  # fmt: skip
        """Return the weighted mean cross-entropy, and whether each target is the most probable token (B, N).

        hidden (B, N, D), targets (B, N), weights (B, N). With the logits of copying, gate (B, N), and untouched (B, N)
        bool, which is true where the token shown is the original, it is `losses.copy_mixture_loss`.
        """
        if self._stepwise:
            likelihood, right = self.likelihood(hidden, targets)
            if gate is not None and untouched is not None:
                return weighted_mean(copy_mixture_loss(gate, likelihood, untouched), weights), right
            return -weighted_mean(likelihood, weights), right
        copying = [None if each is None else each.flatten() for each in (gate, untouched)]
        result = self._at_once(hidden, targets, weights, gate=copying[0], copied=copying[1])
        return result.loss, result.right

    def guess(self, hidden: Tensor, targets: Tensor, weights: Tensor, draws: Tensor, temperature: float = 1.0) -> Guess:
        """Return the same as `loss`, and tokens (B, N) sampled from softmax(logits / temperature), without gradient.

        The cumulative distribution is inverted at draws (B, N) in [0, 1), one for each token. The samples have the same
        distribution as those of the Gumbel-max trick (docs/electra.md 1.2), which takes V times more random numbers.
        """
        if not self._stepwise:
            return self._at_once(hidden, targets, weights, draws=draws.flatten(), temperature=temperature)
        logits = self(hidden)  # (B, N, V)
        if _compiled_for_gpu(logits):
            found = guess_by_blocks(logits.flatten(0, 1), targets.flatten(), draws.flatten(), temperature)
            losses, right, samples, sample_nll = (each.view_as(targets) for each in found)
            return Guess(samples, weighted_mean(losses, weights), right, sample_nll)
        scaled = logits.detach().float() / temperature
        samples = sample(scaled.softmax(-1).flatten(0, 1), draws.flatten()).view_as(targets)
        loss = weighted_mean(cross_entropy(logits, targets), weights)
        return Guess(samples, loss, is_most_probable(logits.detach(), targets), cross_entropy(scaled, samples))

    @torch.no_grad()
    def draw(self, hidden: Tensor, draws: Tensor, temperature: float = 1.0, without: Tensor | None = None) -> Tensor:
        """Return C tokens for each position, (B, N, C), sampled from softmax(logits / temperature) at draws (B, N, C).

        With `without` (B, N), the tokens of a position are different from that token and from each other, as if each
        were drawn again until it is new. At most CHUNK logits are held at once.
        """
        features, numbers = self._transform(hidden).flatten(0, 1), draws.flatten(0, 1)
        never = None if without is None else without.flatten()
        rows, tokens = max(1, CHUNK // len(self.bias)), []
        for start in range(0, len(features), rows):
            part = slice(start, start + rows)
            logits = F.linear(features[part], self.table.weight, self.bias).float() / temperature
            tokens.append(_several(logits.softmax(-1), numbers[part], None if never is None else never[part]))
        return torch.cat(tokens).view_as(draws).long()

    @property
    def _stepwise(self) -> bool:
        """Whether losses are computed from all logits by torch, instead of by `cpu/functions.py`."""
        return self.plain or torch.compiler.is_compiling()

    def _at_once(self, hidden: Tensor, targets: Tensor, weights: Tensor, **more: Any) -> Guess:
        """Return loss and samples from one pass over the vocabulary; the tensors in `more` are (B * N,)."""
        features = self._transform(hidden).flatten(0, 1)
        result = functions.guess(features, self.table.weight, self.bias, targets.flatten(), weights.flatten(), **more)
        shaped = {name: getattr(result, name).view_as(targets) for name in ("samples", "right", "sample_nll")}
        return replace(result, **shaped)

    def _transform(self, hidden: Tensor) -> Tensor:
        """Return the features (..., E) of hidden (..., D), which are multiplied by the table."""
        out: Tensor = self.norm(F.gelu(self.dense(hidden)))
        return out


def _compiled_for_gpu(x: Tensor) -> bool:
    return x.is_cuda and torch.compiler.is_compiling()


def _several(probs: Tensor, draws: Tensor, without: Tensor | None) -> Tensor:
    """Return tokens (N, C) in proportion to probs (N, V) at draws (N, C); distinct ones if `without` (N,) is given."""
    tokens: list[Tensor] = []
    probs = probs.clamp(min=1e-30)  # so that something is left if a token that is excluded had all of the probability
    for column in draws.unbind(1):
        if without is not None:
            probs = probs.scatter(1, (tokens[-1] if tokens else without)[:, None], 0.0)
        tokens.append(sample(probs, column))
    return torch.stack(tokens, 1)


class SelectionHead(nn.Module):
    """A dense layer to embedding width, GELU and layer norm, then products with the embeddings of a few candidates.

    There is no bias after the products, as in the released code of TEAMS (tensorflow/models, official/projects/teams).
    If `neither`, a candidate that stands for no token comes first, and has an embedding of its own.
    """

    def __init__(self, encoder: Encoder, table: nn.Embedding, neither: bool = False) -> None:
        super().__init__()
        self.dense = nn.Linear(encoder.spec.hidden, table.embedding_dim)
        self.norm = nn.LayerNorm(table.embedding_dim, eps=1e-12)
        self.neither = nn.Linear(table.embedding_dim, 1, bias=False) if neither else None
        initialise(self, encoder.spec.init)
        self.table = table

    def forward(self, hidden: Tensor, candidates: Tensor) -> Tensor:
        """Return the logits (B, N, C), or (B, N, 1 + C) if `neither`, for hidden (B, N, D), candidates (B, N, C)."""
        features = self._transform(hidden)
        embeddings = F.embedding(candidates, self.table.weight)  # the table itself gives padding no gradient
        logits = (embeddings @ features[..., None])[..., 0]
        return logits if self.neither is None else torch.cat([self.neither(features), logits], -1)

    @torch.no_grad()
    def log_neither(self, hidden: Tensor) -> Tensor:
        """Return log P(neither) (B, N) with the whole vocabulary as candidates, for hidden (B, N, D)."""
        assert self.neither is not None, "a head without the candidate `neither`"
        table = torch.cat([self.table.weight, self.neither.weight])  # (V + 1, E)
        features = self._transform(hidden).flatten(0, 1)
        right = torch.full((len(features),), len(table) - 1, device=hidden.device)
        log_likelihoods = functions.log_likelihood(features, table, table.new_zeros(len(table)), right)
        return log_likelihoods.view(hidden.shape[:2])

    def _transform(self, hidden: Tensor) -> Tensor:
        """Return the features (..., E) of hidden (..., D), which are multiplied by embeddings."""
        out: Tensor = self.norm(F.gelu(self.dense(hidden)))
        return out


class TiedHead(MlmHead):
    """The product of hidden states with a token table as wide as these, as in GPT, GPT-2 and XLNet.

    Radford et al. 2018, equation 2. It has no weights of its own but a bias in XLNet; in the others `bias` stays 0.
    """

    def __init__(self, table: nn.Embedding, with_bias: bool = False) -> None:
        nn.Module.__init__(self)
        self.table = table
        bias = table.weight.new_zeros(table.num_embeddings)
        if with_bias:
            self.bias = nn.Parameter(bias)
        else:
            self.register_buffer("bias", bias, persistent=False)

    def _transform(self, hidden: Tensor) -> Tensor:
        return hidden


class BinaryHead(nn.Module):
    """A head with one logit for each position.

    `linear` is w.h as in the paper; `dense` adds a dense layer and GELU before it, as in the released code. The last
    weights have a standard deviation of init / sqrt(D), so that logits start near 0 and the loss at ln 2. With the
    Glorot initialisation of the released code, an untrained model has about the same logit at every token; since six in
    seven tokens are originals, the first RTD loss then lies anywhere between 41 and 49 at the width of Small.
    """

    def __init__(self, encoder: Encoder, kind: Literal["linear", "dense"]) -> None:
        super().__init__()
        width = encoder.spec.hidden
        self.dense = nn.Linear(width, width) if kind == "dense" else None
        self.out = nn.Linear(width, 1)
        initialise(self, encoder.spec.init)
        nn.init.normal_(self.out.weight, std=encoder.spec.init / math.sqrt(width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits (B, N) for hidden (B, N, D)."""
        if self.dense is not None:
            hidden = F.gelu(self.dense(hidden))
        out: Tensor = self.out(hidden).squeeze(-1)
        return out


# ----------------------------------------
# The two losses of models that are trained on pairs of segments: masked tokens, and whether the pair was taken apart.
#
# B rows, L positions, D width of the encoder.


class PairHead(nn.Module):
    """The head that predicts whether the second segment of a row follows the first, from the state of [CLS].

    A dense layer with tanh, BERT's pooler, and a layer with two outputs, as in the released code
    (google-research/bert, `modeling.py` and `run_pretraining.py`).
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        width = encoder.spec.hidden
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 2)
        initialise(self, encoder.spec.init)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits (B, 2), of "follows" and of "does not follow", for hidden (B, D)."""
        out: Tensor = self.out(torch.tanh(self.dense(hidden)))
        return out

    def loss(self, hidden: Tensor, broken: Tensor, name: str) -> tuple[Mean, dict[str, Ratio]]:
        """Return the mean cross-entropy of broken (B,) bool given the states of [CLS], hidden (B, D), and metrics.

        The metrics have names that begin with `name`: the metrics of `binary_ratios`, and the share of broken pairs.
        """
        logits = self(hidden).float()
        margin, counted = logits[:, 1:] - logits[:, :1], torch.ones_like(broken)[:, None]  # (B, 1) each
        loss, metrics = binary_loss_and_ratios(name, margin, broken[:, None], counted)
        return loss, metrics | {f"{name}_broken_rate": share(broken[:, None], counted)}


def pair_losses(
    encoder: Encoder, head: MlmHead, pair_head: PairHead, batch: Batch, masked: Corruption, name: str
) -> StepLoss:
    """Return the sum of both losses, each a mean, for the masked rows of a batch of pairs.

    `name` is the name of the second loss in metrics: `nsp` for next sentence, `sop` for sentence order.
    """
    assert batch.broken is not None, "rows without pairs"
    hidden = encoder(masked.ids, batch.attention, batch.segments)  # (B, L, D)
    words, right = head.loss(gather(hidden, masked.positions), masked.targets, masked.weights)
    pairs, metrics = pair_head.loss(hidden[:, 0], batch.broken, name)
    metrics |= masked.metrics | {
        "mlm_accuracy": share(right, masked.weights),
        "replaced_rate": share(masked.ids != batch.ids, real_tokens(batch)),
    }
    return StepLoss(words + pairs, {"mlm_loss": words, f"{name}_loss": pairs}, metrics)


# ----------------------------------------
# Scores of sentences: how plausible each is to a model. The `score` of each objective is built from these.
#
# B sentences, L positions, D width. Special tokens and padding are never scored, [UNK] is; sums run in float64.

# Tokens, with padding, of the masked copies that are computed at once. A GPU takes as long for small batches as for
# large ones.
TOKENS = {"cpu": 1 << 13, "cuda": 1 << 17}


@dataclass(frozen=True)
class Sentences:
    """A batch of tokenised sentences.

    ids (B, L) int64; attention (B, L) bool, True on tokens, or None if no row is padded; words (B, L) int64, the index
    within the sentence of the word to which each token belongs.
    """

    ids: Tensor
    attention: Tensor | None
    words: Tensor
    kept: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Return a value of these sentences that several scorers use; it is computed on its first use."""
        if name not in self.kept:
            self.kept[name] = compute()
        return self.kept[name]


Scorer = Callable[[Sentences], Tensor]  # the log-plausibility of each sentence (B,), float64


def summed(values: Tensor, ids: Tensor, attention: Tensor | None, special: Special) -> Tensor:
    """Return the sum (B,) of values (B, L) over tokens that are neither special nor padding."""
    return values.double().masked_fill(~ordinary(ids, attention, special), 0.0).sum(1)


def pseudo_log_likelihood(
    encoder: Any, head: Any, ids: Tensor, attention: Tensor | None, special: Special, words: Tensor | None = None
) -> Tensor:
    """Return the sum (B,) of log p(token | all other tokens), with each token masked in its own copy of the sentence.

    Salazar et al. 2020, "Masked language model scoring". If words (B, L) are given, later tokens of the same word are
    masked too: Kauf and Ivanova 2023, "A better way to do masked language model scoring" (word-l2r), which corrects the
    inflated scores of words of several tokens. Logits are computed only at the position that is scored: the
    encoder has `Encoder.states_at`, and the head `MlmHead.log_likelihood`.
    """
    rows, places = ordinary(ids, attention, special).nonzero(as_tuple=True)  # one copy for each token
    columns = torch.arange(ids.shape[1], device=ids.device)
    log_likelihoods = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    size = max(1, TOKENS.get(ids.device.type, TOKENS["cpu"]) // ids.shape[1])
    for start in range(0, len(rows), size):
        row, place = rows[start : start + size], places[start : start + size, None]
        hide = columns == place
        if words is not None:
            hide |= (columns > place) & (words[row] == words[row].gather(1, place))
        copies = torch.where(hide, special.mask, ids[row])
        states = encoder.states_at(copies, None if attention is None else attention[row], place[:, 0])  # (n, D)
        log_likelihoods[row, place[:, 0]] = head.log_likelihood(states, ids[row].gather(1, place)[:, 0]).double()
    return log_likelihoods.sum(1)


def masked_scorers(encoder: Encoder, head: MlmHead, special: Special, prefix: str = "") -> dict[str, Scorer]:
    """Return the two ways of scoring by masks, token by token and word by word, of a masked language model."""
    return {
        f"{prefix}pll": lambda s: s.once(
            f"{prefix}pll", lambda: pseudo_log_likelihood(encoder, head, s.ids, s.attention, special)
        ),
        f"{prefix}pll-word-l2r": lambda s: pseudo_log_likelihood(encoder, head, s.ids, s.attention, special, s.words),
    }
