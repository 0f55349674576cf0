"""Adversarial RTD: the generator is trained to fool the discriminator, not to predict masked tokens.

Clark et al. 2020, section 3.2 and appendix F: REINFORCE with one sample. The reward of a sample is the discriminator's
loss at its position; a learned baseline, -log sigmoid(w . h_G), is trained by cross-entropy to match it. The paper does
not say whether the baseline's gradient reaches the generator; here it does not (docs/electra.md 3).
"""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench.errors import InputError
from workbench.models import flops
from workbench.models.corruption import mask_for_generator, replace_tokens, sample_tokens
from workbench.models.encoder import Encoder, seeded
from workbench.models.generators import require_weights
from workbench.models.heads import BinaryHead
from workbench.models.losses import (
    binary_loss_and_ratios,
    cross_entropy,
    gather,
    is_most_probable,
    share,
    weighted_mean,
)
from workbench.objectives import rtd
from workbench.spec.loss_floors import Frequencies
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Mean, StepLoss, real_tokens


class Options(rtd.Options):
    """The options of adversarial RTD: the weights of its losses."""

    weight: float = 50.0  #: weight of the detection loss
    reward: float = 1.0  #: weight of the policy loss of the generator
    baseline: float = 1.0  #: weight of the loss of the baseline


def cost(spec: RunSpec) -> flops.Flops:
    """Return the cost of one forward pass over one row: RTD's cost, and the baseline's product at the picks."""
    return rtd.cost(spec) + flops.baseline(spec)


def floors(words: Frequencies) -> dict[str, float]:
    """Return the floors of the discriminator's loss and ROC area: what token frequencies alone can reach.

    The generator has no floor, since it is not trained to predict tokens.
    """
    return words.detection("all")


class Objective(rtd.Objective):
    options: Options

    def __init__(self, encoder: Encoder, spec: RunSpec, options: Options) -> None:
        if spec.generator_frozen:
            raise InputError(
                "adversarial trains its generator, which start.freeze_generator forbids; "
                "set start.freeze_generator=false"
            )
        require_weights(spec)
        super().__init__(encoder, spec, options)
        with seeded(spec.seed, "init", "baseline"):
            self.baseline = BinaryHead(self.generator.body, "linear")

    def forward(self, batch: Batch) -> StepLoss:
        masked = mask_for_generator(batch, self.spec)
        states = gather(self.generator.body(masked.ids, batch.attention, batch.segments), masked.positions)  # (B, K, D)
        logits = self.generator.head(states)  # (B, K, V)
        temperature = self.spec.generator.temperature
        samples = sample_tokens(logits, batch.keys, temperature)
        ids = replace_tokens(batch, masked, samples)

        verdicts = self.head(self.encoder(ids, batch.attention, batch.segments))  # (B, L), above 0 means replaced
        replaced, real = ids != batch.ids, real_tokens(batch)
        loss, ratios = binary_loss_and_ratios("discriminator", verdicts, replaced, real)
        # The rewards (B, K), the discriminator's losses at the picks: -log D at an original, and -log(1 - D) elsewhere.
        judged, answers = gather(verdicts.detach(), masked.positions), gather(replaced, masked.positions)
        rewards = F.binary_cross_entropy_with_logits(judged.float(), answers.float(), reduction="none")
        guesses = self.baseline(states.detach())  # (B, K)
        sample_nll = cross_entropy(logits / temperature, samples)  # -log p(sample) (B, K)
        fooling = policy_loss(sample_nll, rewards, guesses, masked.weights)
        matching = baseline_loss(guesses, rewards, masked.weights)
        total = self.options.weight * loss + self.options.reward * fooling + self.options.baseline * matching

        words = cross_entropy(logits.detach(), masked.targets)  # logged, but not trained
        right = is_most_probable(logits.detach(), masked.targets)
        parts = {
            "generator_loss": weighted_mean(words, masked.weights), "reinforce_loss": fooling,
            "reward": weighted_mean(rewards, masked.weights), "baseline_loss": matching, "discriminator_loss": loss,
        }  # fmt: skip
        metrics = masked.metrics | {
            "generator_accuracy": share(right, masked.weights),
            "generator_entropy": share(sample_nll, masked.weights),
            "replaced_rate": share(replaced, real),
        }
        return StepLoss(total, parts, metrics | ratios)


def policy_loss(losses: Tensor, rewards: Tensor, guesses: Tensor, weights: Tensor) -> Mean:
    """Return the policy loss, whose gradient is the REINFORCE estimate.

    It is the mean over picks of -log p(sample) * (reward - baseline). losses (B, K) are -log p(sample), rewards (B, K),
    guesses (B, K) the logits of the baseline. Its descent raises the probability of samples whose reward is above the
    baseline.
    """
    expected = -F.logsigmoid(guesses.detach().float())
    return weighted_mean(losses * (rewards - expected), weights)


def baseline_loss(guesses: Tensor, rewards: Tensor, weights: Tensor) -> Mean:
    """Return the mean cross-entropy of sigmoid(guesses) (B, K) with exp(-rewards).

    exp(-reward) is the probability that the discriminator gives to the correct label.
    """
    targets = (-rewards).exp()
    return weighted_mean(F.binary_cross_entropy_with_logits(guesses.float(), targets, reduction="none"), weights)
