"""The spec of a run: all settings that decide what it computes. How a run is carried out is described by `host.py`.

Sources: Clark et al. 2020 (tables 6 and 7, sections 2 and 3) and the released code; docs/electra.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeVar, cast, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from workbench.errors import InputError, listed, suggest
from workbench.options import SweepOptions, flag, options_of
from workbench.spec.parts import (
    COUNTS,
    UNITS,
    BatchSpec,
    Budget,
    CorruptionSpec,
    DataSpec,
    EncoderSpec,
    GeneratorSpec,
    OptimSpec,
    PairSpec,
    Part,
    PublishedSpec,
    Recipe,
    ScheduleSpec,
    StartSpec,
    TasksSpec,
    Tying,
    heads_of,
    is_unset,
)

P = TypeVar("P", bound="Part")


class RunSpec(Part):
    """All settings of one pre-training run.

    `options` are the objective's; `source` is the hash of the objective's file if it is not part of the package. A spec
    with `published` is of a model that others trained: its other settings have no effect.
    """

    #: what the encoder is trained on; `workbench list objectives` names them; or a file of your own
    objective: str = "rtd"
    source: str = ""  #: hash of the objective's file, filled in if it is not part of the package
    options: dict[str, Any] = Field(default_factory=dict)  #: the objective's own options, set as `options.NAME`
    scale: str = "nano"  #: the named sizes and settings that all other keys start from; set by `--scale`
    recipe: Recipe = "paper"  #: where paper and released code differ: which of them to follow
    encoder: EncoderSpec = EncoderSpec()
    generator: GeneratorSpec = GeneratorSpec()
    #: what generator and discriminator share: nothing, token embeddings, all embeddings, all weights, or DeBERTa's way
    tying: Tying = "embeddings"
    data: DataSpec = DataSpec()
    corruption: CorruptionSpec = CorruptionSpec()
    batch: BatchSpec = BatchSpec()
    optim: OptimSpec = OptimSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    budget: Budget = Budget(steps=1000)
    #: seed of initial weights, order of rows, masks and samples; set by `--seeds`
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    head: Literal["linear", "dense"] = "linear"  #: the detection head: one linear layer, or a dense layer before it
    start: StartSpec | None = None
    tasks: TasksSpec = TasksSpec()
    pair: PairSpec | None = Field(default=None, exclude_if=is_unset)
    published: PublishedSpec | None = Field(default=None, exclude_if=is_unset)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.data.length > self.encoder.positions:
            raise ValueError(
                f"data.length={self.data.length} must not exceed encoder.positions={self.encoder.positions}; "
                f"lower the first or raise the second"
            )
        if self.generator.kind == "ngram" and self.generator.temperature != 1:
            raise ValueError(
                f"generator.temperature={self.generator.temperature:g} cannot be combined with generator.kind=ngram, "
                f"which samples by its counts; set generator.temperature=1"
            )
        if self.tying in ("all", "gdes") and self.generator.kind != "transformer":
            raise ValueError(
                f"tying={self.tying} cannot be combined with generator.kind={self.generator.kind}, which has no "
                f"weights to share; leave tying out"
            )
        if self.tying == "all" and (self.generator.width, self.generator.depth) != (1.0, 1.0):
            raise ValueError(
                f"tying=all shares every weight, so it needs generator.width=1 and generator.depth=1, "
                f"got {self.generator.width:g} and {self.generator.depth:g}"
            )
        if self.tying == "all" and self.generator.heads not in (None, self.encoder.head_count):
            raise ValueError(
                f"tying=all shares every weight, so the generator has the encoder's {self.encoder.head_count} heads; "
                f"leave generator.heads={self.generator.heads} out"
            )
        try:
            self.generator_encoder  # noqa: B018 - raises an error if the sizes are not valid
        except ValidationError as error:
            key = "width" if self.generator.heads is None else "heads"
            raise ValueError(f"generator.{key}={getattr(self.generator, key):g}: {_text_of(error)}") from None
        if self.start is not None:
            self._start_fits(self.start)
        return self

    def _start_fits(self, start: StartSpec) -> None:
        """Raise ValueError if this run cannot take over what `start` takes from the parent."""
        parent = self.parent()
        assert parent is not None
        rows = {"pairs": None, "copies": None, "length": 0}  # how a text becomes rows
        if parent.data.model_copy(update=rows) != self.data.model_copy(update=rows):
            raise ValueError(
                "start.parent cannot change data: a run and its parent must read the same text; only data.length may "
                "differ"
            )
        if self.budget.unit == "words" and parent.data.length != self.data.length:
            raise ValueError(
                f"with rows of {parent.data.length} and then {self.data.length} tokens, a budget cannot be in words, "
                f"of which a longer row holds a larger share; give tokens, FLOPs or steps"
            )
        if start.take == "all":
            own_settings, parent_settings = (
                {**run.model_dump(), **dict.fromkeys(_BRANCHES), "data": {**run.data.model_dump(), "length": None}}
                for run in (self, parent)
            )
            other = next((key for key in own_settings if own_settings[key] != parent_settings[key]), None)
            if other:
                raise ValueError(
                    f"start.take=all continues the parent's training, so start.parent may change only the schedule "
                    f"and data.length, but it changes {other}"
                )
            if self.schedule.kind == "wsd" and self.schedule.decay > 1 - start.share + 1e-9:
                raise ValueError(
                    f"schedule.decay={self.schedule.decay:g} would begin before this run does, which has "
                    f"{1 - start.share:g} of the budget with start.share={start.share:g}; lower one of them"
                )
        elif any(value != getattr(self.encoder, key) for key, value in parent.encoder if key != "causal"):
            raise ValueError(
                f"start.take={start.take} needs a parent with the same encoder; remove the encoder's keys from "
                "start.parent"
            )
        if start.freeze_generator and start.take == "encoder":
            raise ValueError(
                "start.freeze_generator needs a generator from the parent, and start.take=encoder takes none; "
                "set start.freeze_generator=false"
            )
        if start.freeze_generator and self.tying != "none":
            raise ValueError(
                f"start.freeze_generator would also freeze the weights that tying={self.tying} shares with the "
                "encoder; set tying=none"
            )
        sizes = self.encoder.model_copy(update={"embedding": self.encoder.embedding_width})  # as in `generator_encoder`
        same = self.generator.kind == "transformer" and self.generator_encoder == sizes
        if start.take == "generator" and not (same and self.tying == "none"):
            raise ValueError(
                f"start.take=generator starts generator and encoder from the same weights, so it needs "
                f"generator.width=1, generator.depth=1 and tying=none, got {self.generator.width:g}, "
                f"{self.generator.depth:g} and {self.tying}"
            )

    @property
    def picks(self) -> int:
        """K, the number of slots for picked positions in a row, which is constant, so that shapes never change."""
        return self.picked(self.data.length)

    def picked(self, tokens: int) -> int:
        """Return how many of `tokens` tokens that are not padding are picked (docs/electra.md 1.1)."""
        rate = self.corruption.rate
        if self.corruption.picks == "distinct":
            return max(1, math.ceil(rate * tokens - 1e-9))
        return max(1, min(math.floor((rate + 0.005) * self.data.length), round(rate * tokens)))

    @property
    def generator_encoder(self) -> EncoderSpec:
        """The generator's sizes; inner width and heads follow from its width as in the official `get_generator_config`.

        If it shares no embeddings, they are as wide as its layers. A generator as wide as the encoder has the encoder's
        inner width, heads and embedding width. `generator.heads` is another number of heads.
        """
        hidden, usual_heads = self._generator_heads
        same = hidden == self.encoder.hidden
        heads = self.generator.heads
        if heads in (None, usual_heads):
            heads = self.encoder.heads if same else None
        return EncoderSpec(
            **{
                **self.encoder.model_dump(),
                "hidden": hidden,
                "layers": max(1, round(self.encoder.layers * self.generator.depth)),
                "heads": heads,
                "ffn": self.encoder.ffn if same else None,
                "embedding": hidden if self.tying == "none" and not same else self.encoder.embedding_width,
            }
        )

    @property
    def _generator_heads(self) -> tuple[int, int]:
        """The width of the generator, and its attention heads without `generator.heads`."""
        width = max(1, round(self.encoder.hidden * self.generator.width))
        return width, self.encoder.head_count if width == self.encoder.hidden else heads_of(width)

    @property
    def generator_frozen(self) -> bool:
        """Whether the generator keeps the weights that it got from the parent."""
        return self.start is not None and self.start.freeze_generator

    def parent(self) -> Self | None:
        """Return the spec of the run that this one starts from, or None if there is none. Raises InputError."""
        if self.start is None:
            return None
        own = flat(self.start.parent)
        raw = self.model_dump() | {"start": None, "budget": self.budget.part(self.start.share)}
        raw["tasks"] |= {"names": ("none",), "lm_weight": 0.0}  # no report needs its scores
        if own.get("objective", self.objective) != self.objective:
            raw |= {"source": "", "options": {}}
            raw["encoder"]["causal"] = raw["data"]["pairs"] = None  # as the parent's objective needs them
        if any(key.startswith("budget.") for key in own):
            raw["budget"] = {"convention": self.budget.convention}
        return cast(Self, parse(merge(raw, own)))  # of the same stage, see `stages`

    def replace(self, **changes: Any) -> Self:
        """Return a copy with whole fields replaced, and check it. Raises InputError."""
        return cast(Self, parse({**self.model_dump(), **changes}))

    def changed(self, overrides: Mapping[str, Any]) -> Self:
        """Return a copy with dotted keys changed, as in `spec.changed({"generator.width": 0.5})`, and check it.

        Another family has neither the file nor the options of the former one. Raises InputError.
        """
        raw = self.model_dump()
        if self.encoder.source and overrides.get("encoder.family", self.encoder.family) != self.encoder.family:
            raw["encoder"] |= {"source": "", "options": {}}
        return cast(Self, parse(merge(raw, overrides)))

    def identity(self) -> dict[str, Any]:
        """Return all settings that decide what the run computes, with default sizes filled in; tasks are left out.

        Once the text is prepared, its fingerprint stands for text and tokenizer: where they lie (PLACES) and how their
        files are named or packed is left out. A published pair or model is its files, whatever its name.

        A field that was added later is left out while it has the value that was in effect before, so that older runs
        keep their names.
        """
        if self.published is not None:
            return {"published": self.published.files}
        full = self.model_dump(mode="json", exclude={"tasks": True, "scale": True})
        full["encoder"] |= {
            "heads": self.encoder.head_count,
            "ffn": self.encoder.ffn_width,
            "embedding": self.encoder.embedding_width,
        }
        if not self.encoder.causal:  # None or false
            del full["encoder"]["causal"]
        for name, former in _ADDED_LATER.items():
            part, key = name.split(".")
            if full[part][key] == former:
                del full[part][key]
        if self.generator.heads == self._generator_heads[1]:
            del full["generator"]["heads"]
        if self.generator.kind == "transformer":
            del full["generator"]["kind"]
        else:
            for key in ("width", "depth", "heads"):  # of a generator that is a network
                full["generator"].pop(key, None)
        if self.schedule.kind not in ("linear", "wsd"):
            del full["schedule"]["decay"]
        del full["data"]["words"], full["data"]["tokens"]  # they follow from the text, as does the fingerprint
        if self.data.fingerprint:
            for key in _PLACES_OF_TEXT:
                del full["data"][key.removeprefix("data.")]
        if self.pair is not None:
            full["pair"] = self.pair.files or list(self.pair.names)
            full["data"].pop("tokenizer", None)  # it is the pair's
        del full["start"]
        parent = self.parent()
        if self.start is not None and parent is not None:
            taken = self.start.model_dump(include={"take", "freeze_generator"})
            full["start"] = taken | {"parent": parent.identity()}
        return full

    def places(self) -> dict[str, Any]:
        """Return where text, tokenizer and published pair are found, by dotted keys."""
        places = dict[str, Any]()
        for key in PLACES if self.pair is not None else _PLACES_OF_TEXT:
            places[key] = value_at(self, key)
        return places

    def placed(self, places: Mapping[str, Any]) -> Self:
        """Return the same run with the places of its command on this machine, as `places` returned them."""
        here = dict[str, Any]()
        for key, value in self.places().items():
            if places.get(key, value) != value:
                here[key] = places[key]
        return self.changed(here) if here else self

    @property
    def arm(self) -> str:
        """A name that runs have in common if they differ in nothing but the seed."""
        return self.model_copy(update={"seed": 0}).name

    @property
    def name(self) -> str:
        """The readable name of the run with the hash of its identity, such as `rtd-nano-s0-3f9c2a1b04de`.

        It is the run's id once options are filled in, text is prepared and the budget is matched (`stages.BoundRun`).
        """
        if self.published is not None:
            return f"published-{digest(self.identity())}"
        word = "untrained" if self.budget.steps == 0 else self.objective.rsplit("/", 1)[-1].removesuffix(".py")
        return f"{slug(f'{word}-{self.scale}')}-s{self.seed}-{digest(self.identity())}"


# Settings that newer versions added, and the value that was in effect before (see `RunSpec.identity`).
_ADDED_LATER: dict[str, Any] = {
    "schedule.floor": 0.0, "schedule.until": 1.0, "corruption.generator_random": 0.0, "generator.heads": None,
    "optim.kind": "adamw", "optim.generator_lr": None, "data.held_out": 0.0, "data.strip_accents": None,
    "data.min_words": 0, "data.max_words": None, "data.language": None, "data.near_duplicates": None,
    "data.pairs": None, "data.copies": None, "budget.words": None,
}  # fmt: skip

# Paths and names of a run's inputs. They differ between machines, so they are no part of a run's identity.
_PLACES_OF_TEXT = ("data.corpus", "data.revision", "data.column", "data.tokenizer")
PLACES = (*_PLACES_OF_TEXT, "pair.names", "pair.allow_bin")
_BRANCHES = ("schedule", "budget", "start", "tasks", "scale")  # fields in which a branch may differ from its trunk


def slug(text: str) -> str:
    """Return at most 60 characters that are letters of ASCII in lower case, digits and hyphens."""
    return re.sub("[^a-z0-9]", "-", text.lower()).strip("-")[:60]


def digest(value: Any, size: int = 12) -> str:
    """Return the first `size` hex digits of the SHA-256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:size]


def parse(raw: Mapping[str, Any]) -> RunSpec:
    """Return a checked spec from plain data. Raises InputError with one sentence about the first error."""
    try:
        return RunSpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(_sentence(error)) from None


@lru_cache(maxsize=1024)
def parse_stored(text: str) -> RunSpec:
    """Return the spec of a record on disk, in JSON, which is checked once for each text. Raises InputError."""
    return parse(json.loads(text))


def parse_part(kind: type[P], raw: Mapping[str, Any], name: str) -> P:
    """Return a checked part of a spec, such as an objective's `Options`; `name` is its key. Raises InputError."""
    for key in raw:
        if key not in kind.model_fields:
            raise InputError(f"unknown key '{name}.{key}'{suggest(f'{name}.{key}', known_keys(kind, name + '.'))}")
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise InputError(_sentence(error, name)) from None


def _sentence(error: ValidationError, prefix: str = "") -> str:
    """Return the first error of a validation as a message; `prefix` is the key of the part that was checked."""
    first = error.errors()[0]
    where = ".".join([prefix] * bool(prefix) + [str(part) for part in first["loc"]])
    where = next((key for key, spelled in SPELLINGS.items() if spelled == where), where)
    text = _text_of(error)
    if first["type"] == "extra_forbidden":
        return f"unknown key '{where}'{suggest(where, known_keys(), lists='workbench list keys')}"
    if first["type"] == "value_error":
        return text if not where or text.startswith(where) else f"{where}: {text}"
    if first["type"] == "missing":
        return f"{where} has no value and no default; give one"
    return f"{where}={first['input']!r:.200} cannot be used: {text[0].lower()}{text[1:]}"


def _text_of(error: ValidationError) -> str:
    """Return what the first error of a validation says, without the words that pydantic puts before our own."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def known_keys(kind: type[BaseModel] = RunSpec, prefix: str = "") -> list[str]:
    """Return every dotted key that `--set` takes."""
    keys: list[str] = []
    for name, field in kind.model_fields.items():
        if prefix + name in ("pair", "published"):  # set as `start.from`, and filled in by `workbench evaluate`
            continue
        part = _part_in(field)
        keys += known_keys(part, f"{prefix}{name}.") if part else [prefix + name]
    return keys


def _part_in(field: FieldInfo | None) -> type[BaseModel] | None:
    """Return the part of a spec that a field holds, None for a plain value."""
    kind = field.annotation if field else None
    for part in (kind, *get_args(kind)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def settable_keys() -> list[str]:
    """Return every dotted key whose value can be given; the other keys are found by the package itself."""
    found = ("source", "encoder.source", "data.fingerprint", *COUNTS, "objective", "options", "encoder.options",
             "start.parent")  # fmt: skip
    return [key for key in (*known_keys(), *SPELLINGS) if key not in found and not key.startswith("data.special.")]


OWN_OPTIONS = ("options.", "encoder.options.")  # keys of the options of an objective, and of an encoder's family
SPELLINGS = {"start.from": "pair.names", "start.allow_bin": "pair.allow_bin"}  # a user's keys of other fields
CLEAR = "unset"  # as a value on the command line: the field has no value, as if it had been left out


# Names of the same settings in other programs, and what to give here.
OTHER_NAMES = {
    "learning_rate": "optim.lr", "lr": "optim.lr", "adam_beta1": "optim.beta1", "adam_beta2": "optim.beta2",
    "adam_epsilon": "optim.eps", "betas": "optim.beta1", "weight_decay": "optim.weight_decay",
    "max_grad_norm": "optim.clip", "grad_clip": "optim.clip", "gradient_clip_val": "optim.clip",
    "optimizer": "optim.kind", "optim": "optim.kind", "lr_scheduler_type": "schedule.kind",
    "lr_scheduler": "schedule.kind", "scheduler": "schedule.kind", "warmup_steps": "schedule.warmup",
    "warmup_ratio": "schedule.warmup", "num_warmup_steps": "schedule.warmup", "warmup_proportion": "schedule.warmup",
    "mlm_probability": "corruption.rate", "mask_prob": "corruption.rate", "mask_ratio": "corruption.rate",
    "masking_ratio": "corruption.rate", "mask_rate": "corruption.rate", "per_device_train_batch_size": "batch.size",
    "train_batch_size": "batch.size", "batch_size": "batch.size", "per_device_eval_batch_size": "tasks.batch",
    "max_seq_length": "data.length", "max_length": "data.length", "block_size": "data.length",
    "sequence_length": "data.length", "seq_length": "data.length", "seq_len": "data.length",
    "context_length": "data.length", "hidden_size": "encoder.hidden", "d_model": "encoder.hidden",
    "num_hidden_layers": "encoder.layers", "num_layers": "encoder.layers", "n_layer": "encoder.layers",
    "n_layers": "encoder.layers", "num_attention_heads": "encoder.heads", "num_heads": "encoder.heads",
    "n_head": "encoder.heads", "n_heads": "encoder.heads", "tie_embeddings": "tying", "tie_word_embeddings": "tying",
    "intermediate_size": "encoder.ffn", "embedding_size": "encoder.embedding", "vocab_size": "encoder.vocab",
    "max_position_embeddings": "encoder.positions", "hidden_dropout_prob": "encoder.dropout",
    "dropout": "encoder.dropout", "attention_probs_dropout_prob": "encoder.attention_dropout",
    "attn_implementation": "encoder.attention", "initializer_range": "encoder.init",
    "generator_hidden_size": "generator.width", "generator_size": "generator.width",
    "generator_layers": "generator.depth", "temperature": "generator.temperature", "disc_weight": "options.weight",
    "layerwise_lr_decay": "tasks.layer_decay", "random_seed": "seed", "model": "encoder.family",
    "model_type": "encoder.family", "tokenizer_name": "data.tokenizer", "model_name_or_path": "start.from",
    "num_labels": "tasks.kind", "num_train_epochs": "--budget tokens=N (tasks.epochs is for fine-tuning)",
    "epochs": "--budget tokens=N (tasks.epochs is for fine-tuning)", "max_steps": "--budget steps=N",
    "num_train_steps": "--budget steps=N", "steps": "--budget steps=N", "max_tokens": "--budget tokens=N",
    "gradient_accumulation_steps": "--micro-batch ROWS (batch.size is the rows of a whole step)",
    "micro_batch_size": "--micro-batch ROWS", "fp16": "--precision bf16", "bf16": "--precision bf16",
    "save_steps": "--save-every STEPS", "output_dir": "--runs FOLDER", "train_file": "--corpus FILE",
    "dataset_name": "--corpus NAME", "dataset": "--corpus NAME", "task": "--tasks NAMES", "task_name": "--tasks NAMES",
    "num_workers": "--workers N", "eval_steps": "--evaluate-at POINTS", "eval_strategy": "--evaluate-at POINTS",
    "report_to": "--track wandb", "torch_compile": "--compile", "no_cuda": "--device cpu", "use_cpu": "--device cpu",
    "nproc_per_node": "--devices N",
}  # fmt: skip


def other_name(word: str) -> str:
    """Return what to give here for a setting by its name in other programs, or "" if the name is not known."""
    return OTHER_NAMES.get(word.strip("-").replace("-", "_").lower(), "")


def unknown_key(key: str, where: str, known: Iterable[str]) -> InputError:
    """Return the error about a key that no spec has, with the key that its name in other programs stands for."""
    option = key.strip("-").replace("-", "_").lower()
    declared = options_of(SweepOptions).get(option)
    other = other_name(key) or other_name(key.rpartition(".")[2])  # as in optim.learning_rate
    other = f"{flag(option)} {declared.metavar or ''}".strip() if declared else other
    meant = f"; did you mean {other!r}?" if other else suggest(key, known, lists="workbench list keys")
    inside = [name for name in known if name.startswith(f"{key}.")]
    if inside and not other:
        meant = f"; it holds {listed(inside)}"
    advice = f"; give {other}" if other.startswith("--") else meant
    return InputError(f"unknown key {key!r} in {where}{advice}")


def split_settings(texts: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Return the values of `key=value` by key. Raises InputError for a key given twice with different values."""
    example = "key=1,2,3 or key=1e-4..1e-3:log" if option == "--over" else "key=value, as in --set optim.lr=5e-4"
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = map(str.strip, text.partition("="))
        if not equals or not key or (option == "--over" and not value):
            raise InputError(f"{option} {text!r} is not of the form {example}")
        if key in settings and option == "--over":
            raise InputError(f"--over {key} is given twice; give all its values at once, as in --over {key}=1,2,3")
        if settings.get(key, value) != value:
            raise InputError(f"{option} {key} is given twice, as {settings[key]!r} and {value!r}; keep one")
        settings[key] = value
    return settings


def overrides_of(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of `--set` by the keys of the spec; None and `unset` clear a field. Raises InputError."""
    overrides: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        if not key.startswith((*OWN_OPTIONS, "start.parent.")) and key not in (known := [*known_keys(), *SPELLINGS]):
            raise unknown_key(key, "--set", known)
        overrides[SPELLINGS.get(key, key)] = override_value(key, value, "--set")
    return overrides


def override_value(key: str, value: Any, option: str) -> Any:
    """Return the value that `option` (`--set`, `--over`) gives a field: the value itself, or None for `unset`.

    Raises InputError for `unset` if the field cannot be empty, for `none` if the field cannot have this value, and for
    fields that are counted in the text.
    """
    refuse_found(key, option)
    part, name = part_of(SPELLINGS.get(key, key).removeprefix("start.parent."))
    field, clears = part.model_fields.get(name), value in (None, CLEAR)
    if field is None:  # an option of an objective or a family, which is checked against the objective's own types
        return None if clears else value
    optional = type(None) in get_args(field.annotation)
    if clears and not optional:
        raise InputError(f"{option} {key}={CLEAR}: {key} always has a value; give one, or leave the option out")
    if optional and isinstance(value, str) and value.lower() in ("none", "null"):
        kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        try:
            TypeAdapter(kind).validate_python(value)
        except ValidationError:
            raise InputError(f"{option} {key}={value}: to clear a value, write {key}={CLEAR}") from None
    return None if clears else value


def refuse_found(key: str, where: str) -> None:
    """Raise InputError if the value of a key is found by the package itself, so that nobody can give it."""
    if key in COUNTS:
        raise InputError(
            f"{where} {key}: this value is counted in the text and cannot be set; for a number of words seen in "
            "training, use --budget words=N"
        )
    if key in ("source", "encoder.source", "data.fingerprint") or key.startswith("data.special."):
        files = {"source": "the objective's file", "encoder.source": "the file of the family"}
        of = files.get(key, "the prepared text")
        raise InputError(f"{where} {key}: this value is read from {of} and cannot be set; leave it out")


def part_of(key: str) -> tuple[type[BaseModel], str]:
    """Return the part of `RunSpec` that has the field of a dotted key, and the field's name there.

    For a key of no part, such as an option of an objective, the name has dots or is not one of its fields.
    """
    kind: type[BaseModel] = RunSpec
    while "." in key:
        name, _, rest = key.partition(".")
        part = _part_in(kind.model_fields.get(name))
        if part is None:
            break
        kind, key = part, rest
    return kind, key


def parse_budget(given: str | Mapping[str, float], option: str = "--budget") -> Budget:
    """Return the budget of a text such as `flops=1e17`, `tokens=2e6`, `words=1e8`, `steps=1000` or `seconds=600`.

    In Python it may be a mapping of the unit to the amount. Raises InputError, which names `option`.
    """
    text = given if isinstance(given, str) else dict(given)
    unit, amount = given.partition("=")[::2] if isinstance(given, str) else next(iter(given.items()), ("", ""))
    if unit not in UNITS or (not isinstance(given, str) and len(given) > 1):
        *most, last = (f"{unit}=" for unit in UNITS)
        raise InputError(f"{option} {text!r} must be one of {', '.join(most)} or {last} and a number")
    try:
        number = float(amount)
        return Budget.model_validate({unit: int(number) if unit == "steps" and number.is_integer() else number})
    except ValidationError as error:
        first = error.errors()[0]
        too_many = first["type"] == "less_than_equal"
        what = f"more than {float(first['ctx']['le']):g} {unit}" if too_many else f"not a positive number of {unit}"
        raise InputError(f"{option} {text!r}: {amount!r} is {what}") from None
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{option} {text!r}: {amount!r} is not a positive number of {unit}") from None


def merge(raw: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `raw` in which the dotted keys of `overrides` have their values."""
    merged = dict(raw)
    for key, value in overrides.items():
        head, dot, rest = SPELLINGS.get(key, key).partition(".")
        merged[head] = merge(merged.get(head) or {}, {rest: value}) if dot else value
    return merged


def value_at(spec: RunSpec, key: str) -> Any:
    """Return the value of a dotted key; None if the run has none, as for an option that its objective does not have."""
    value: Any = spec.model_dump(mode="json")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def flat(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one with dotted keys, the inverse of `merge`."""
    dotted: dict[str, Any] = {}
    for key, value in raw.items():
        dotted |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return dotted
