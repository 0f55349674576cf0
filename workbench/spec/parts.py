"""The parts of a run's spec, as plain data with defaults; scales and recipes replace some of these (`presets`)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from workbench.errors import encodable, plural

Positive = Annotated[int, Field(gt=0, le=2**31 - 1)]
Extent = Annotated[int, Field(gt=0, le=2**20)]  # of a model, so that the element count of every tensor fits in 64 bits
Depth = Annotated[int, Field(gt=0, le=2**12)]  # of a model: one with many more layers takes minutes only to be counted
Rate = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Tying = Literal["none", "tokens", "embeddings", "all", "gdes"]
PairKind = Literal["next", "order"]
Recipe = Literal["paper", "released"]
Convention = Literal["paper", "paper-sparse", "matmul"]  # of counting FLOPs (`workbench.models.flops`)
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
UNITS = ("steps", "tokens", "words", "flops", "seconds")  # of budgets
TableMetric = Literal[
    "accuracy", "average_precision", "f1", "macro_f1", "matthews", "micro_f1", "pearson", "spearman"
]  # fmt: skip
COUNTS = ("data.words", "data.tokens")  # keys that follow from the text, so that no two runs differ only in them


def _split(value: Any) -> Any:
    """Return comma-separated text as a tuple, and any other value as it is."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]


class Part(BaseModel):
    """A part of a spec, which cannot be changed; unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_text(self) -> Self:
        """Refuse text that cannot be encoded in UTF-8, such as command-line arguments with invalid bytes."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            for word in value if isinstance(value, tuple) else (value,):
                if isinstance(word, str) and not encodable(word):
                    raise ValueError(f"{name}={word!r:.80} is not valid UTF-8, so no record can contain it; rename it")
        return self


class EncoderSpec(Part):
    """The sizes of the main encoder, which is exported after training (table 6).

    Sizes that are left out follow the paper's ratios. `init` is the standard deviation of the initial weights, 0.02 as
    in the released code. If `position_init` is sinusoidal, the learned position table starts from sinusoids (Vaswani et
    al. 2017) with this standard deviation: attention to neighbouring tokens is then learnt from a tenth of the tokens.
    If it is local, they have three times this deviation, and the heads of the first layer begin by attending to
    neighbouring tokens (`workbench/models/positions.py`). Both matter only for runs far shorter than the paper's. If
    `causal`, no position attends to a later one; if it is left out, the objective decides.
    """

    family: str = "electra"
    hidden: Extent = 256
    layers: Depth = 12
    heads: Extent | None = None
    ffn: Extent | None = None
    embedding: Extent | None = None
    vocab: Annotated[int, Field(ge=8, le=2**31 - 1)] = 30522
    positions: Extent = 512
    dropout: Dropout = 0.1
    attention_dropout: Dropout = 0.1
    attention: Literal["sdpa", "eager"] = "sdpa"
    init: Annotated[float, Field(gt=0)] = 0.02
    position_init: Literal["normal", "sinusoidal", "local"] = "normal"
    causal: bool | None = None

    @property
    def head_count(self) -> int:
        """The number of attention heads; by default `heads_of` the width."""
        return self.heads or heads_of(self.hidden)

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
                f"a width of {self.hidden} cannot be divided equally among {self.head_count} attention heads; "
                f"set the heads or choose a multiple of {self.head_count}"
            )
        return self


def heads_of(width: int) -> int:
    """Return the attention heads of layers of this width, one for each 64 of it and at least one, as officially."""
    return max(1, width // 64)


def size_in_words(layers: int, width: int) -> str:
    """Return the size of an encoder for reports and messages, such as `2 layers of 64`."""
    return f"{plural(layers, 'layer')} of {width}"


class GeneratorSpec(Part):
    """The generator of replaced tokens, and its size as fractions of the encoder's width and depth.

    Section 3.2 varies the width at constant depth, down to a generator that samples tokens by their frequency
    (`unigram`); the released code has one that samples all tokens with equal probability (`uniform`). `ngram` samples
    tokens by how often they occur beside the left or the right neighbour, as the generators of CodeBERT do (Feng et al.
    2020, section 3.3). None of these three has weights.

    Without `heads`, it has an attention head for each 64 of its width, as in the released code, and at least one.
    """

    kind: Literal["transformer", "ngram", "unigram", "uniform"] = "transformer"
    width: Annotated[float, Field(gt=0, le=4)] = 0.25
    depth: Annotated[float, Field(gt=0, le=4)] = 1.0
    heads: Extent | None = None
    temperature: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _temperature_fits(self) -> Self:
        if self.kind == "ngram" and self.temperature != 1:
            raise ValueError(
                f"generator.temperature={self.temperature:g} cannot be combined with generator.kind=ngram, which "
                f"samples by its counts; set generator.temperature=1"
            )
        return self


class Special(Part):
    """Ids of the special tokens, filled in from the tokenizer; the defaults are those of BERT uncased."""

    pad: int = 0
    unk: int = 100
    cls: int = 101
    sep: int = 102
    mask: int = 103


class DataSpec(Part):
    """The text of a run, and how it is split into tokens and rows.

    `fingerprint`, `special`, and the counts of the text, `words` and `tokens`, are filled in when the text is prepared;
    the counts are 0 until then. `held_out` is the share of the text, chosen by its hash, that is kept out of
    pre-training; of the corpus `docs` a fixed part is always held out, and `held_out` does not apply to it.
    `tokenizer` is a kind of vocabulary that is trained on the text, `wordpiece`, `bpe` (of bytes) or `unigram`, or the
    name or folder of a tokenizer, whose own rules `lowercase` does not change. Accents are stripped, as by BERT, if the
    text is put into lower case, unless `strip_accents` says otherwise: "på" would become "pa".

    Documents of fewer than `min_words` words or more than `max_words` are left out, words as `words` counts them. So
    are documents whose most probable language is not `language` (`workbench.data.filters`), and those that
    are about as similar to an earlier one as `near_duplicates`, a Jaccard similarity of their sets of five words in a
    row, or more similar (`workbench.data.near_duplicates`).

    With `pairs`, a row holds two segments of text: half of the second ones are of another document (`next`), or half
    of the rows have their segments swapped (`order`); if it is left out, the objective decides. With `copies`, the text
    has this many copies, each with its own picks and pairs, and epochs repeat them in turn: BERT's `dupe_factor`, 10 in
    its script. Without, they are drawn again in each epoch.
    """

    corpus: Annotated[Names, Field(min_length=1)] = ("docs",)
    revision: str | None = None
    column: str = "text"
    tokenizer: str = "wordpiece"
    lowercase: bool = True
    strip_accents: bool | None = None
    length: Annotated[int, Field(ge=8)] = 128
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    min_words: Annotated[int, Field(ge=0)] = 0
    max_words: Positive | None = None
    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] | None = None
    near_duplicates: Annotated[float, Field(gt=0, le=1)] | None = None
    pairs: PairKind | None = None
    copies: Positive | None = None
    fingerprint: str = ""
    words: Annotated[int, Field(ge=0)] = 0
    tokens: Annotated[int, Field(ge=0)] = 0
    special: Special = Special()

    @model_validator(mode="after")
    def _some_lengths_fit(self) -> Self:
        if self.max_words is not None and self.max_words < self.min_words:
            raise ValueError(
                f"no document has at least {self.min_words} words and at most {self.max_words}; lower min_words or "
                f"raise max_words"
            )
        return self


class CorruptionSpec(Part):
    """How positions are picked, and which tokens are written there (docs/electra.md 1.1, 1.7 and 7).

    `picks` "distinct" takes ceil(rate * n) different positions, "released" draws round(rate * n) with replacement.
    `mask` and `random` are the shares of picks that BERT MLM replaces by [MASK] and by a random token; it leaves the
    other picks unchanged. `generator_mask` and `generator_random` are these shares for the input of the generator in
    every other objective.
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
    """The number of rows in one optimizer step, for any number of devices and micro-batches."""

    size: Positive = 128


class OptimSpec(Part):
    """AdamW for generator, encoder and heads together, clipped by one common gradient norm (docs/electra.md 4).

    With `clip` 0, gradients are not clipped, as in RoBERTa's released configuration.
    `kind` chooses another rule: `lamb` (You et al. 2020), or `muon` (Jordan et al. 2024) for the matrices of layers and
    heads, with AdamW for embeddings and vectors; betas, epsilon and bias correction are AdamW's and LAMB's.
    `lr` is the peak learning rate per step. `generator_lr`, if given, is that of the weights that only the generator
    has; weights that it shares with the encoder have `lr`. Both follow the same schedule.
    """

    kind: Literal["adamw", "lamb", "muon"] = "adamw"
    lr: Annotated[float, Field(gt=0)] = 5e-4
    generator_lr: Annotated[float, Field(gt=0)] | None = None
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    clip: Annotated[float, Field(ge=0)] = 1.0
    bias_correction: bool = True


class ScheduleSpec(Part):
    """The schedule of the learning rate over the steps of a run.

    `warmup` below 1 is a share of the run, otherwise a number of steps; the default is the paper's 10,000 steps, but at
    most a tenth of the run. With `overlap` the decay already runs during warm-up, as in the released code. `decay` is
    the share at the end of a `wsd` (warm-up, stable, decay) run in which the learning rate decays. It never decays in a
    `constant` run, the trunk from which such runs can branch off (see `StartSpec`). A `cosine` run ends at `floor`, a
    share of the peak: 0 for GPT (Radford et al. 2018, section 4.1), 0.1 for GPT-3 (Brown et al. 2020, appendix B). In
    an `inverse-sqrt` run the rate falls with the square root of the step (Vaswani et al. 2017, equation 3), whatever
    the length of the run.

    A run ends after the share `until` of its schedule: below 1 for the first phase of a training that another run goes
    on with (`StartSpec`).
    """

    kind: Literal["linear", "wsd", "constant", "cosine", "inverse-sqrt"] = "linear"
    warmup: Annotated[float, Field(ge=0)] | None = None
    overlap: bool = False
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.0
    until: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if self.floor and self.kind != "cosine":
            raise ValueError(
                f"schedule.kind={self.kind} cannot have schedule.floor={self.floor:g}, at which only a cosine ends; "
                f"set schedule.floor=0 or schedule.kind=cosine"
            )
        if self.overlap and self.kind != "linear":
            raise ValueError(
                f"schedule.kind={self.kind} cannot have schedule.overlap=true, which lets a linear decay run from the "
                "first step, as the released recipe does; set schedule.overlap=false or schedule.kind=linear"
            )
        return self


class Budget(Part):
    """The amount of training, in exactly one of the units; FLOPs are counted under `convention`.

    `words` are the words of the text seen in training, counted again in each epoch (`words_seen`).
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
        """Return a share of the budget as plain data; steps are rounded to a whole number, at least 1."""
        amount = max(1, round(self.amount * share)) if self.unit == "steps" else self.amount * share
        return {self.unit: amount, "convention": self.convention}

    @property
    def unit(self) -> str:
        return next(k for k in UNITS if getattr(self, k) is not None)

    @property
    def amount(self) -> float:
        return float(getattr(self, self.unit))


class StartSpec(Part):
    """The start of a run from the end of another run, its parent; the run's budget pays for both.

    `parent` holds the settings in which the parent differs from this run, as keys and values; the parent itself has no
    parent unless one is given there. Its budget is `share` of this run's. `take` is what the run takes over from its
    parent: `all`, the weights, the optimizer state and the place in training, so that training continues, as when a
    decay branches off a trunk; `encoder`, the weights of the main encoder; `generator`, a masked language model, which
    becomes the generator and whose encoder's weights are also the initial ones of the main encoder (two-stage training,
    section 3.2). With `freeze_generator` the generator is not trained further.

    The parent may have rows of another length, `data.length`. With `all` these are phases of one training, such as
    BERT's: 90 % of the steps on rows of 128 tokens and then 512 (Devlin et al. 2019, appendix A.2).
    """

    parent: dict[str, Any] = Field(default_factory=dict)
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    take: Literal["all", "encoder", "generator"] = "all"
    freeze_generator: bool = False


class PairSpec(Part):
    """The published discriminator and generator that a run goes on from, set by `start.from=DISCRIMINATOR,GENERATOR`.

    `names` are folders, or names on the hub. `files` is the SHA-256 over their files, filled in when they are read.
    With `allow_bin` (`start.allow_bin`), weights may be in pytorch_model.bin. `flops` are the training FLOPs that are
    stated of the pair (paper convention), None if none are: others spent them, and no budget includes them.
    """

    names: Annotated[Names, Field(validate_default=True)] = ()
    allow_bin: bool = False
    files: str = ""
    flops: float | None = None

    @field_validator("names")
    @classmethod
    def _are_two(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) != 2:
            raise ValueError(
                f"start.from takes two models, as in start.from=DISCRIMINATOR,GENERATOR, and {len(value)} are named"
            )
        return value

    def spent_before(self) -> str:
        """Return a sentence on what was spent before."""
        amount = f"{self.flops:.3g} training FLOPs were" if self.flops else "an unknown amount of training FLOPs was"
        return f"it went on from {' and '.join(self.names)}, for which {amount} spent before, in no budget here"


class PublishedSpec(Part):
    """A model that others trained, whose scores a run holds; nothing of it is trained here.

    `name` is its name on the hub, or that of its folder. `files` is the SHA-256 over the files that are read.
    """

    name: str
    files: str


class TasksSpec(Part):
    """The tasks of evaluation and the settings of fine-tuning (table 7).

    They are not part of a run's identity, since an encoder is trained once and evaluated often. The released code
    differs from the paper in `extra_decay`, one more power of the layer-wise decay below the head; `doubled`, training
    on MRPC and STS-B also with their sentences swapped; `sum_loss`, the sum over the batch in place of the mean;
    `overlap`, the decay running during warm-up; and no `bias_correction` of Adam (docs/electra.md 5 and 7).
    `rows` limits the training rows of a task; without `epochs`, each task has its own number. With `held_out`, this
    share of the training rows is evaluated in place of the test rows, which are not used. With `control`, linear probes
    of words are also fitted to control tasks (Hewitt and Liang 2019). `text`, `pair`, `label` and `kind` say how
    tables are read, `metric` is their headline metric, and `folds` divides those without rows to test on. Reports
    show the `statistic` of a run's scores over its fine-tuning seeds. `at` gives the points of training at which
    the tasks that train no weights are also evaluated (see `workbench.training.snapshots`). `tagging` is the folder of
    the named sets of tagged words, and `superglue` that of SuperGLUE. In SQuAD, the end of an answer depends on its
    start if `squad_head` is joint; `squad_length` is the number of tokens of a window, and `squad_stride` that between
    the starts of two windows (`workbench.tasks.squad`). `embeddings` of whole texts are those of the frozen encoder, or
    of one that is fine-tuned with a contrastive loss, pooled by the mean or by [CLS] (`workbench.tasks.embeddings`).
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
    kind: Literal["classification", "multilabel", "regression"] | None = None
    blimp: str | None = None
    scorers: Names = ("default", "generator-pll")
    control: bool = False
    at: str = "auto"
    babylm: str | None = None
    tagging: str | None = None
    lm_weight: Annotated[float, Field(ge=0)] = 0.0
    metric: TableMetric | None = None
    folds: Annotated[int, Field(ge=2, le=100)] | None = None
    statistic: Literal["mean", "median"] = "mean"
    squad: str | None = None
    squad_head: Literal["joint", "independent"] = "joint"
    squad_length: Annotated[int, Field(ge=16)] | None = None
    squad_stride: Positive | None = None
    superglue: str | None = None
    embeddings: Literal["frozen", "contrastive", "contrastive-cls"] = "frozen"

    @property
    def chosen(self) -> bool:
        """Whether any task is named, besides the word `none`."""
        return not set(self.names) <= {"none"}

    @field_validator("at")
    @classmethod
    def _is_schedule(cls, value: str) -> str:
        """Accept the four kinds of schedule that `workbench.training.snapshots` describes."""
        if value in ("auto", "none", "words") or re.fullmatch(r"log:([1-9]|[1-4]\d|50)", value):
            return value
        raise ValueError(
            f"--evaluate-at {value[:80]!r} (tasks.at) must be auto, none, words, or log:N with N from 1 to 50, "
            f"such as log:6"
        )


# Fields of TasksSpec that are not settings of fine-tuning on texts: they select what is evaluated, or belong to SQuAD.
DATA_KEYS = {
    "names", "glue", "seeds", "text", "pair", "label", "kind", "held_out", "blimp", "scorers", "control", "at",
    "babylm", "tagging", "metric", "folds", "statistic", "squad", "squad_head", "squad_length", "squad_stride",
    "superglue", "embeddings",
}  # fmt: skip
# How an encoder is read and fine-tuned, whatever it is measured on: an exported encoder carries these from its run.
TUNING_FIELDS = (
    *(name for name in TasksSpec.model_fields if name not in DATA_KEYS),
    "seeds", "squad_head", "squad_length", "squad_stride",
)  # fmt: skip
# Where the data of tasks is found, which differs between machines; scores name the data by their fingerprint.
TASK_PLACES = ("names", "glue", "blimp", "babylm", "tagging", "squad", "superglue")
# Fields that were added later: while they have their default, records keep the names that they had before.
LATER_TASK_FIELDS = (
    "held_out", "blimp", "scorers", "control", "at", "babylm", "tagging", "lm_weight", "metric", "folds", "statistic",
    "squad", "squad_head", "squad_length", "squad_stride",
    "superglue", "embeddings",
)  # fmt: skip
