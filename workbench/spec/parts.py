"""The parts of a spec, as plain data with defaults. A scale or a recipe is a table of other values (`presets`)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from workbench.errors import encodable, plural

Positive = Annotated[int, Field(gt=0, le=2**31 - 1)]
Extent = Annotated[int, Field(gt=0, le=2**20)]  # of a model; the elements of any one tensor then fit 64 bits
Rate = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Tying = Literal["none", "tokens", "embeddings", "all", "gdes"]
Recipe = Literal["paper", "released"]
Convention = Literal["paper", "paper-sparse", "matmul"]  # of counting FLOPs (`workbench.models.flops`)
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
UNITS = ("steps", "tokens", "words", "flops", "seconds")  # of budgets
COUNTS = ("data.words", "data.tokens")  # keys that follow from the text, and tell no two runs apart


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]


class Part(BaseModel):
    """A frozen piece of a spec: unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_text(self) -> Self:
        """Refuse words that no file can hold, such as arguments of a command line that are not UTF-8."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            for word in value if isinstance(value, tuple) else (value,):
                if isinstance(word, str) and not encodable(word):
                    raise ValueError(f"{name}={word!r:.80} is not text in UTF-8, so no record could hold it; rename it")
        return self


class EncoderSpec(Part):
    """The main model, the one that is kept (table 6). Sizes left out follow the paper's ratios.

    `init` is the standard deviation of the initial kernels, the released code's 0.02. With `position_init` sinusoidal
    the learned position table starts from sines (Vaswani et al. 2017) of that deviation: neighbours are then found in
    a tenth of the tokens, which only runs as short as nano's notice. If `causal`, no position sees a later one; left
    out, that is as the objective needs it.
    """

    family: str = "electra"
    hidden: Extent = 256
    layers: Extent = 12
    heads: Extent | None = None
    ffn: Extent | None = None
    embedding: Extent | None = None
    vocab: Annotated[int, Field(ge=8, le=2**31 - 1)] = 30522
    positions: Extent = 512
    dropout: Dropout = 0.1
    attention_dropout: Dropout = 0.1
    attention: Literal["sdpa", "eager"] = "sdpa"
    init: Annotated[float, Field(gt=0)] = 0.02
    position_init: Literal["normal", "sinusoidal"] = "normal"
    causal: bool | None = None

    @property
    def head_count(self) -> int:
        """One head for each 64 of width, as the official code has it."""
        return self.heads or max(1, self.hidden // 64)

    @property
    def ffn_width(self) -> int:
        return self.ffn or 4 * self.hidden

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.hidden

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.hidden % self.head_count:
            raise ValueError(
                f"a width of {self.hidden} cannot be shared by {self.head_count} attention heads; "
                f"set the heads or choose a multiple of {self.head_count}"
            )
        return self


def size_in_words(layers: int, width: int) -> str:
    """Return the size of an encoder as reports and messages give it: `2 layers of 64`."""
    return f"{plural(layers, 'layer')} of {width}"


class GeneratorSpec(Part):
    """What writes the replaced tokens, and its size as fractions of the encoder's width and depth.

    Section 3.2 varies the width at constant depth, down to a generator that samples words by how often they occur
    (`unigram`); the released code has one for which all words are alike (`uniform`). Neither of these two has weights.
    """

    kind: Literal["transformer", "unigram", "uniform"] = "transformer"
    width: Annotated[float, Field(gt=0, le=4)] = 0.25
    depth: Annotated[float, Field(gt=0, le=4)] = 1.0
    temperature: Annotated[float, Field(gt=0)] = 1.0


class Special(Part):
    """Ids of the special tokens; the defaults are those of BERT uncased. Filled in from the tokenizer."""

    pad: int = 0
    unk: int = 100
    cls: int = 101
    sep: int = 102
    mask: int = 103


class DataSpec(Part):
    """Which text, cut how. `fingerprint` and `special` are filled in when the data is prepared.

    So are `words` and `tokens`, what the prepared text holds; they are 0 until then. `held_out` is the share of the
    text, chosen by its hash, that pre-training does not see; of `docs` a part is always held out, and none besides.
    """

    corpus: Annotated[Names, Field(min_length=1)] = ("docs",)
    revision: str | None = None
    column: str = "text"
    tokenizer: str = "wordpiece"
    lowercase: bool = True
    length: Annotated[int, Field(ge=8)] = 128
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    fingerprint: str = ""
    words: Annotated[int, Field(ge=0)] = 0
    tokens: Annotated[int, Field(ge=0)] = 0
    special: Special = Special()


class CorruptionSpec(Part):
    """How positions are picked and what is written there (docs/electra.md 1.1, 1.7 and 7).

    `picks` "distinct" takes ceil(rate * n) different positions, "released" draws round(rate * n) with replacement.
    `mask` and `random` are the shares of picks that BERT MLM sees as [MASK] and as a random word; the rest it sees as
    they are. `generator_mask` and `generator_random` are the same shares for the generator of every other objective.
    """

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    picks: Literal["distinct", "released"] = "distinct"
    generator_mask: Rate = 1.0
    generator_random: Rate = 0.0
    mask: Rate = 0.8
    random: Rate = 0.1

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask + self.random > 1 + 1e-9:
            raise ValueError(f"mask ({self.mask:g}) and random ({self.random:g}) together exceed 1")
        if self.generator_mask + self.generator_random > 1 + 1e-9:
            raise ValueError(
                f"generator_mask ({self.generator_mask:g}) and generator_random ({self.generator_random:g}) together "
                f"exceed 1; lower generator_mask, as in generator_mask=0.8 with generator_random=0.1"
            )
        return self


class BatchSpec(Part):
    """Rows in one optimizer step, whatever the number of devices or micro-batches."""

    size: Positive = 128


class OptimSpec(Part):
    """AdamW over generator, encoder and heads together, one clip (docs/electra.md 4). Rates are per step.

    `generator_lr` is the peak rate of the weights that the generator alone owns, where it differs from `lr`; weights
    that it shares with the encoder have the encoder's. Both follow the same schedule.
    """

    lr: Annotated[float, Field(gt=0)] = 5e-4
    generator_lr: Annotated[float, Field(gt=0)] | None = None
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    clip: Annotated[float, Field(gt=0)] = 1.0
    bias_correction: bool = True


class ScheduleSpec(Part):
    """Learning rate over the run.

    `warmup` below 1 is a share of the run, else a number of steps; left out, the paper's 10,000 steps,
    but never more than a tenth of the run. `overlap` lets the decay run during warm-up, as the released code does.
    `decay` is the final share of a `wsd` (warm-up, stable, decay) run that decays. `constant` never does: it is the
    trunk that such runs branch off from (see `StartSpec`).
    """

    kind: Literal["linear", "wsd", "constant"] = "linear"
    warmup: Annotated[float, Field(ge=0)] | None = None
    overlap: bool = False
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if self.overlap and self.kind != "linear":
            raise ValueError(
                f"schedule.kind={self.kind} cannot have schedule.overlap=true, which lets a linear decay run from the "
                "first step, as the released recipe does; set schedule.overlap=false or schedule.kind=linear"
            )
        return self


class Budget(Part):
    """How much may be spent: exactly one of the units. FLOPs are counted under `convention`.

    `words` are words of the text seen in training, each epoch counting again (`words_seen`).
    """

    steps: Annotated[int, Field(ge=0, le=10**12)] | None = None
    tokens: Annotated[float, Field(gt=0, le=1e18)] | None = None
    words: Annotated[float, Field(gt=0, le=1e18)] | None = None
    flops: Annotated[float, Field(gt=0, le=1e30)] | None = None
    seconds: Annotated[float, Field(gt=0, le=1e10)] | None = None
    convention: Convention = "paper"

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [k for k in UNITS if getattr(self, k) is not None]
        if len(given) != 1:
            units = f"{', '.join(UNITS[:-1])} and {UNITS[-1]}"
            raise ValueError(f"budget takes exactly one of {units}, got {given or 'none'}")
        return self

    def part(self, share: float) -> dict[str, Any]:
        """That share of it, as plain data; steps are rounded to whole ones."""
        amount = max(1, round(self.amount * share)) if self.unit == "steps" else self.amount * share
        return {self.unit: amount, "convention": self.convention}

    @property
    def unit(self) -> str:
        return next(k for k in UNITS if getattr(self, k) is not None)

    @property
    def amount(self) -> float:
        return float(getattr(self, self.unit))


class StartSpec(Part):
    """A run that begins where another one, its parent, ended. The child pays for both out of its one budget.

    `parent` is what the parent has otherwise than this run, as keys and values; the parent has no parent unless this
    says so, and `share` of the budget. What is taken over: `all`, weights, optimizer and place in training, so that the
    child goes on in the parent's stead, as a decay branches off a trunk; `encoder`, the main encoder's weights;
    `generator`, a masked language model as the generator, and its encoder's weights as the main encoder's first ones
    (two-stage training, section 3.2). With `freeze_generator` the generator stays as the parent made it.
    """

    parent: dict[str, Any] = Field(default_factory=dict)
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    take: Literal["all", "encoder", "generator"] = "all"
    freeze_generator: bool = False


class TasksSpec(Part):
    """Fine-tuning (table 7). Not part of a run's identity: an encoder is trained once and measured often.

    The released code's ways are `extra_decay`, one more power of the layer-wise decay below the head; `doubled`, MRPC
    and STS-B trained on with their sentences also swapped; `sum_loss`, a sum over the batch in place of a mean;
    `overlap`, decay running during warm-up; and no `bias_correction` of Adam (docs/electra.md 5 and 7).
    `rows` caps the training rows of a task; `epochs` left out means each task's own number. With `held_out` that share
    of the training rows is measured on in place of the test rows, which stay unseen. With `control` linear probes of
    words are also fitted to control tasks (Hewitt and Liang 2019). `at` says at which points of training the measures
    that train no weights are also taken (see `workbench.training.points`).
    """

    names: Names = ("probes",)
    glue: str | None = None
    seeds: Annotated[int, Field(gt=0, le=1000)] = 3
    lr: Annotated[float, Field(gt=0)] = 3e-4
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 0.8
    extra_decay: bool = False
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    batch: Positive = 32
    epochs: Annotated[float, Field(gt=0)] | None = None
    length: Annotated[int, Field(ge=8)] = 128
    dropout: Dropout = 0.1
    clip: Annotated[float, Field(gt=0)] = 1.0
    doubled: bool = False
    sum_loss: bool = False
    overlap: bool = False
    bias_correction: bool = True
    rows: Positive | None = None
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    kind: Literal["classification", "regression"] | None = None
    blimp: str | None = None
    scorers: Names = ("default", "generator-pll")
    control: bool = False
    at: str = "auto"
    babylm: str | None = None

    @field_validator("at")
    @classmethod
    def _is_schedule(cls, value: str) -> str:
        """Accept the four schedules that `workbench.training.points` knows."""
        if value in ("auto", "none", "words") or re.fullmatch(r"log:([1-9]|[1-4]\d|50)", value):
            return value
        raise ValueError(
            f"--evaluate-at {value[:80]!r} (tasks.at) is none of auto, none, words and log:N with N from 1 to 50, "
            f"such as log:6"
        )


# Fields of TasksSpec that say what is measured, not how an encoder is fine-tuned: no settings of a fine-tuning.
DATA_KEYS = {
    "names", "glue", "seeds", "text", "pair", "label", "kind", "held_out", "blimp", "scorers", "control", "at",
    "babylm",
}  # fmt: skip
# Fields that came later: while they have their default, records keep the names that they had before.
LATER_TASK_FIELDS = ("held_out", "blimp", "scorers", "control", "at", "babylm")
