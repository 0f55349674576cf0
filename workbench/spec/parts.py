"""The parts of a run's spec, as plain data with defaults; scales and recipes replace some of these (`presets`)."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from workbench.errors import InputError, encodable, plural

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


is_unset = operator.not_  # whether a field has no value: older versions wrote records without it, so it is left out


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
    """The sizes of the main encoder, which is exported after training (table 6); sizes left out follow the paper.

    With `position_init` sinusoidal, the learned position table starts from sinusoids (Vaswani et al. 2017) with this
    standard deviation: attention to neighbouring tokens is then learnt from a tenth of the tokens. With local, the
    sinusoids have three times this deviation, and the heads of the first layer begin by attending to neighbouring
    tokens (`workbench/models/encoder.py`). Both matter only for runs far shorter than the paper's.
    """

    family: str = "electra"  #: the architecture; `workbench list encoders` names them; or a file of your own
    #: hash of the family's file, filled in if it is not part of the package
    source: str = Field(default="", exclude_if=is_unset)
    #: the family's own options, set as `encoder.options.NAME`
    options: dict[str, Any] = Field(default_factory=dict, exclude_if=is_unset)
    hidden: Extent = 256  #: width of the layers
    layers: Depth = 12  #: number of layers
    heads: Extent | None = None  #: attention heads of each layer; unset: one for each 64 of the width
    ffn: Extent | None = None  #: width of the feed-forward layers; unset: four times the width
    embedding: Extent | None = None  #: width of the embeddings; unset: the width of the layers
    vocab: Annotated[int, Field(ge=8, le=2**31 - 1)] = 30522  #: entries of the vocabulary
    positions: Extent = 512  #: the longest row that the encoder can read
    dropout: Dropout = 0.1  #: dropout of states and embeddings
    attention_dropout: Dropout = 0.1  #: dropout of attention probabilities
    attention: Literal["sdpa", "eager"] = "sdpa"  #: torch's fused attention, or a plain one in several steps
    init: Annotated[float, Field(gt=0)] = 0.02  #: standard deviation of the initial weights
    #: how the position table starts: random, as sinusoids, or with a first layer that attends to neighbours
    position_init: Literal["normal", "sinusoidal", "local"] = "normal"
    causal: bool | None = None  #: whether a position attends only to earlier ones; unset: the objective decides

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


def by_source(words: Mapping[str, float], most: int = 12) -> str:
    """Return the sources of a text with their words, the largest first; those beyond `most` are added up."""
    ordered = sorted(words.items(), key=lambda pair: -pair[1])
    parts = [f"{name} {count:,.0f}" for name, count in ordered[:most]]
    if left := ordered[most:]:
        parts.append(f"{len(left)} others {sum(count for _, count in left):,.0f}")
    return ", ".join(parts)


class GeneratorSpec(Part):
    """The generator of replaced tokens, and its size as fractions of the encoder's width and depth.

    Section 3.2 varies the width at constant depth, down to a generator that samples tokens by their frequency
    (`unigram`); the released code has one that samples all tokens with equal probability (`uniform`). `ngram` samples
    tokens by how often they occur beside the left or the right neighbour, as the generators of CodeBERT do (Feng et al.
    2020, section 3.3). None of these three has weights.
    """

    #: a masked language model, or samples by frequency beside a neighbour, by frequency, or by chance
    kind: Literal["transformer", "ngram", "unigram", "uniform"] = "transformer"
    width: Annotated[float, Field(gt=0, le=4)] = 0.25  #: width of the generator relative to the encoder
    depth: Annotated[float, Field(gt=0, le=4)] = 1.0  #: layers of the generator relative to the encoder
    heads: Extent | None = None  #: attention heads of the generator; unset: one for each 64 of its width
    temperature: Annotated[float, Field(gt=0)] = 1.0  #: temperature of the samples


class Special(Part):
    """Ids of the special tokens, filled in from the tokenizer; the defaults are those of BERT uncased."""

    pad: int = 0
    unk: int = 100
    cls: int = 101
    sep: int = 102
    mask: int = 103


TRAINED = ("wordpiece", "bpe", "unigram")  # kinds of vocabulary that are trained on the text of a run


class DataSpec(Part):
    """The text of a run, and how it is split into tokens and rows.

    Text is held out by its hash; of the corpus `docs` a fixed part is always held out, and `held_out` does not apply. A
    `tokenizer` that is named or is a folder keeps its own rules, whatever `lowercase` says; `bpe` merges bytes. Accents
    are stripped, as by BERT, if the text is put into lower case, unless `strip_accents` says otherwise: "på" would
    become "pa". A document's language is the most probable one (`workbench.data.filters`), and `near_duplicates` is a
    Jaccard similarity of sets of five words in a row (`workbench.data.near_duplicates`).

    With `pairs`, half of the second segments are of another document (`next`), or half of the rows have their segments
    swapped (`order`). `copies` is BERT's `dupe_factor`, 10 in its script: each copy has its own picks and pairs.
    """

    #: the text: `docs`, `python-code`, files, folders or names on the hub; set by `--corpus`
    corpus: Annotated[Names, Field(min_length=1)] = ("docs",)
    revision: str | None = None  #: commit or branch of a data set on the hub
    column: str = "text"  #: the column of text in tables
    #: kind of vocabulary that is trained on the text (`wordpiece`, `bpe`, `unigram`), or a tokenizer's folder or name
    tokenizer: str = "wordpiece"
    lowercase: bool = True  #: whether the text is put into lower case
    strip_accents: bool | None = None  #: whether accents are removed; unset: if the text is put into lower case
    length: Annotated[int, Field(ge=8)] = 128  #: tokens in a row
    #: text that pre-training and vocabulary do not use, chosen by a hash
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    min_words: Annotated[int, Field(ge=0)] = 0  #: documents with fewer words are left out
    max_words: Positive | None = None  #: documents with more words are left out
    #: documents in another language are left out; an ISO 639 code such as `en`
    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] | None = None
    #: documents at least this similar to an earlier one are left out
    near_duplicates: Annotated[float, Field(gt=0, le=1)] | None = None
    #: rows of two segments: the second one is random in half of them, or both are swapped; unset: the objective decides
    pairs: PairKind | None = None
    #: copies of the text with masks of their own, repeated in turn; unset: new masks in each epoch
    copies: Positive | None = None
    fingerprint: str = ""  #: hash of the prepared text, filled in
    words: Annotated[int, Field(ge=0)] = 0  #: words of the text, filled in
    tokens: Annotated[int, Field(ge=0)] = 0  #: tokens of the text, filled in
    special: Special = Special()  #: ids of the special tokens, filled in from the tokenizer

    @model_validator(mode="after")
    def _some_lengths_fit(self) -> Self:
        if self.max_words is not None and self.max_words < self.min_words:
            raise ValueError(
                f"no document has at least {self.min_words} words and at most {self.max_words}; lower min_words or "
                f"raise max_words"
            )
        return self

    def words_per_token(self) -> Fraction:
        """Return the number of words for each token of a training row. Raises InputError if they are not counted yet.

        Words are whitespace-separated and counted again in every epoch, as by BabyLM. A row has [CLS] and [SEP], which
        are no text, and a row of pairs another [SEP]; padded rows of pairs are counted as if they were full.
        """
        if not (self.words and self.tokens):
            raise InputError(
                f"the number of words of {', '.join(self.corpus)} in a training step is not known before the text is "
                f"prepared; give the amount as --budget words=N or use another unit"
            )
        others = 2 if self.pairs is None else 3
        return Fraction(self.length - others, self.length) * Fraction(self.words, self.tokens)

    def words_of(self, tokens: float) -> float:
        """Return the number of words in this number of tokens of training rows."""
        return float(Fraction(tokens) * self.words_per_token())


class CorruptionSpec(Part):
    """How positions are picked, and which tokens are written there (docs/electra.md 1.1, 1.7 and 7).

    `picks` "distinct" takes ceil(rate * n) different positions, "released" draws round(rate * n) with replacement.
    """

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15  #: tokens of a row that are picked
    #: different positions, or drawn with repetition as in the released code
    picks: Literal["distinct", "released"] = "distinct"
    generator_mask: Rate = 1.0  #: picks that the generator reads as [MASK]
    generator_random: Rate = 0.0  #: picks that the generator reads as a random token
    mask: Rate = 0.8  #: picks that BERT MLM reads as [MASK]
    random: Rate = 0.1  #: picks that BERT MLM reads as a random token; it reads the others unchanged

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

    size: Positive = 128  #: rows of one optimizer step, on all devices together


class OptimSpec(Part):
    """AdamW for generator, encoder and heads together, clipped by one common gradient norm (docs/electra.md 4).

    With `clip` 0, gradients are not clipped, as in RoBERTa's released configuration. `kind` chooses another rule:
    `lamb` (You et al. 2020), or `muon` (Jordan et al. 2024) for the matrices of layers and heads, with AdamW for
    embeddings and vectors; betas, epsilon and bias correction are AdamW's and LAMB's. Weights that the generator shares
    with the encoder have `lr`; `generator_lr` follows the same schedule.
    """

    kind: Literal["adamw", "lamb", "muon"] = "adamw"  #: the optimizer
    lr: Annotated[float, Field(gt=0)] = 5e-4  #: peak learning rate
    #: peak learning rate of weights that only the generator has; unset: `optim.lr`
    generator_lr: Annotated[float, Field(gt=0)] | None = None
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9  #: decay of the mean of gradients
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999  #: decay of the mean of squared gradients
    eps: Annotated[float, Field(gt=0)] = 1e-6  #: added to the denominator of the update
    weight_decay: Annotated[float, Field(ge=0)] = 0.01  #: decoupled weight decay; norms and biases have none
    clip: Annotated[float, Field(ge=0)] = 1.0  #: largest norm of the gradient; 0: no clipping
    bias_correction: bool = True  #: whether the means are corrected for their start at zero


class ScheduleSpec(Part):
    """The schedule of the learning rate over the steps of a run.

    `warmup` below 1 is a share of the run, otherwise a number of steps. `overlap` is as in the released code, and
    `wsd` is warm-up, stable, decay. The rate never decays in a `constant` run, the trunk from which such runs can
    branch off (`StartSpec`). A `cosine` run ends at `floor`, a share of the peak: 0 for GPT (Radford et al. 2018,
    section 4.1), 0.1 for GPT-3 (Brown et al. 2020, appendix B). In an `inverse-sqrt` run the rate falls with the square
    root of the step (Vaswani et al. 2017, equation 3), whatever the length of the run. `until` is a share of the
    schedule, below 1 for the first phase of a training that another run goes on with (`StartSpec`).
    """

    #: shape of the learning rate after warm-up
    kind: Literal["linear", "wsd", "constant", "cosine", "inverse-sqrt"] = "linear"
    #: length of the linear warm-up; unset: 10,000 steps, at most a tenth of the run
    warmup: Annotated[float, Field(ge=0)] | None = None
    overlap: bool = False  #: whether the decay already runs during warm-up
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2  #: part at the end in which the rate of a `wsd` run decays
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.0  #: learning rate at the end of a `cosine` run
    #: share of the schedule at which the run ends; below 1, a later run continues it
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

    `words` are the words of the text seen in training, counted again in each epoch (`DataSpec`).
    """

    steps: Annotated[int, Field(ge=0, le=10**12)] | None = None  #: budget in optimizer steps
    tokens: Annotated[float, Field(gt=0, le=1e18)] | None = None  #: budget in tokens
    #: budget in words of the text, counted again in each epoch
    words: Annotated[float, Field(gt=0, le=1e18)] | None = None
    flops: Annotated[float, Field(gt=0, le=1e30)] | None = None  #: budget in training FLOPs
    seconds: Annotated[float, Field(gt=0, le=1e10)] | None = None  #: budget in seconds here
    convention: Convention = "paper"  #: how FLOPs are counted

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = list(self.model_dump(exclude={"convention"}, exclude_none=True))
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
        (unit,) = self.model_dump(exclude={"convention"}, exclude_none=True)
        return str(unit)

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

    #: settings in which the run that this one starts from differs, set as `start.parent.KEY`
    parent: dict[str, Any] = Field(default_factory=dict)
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5  #: part of the budget that the parent spends
    #: what is taken over: all of training, the encoder, or the generator
    take: Literal["all", "encoder", "generator"] = "all"
    freeze_generator: bool = False  #: whether the generator is not trained further


class PairSpec(Part):
    """The published discriminator and generator that a run goes on from, set by `start.from=DISCRIMINATOR,GENERATOR`.

    `names` are folders, or names on the hub. `files` is the SHA-256 over their files, filled in when they are read.
    With `allow_bin` (`start.allow_bin`), weights may be in pytorch_model.bin. `flops` are the training FLOPs that are
    stated of the pair (paper convention), None if none are: others spent them, and no budget includes them.
    """

    #: discriminator and generator, as folders or names on the hub
    names: Annotated[Names, Field(validate_default=True)] = ()
    allow_bin: bool = False  #: whether weights may be in pytorch_model.bin
    files: str = ""  #: hash of the files, filled in
    flops: float | None = None  #: training FLOPs that are stated of the pair

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

    `name` is its name on the hub, or the name of its folder. `files` is the SHA-256 over the files that are read.
    """

    name: str
    files: str


class TasksSpec(Part):
    """The tasks of evaluation and the settings of fine-tuning (table 7), which are not part of a run's identity.

    The released code differs from the paper in `extra_decay`, `doubled`, `sum_loss`, `overlap` and no
    `bias_correction` (docs/electra.md 5 and 7).
    """

    names: Names = ("pairs:replace", "linear:next")  #: what is measured; set by `--tasks`
    glue: str | None = None  #: folder or hub name of GLUE
    seeds: Annotated[int, Field(gt=0, le=1000)] = 3  #: fine-tuning seeds of each task
    lr: Annotated[float, Field(gt=0)] = 3e-4  #: peak learning rate of fine-tuning
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 0.8  #: learning rate of a layer relative to the layer above
    extra_decay: bool = False  #: one more power of `tasks.layer_decay` below the head
    weight_decay: Annotated[float, Field(ge=0)] = 0.0  #: decoupled weight decay of fine-tuning
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1  #: share of the steps with linear warm-up
    batch: Positive = 32  #: rows of one step
    #: passes over the training rows; unset: each task has its own number
    epochs: Annotated[float, Field(gt=0)] | None = None
    length: Annotated[int, Field(ge=8)] = 128  #: longer texts are cut, or read in windows
    dropout: Dropout = 0.1  #: dropout of states, embeddings and the head
    clip: Annotated[float, Field(gt=0)] = 1.0  #: largest norm of the gradient
    doubled: bool = False  #: whether MRPC and STS-B are also trained with their sentences swapped
    sum_loss: bool = False  #: whether the loss is the sum over the batch, not its mean
    overlap: bool = False  #: whether the decay already runs during warm-up
    bias_correction: bool = True  #: whether Adam's means are corrected for their start at zero
    rows: Positive | None = None  #: at most so many training rows of a task
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0  #: training rows that are measured in place of the test rows
    text: str | None = None  #: column of the text in a table
    pair: str | None = None  #: column of the second text in a table
    label: str | None = None  #: column of the label in a table
    #: how the labels of a table are read; unset: guessed from their values
    kind: Literal["classification", "multilabel", "regression"] | None = None
    blimp: str | None = None  #: folder or hub name of BLiMP's minimal pairs
    scorers: Names = ("default", "generator-pll")  #: how minimal pairs are scored
    control: bool = False  #: whether linear probes of words are also fitted to control tasks
    at: str = "auto"  #: points of training at which tasks are also measured; set by `--evaluate-at`
    babylm: str | None = None  #: folder of BabyLM's fine-tuning data
    tagging: str | None = None  #: folder of the named sets of tagged words
    #: weight of next-token prediction beside the task's loss, for causal encoders
    lm_weight: Annotated[float, Field(ge=0)] = 0.0
    metric: TableMetric | None = None  #: headline metric of a table; unset: chosen by the kind of its labels
    #: number of parts by which every row of a table is tested once
    folds: Annotated[int, Field(ge=2, le=100)] | None = None
    statistic: Literal["mean", "median"] = "mean"  #: what a report shows of fine-tuning seeds
    squad: str | None = None  #: folder of SQuAD
    squad_head: Literal["joint", "independent"] = "joint"  #: whether the end of an answer depends on its start
    #: tokens of a window of SQuAD; unset: as many as the encoder reads, at most 512
    squad_length: Annotated[int, Field(ge=16)] | None = None
    squad_stride: Positive | None = None  #: tokens between the starts of two windows of SQuAD
    superglue: str | None = None  #: folder of SuperGLUE
    #: embeddings of whole texts: of the frozen encoder, or after contrastive fine-tuning with mean or [CLS]
    embeddings: Literal["frozen", "contrastive", "contrastive-cls"] = "frozen"

    @property
    def chosen(self) -> bool:
        """Whether any task is named, besides the word `none`."""
        return not set(self.names) <= {"none"}

    @field_validator("at")
    @classmethod
    def _is_schedule(cls, value: str) -> str:
        """Accept the four kinds of schedule that `workbench.training.plan` describes."""
        if value in ("auto", "none", "words") or re.fullmatch(r"log:([1-9]|[1-4]\d|50)", value):
            return value
        raise ValueError(
            f"--evaluate-at {value[:80]!r} (tasks.at) must be auto, none, words, or log:N with N from 1 to 50, "
            f"such as log:6"
        )


# Fields of TasksSpec that select the tasks or belong to SQuAD; all others are settings of fine-tuning.
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
