"""Families of encoders: the contract that a family's file keeps, and how a family is found.

A family is one module: a file in `workbench/encoders/`, a module of an installed package under the entry-point group
`workbench.encoders`, or a file of one's own, `--set encoder.family=./my_encoder.py`, whose hash is part of the run's
identity. `workbench new encoder NAME` writes a commented one.

Planning reads this module without torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from workbench.errors import InputError, blaming
from workbench.registry import Plugs, check_options, file_of, options_of
from workbench.spec.parts import EncoderSpec, Part, Special

if TYPE_CHECKING:
    from torch import Tensor

Causal = Literal["never", "optional", "always"]
PLUGS = Plugs(
    "encoder", "--set encoder.family", "workbench.encoders", Path(__file__).parents[1] / "encoders",
    "workbench.encoders", ("build", "cost"),
)  # fmt: skip


def _states(model: Any, ids: Tensor, attention: Tensor | None, segments: Tensor | None) -> Tensor:
    states: Tensor = model(ids, attention, segments)
    return states


def decays(name: str, weight: Any) -> bool:
    """Return whether weight decay applies: to everything but biases and norms, as in the released code of ELECTRA."""
    last = name.split(".")[-2:]
    return last[-1] != "bias" and "norm" not in ".".join(last).lower()


@dataclass(frozen=True, eq=False)
class Family:
    """The contract of a family: the names that its file defines. `build` and `cost` have no default.

    B rows, L positions, D = `config.hidden`. `config` is an `EncoderSpec`: width, layers, heads, dropout and so on.
    """

    name: str
    source: str  # hash of the file, "" for a built-in family
    file: str

    #: (config, special) -> the torch module with its initial weights. Calling it with ids (B, L) int64, attention
    #: (B, L) bool or None if no row is padded, and segments (B, L) or None, returns the states (B, L, D).
    build: Callable[[EncoderSpec, Special], Any]
    #: (config, length) -> the `Flops` of one forward pass over one row, such as `flops.transformer(config, length)`
    cost: Callable[[EncoderSpec, int], Any]

    #: the family's own options, set as `encoder.options.NAME`; `config.options` has their values
    Options: type[Part] = Part
    TABLE: str = "tokens"  #: path of the token table in the module: an nn.Embedding (vocabulary, embedding width)
    EMBEDDINGS: str = ""  #: path of the module of all embedding tables, shared by tying=embeddings; "": TABLE alone
    LAYERS: str = "layers"  #: path of the nn.ModuleList of layers, whose outputs linear probes read; "": none
    OWN_WIDTH: bool = False  #: whether embeddings may have another width than the layers (`encoder.embedding`)
    PROJECTS_INSIDE: bool = False  #: whether EMBEDDINGS itself projects to the width of the layers
    CAUSAL: Causal = "never"  #: whether `config.causal` is obeyed, or no position ever sees a later one
    SEGMENTS: bool = False  #: whether a first and a second text of a row are distinguished
    READS_LAYERS: bool = False  #: whether weights of layers are read without calling these (for sharding)
    TIED_HEAD: bool = False  #: whether the next token is predicted by the token table alone, as by GPT-2
    TIED_QUERY_HEAD: bool = False  #: the same for the query stream, as by XLNet

    #: (name, weight) -> whether weight decay applies in pre-training
    decays: Callable[[str, Any], bool] = decays
    #: (name, weight) -> the factor of the learning rate in pre-training; None: 1 for all weights
    rate: Callable[[str, Any], float] | None = None
    #: (model, weights, folder): write config.json and model.safetensors as Hugging Face reads them; None: no hub format
    to_hub: Callable[[Any, dict[str, Tensor], Path], None] | None = None
    #: (folder, dropout) -> the module of such a folder, None if only Hugging Face can load it
    from_hub: Callable[[Path, float], Any] | None = None
    #: (model, weights, head, folder): the same with a head that predicts [MASK], or detects replaced tokens
    masked_lm_to_hub: Callable[[Any, dict[str, Tensor], Any, Path], None] | None = None
    discriminator_to_hub: Callable[[Any, dict[str, Tensor], Any, Path], None] | None = None

    #: (model, ids, attention, segments) -> states, if calling the module is not enough; the same by plain torch
    states: Callable[[Any, Tensor, Tensor | None, Tensor | None], Tensor] = _states
    plain_states: Callable[[Any, Tensor, Tensor | None, Tensor | None], Tensor] | None = None
    #: (model, ids, places) -> states (B, D) at places (B,) of rows without padding, without gradients
    states_at: Callable[[Any, Tensor, Tensor], Tensor | None] | None = None
    #: (model, ids, queries, segments, mask, plain) -> states (B, M, D) of a query stream (`models/two_streams.py`)
    query_states: Callable[..., Tensor] | None = None
    #: (config, length, queries) -> the `Flops` of both streams
    query_cost: Callable[[EncoderSpec, int, int], Any] | None = None
    #: (model, part): train the weights that only "segments", or only "queries", train
    release: Callable[[Any, Literal["segments", "queries"]], None] = lambda model, part: None


def family_of(encoder: EncoderSpec) -> Family:
    """Return the family of an encoder. Raises InputError if it cannot be found or does not keep the contract."""
    name, source = (encoder.family, encoder.source) if encoder.source else PLUGS.find(encoder.family)
    return loaded(name, source)


def built_in() -> list[Family]:
    """Return all built-in families."""
    return [loaded(name, "") for name in PLUGS.built_in]


@functools.cache
def loaded(name: str, source: str) -> Family:
    """Return the family of a module. Raises InputError with one sentence about the first fault of the module."""
    module = PLUGS.load(name, source)
    file = file_of(module)
    given: dict[str, Any] = {}
    for each in fields(Family)[3:]:
        if not hasattr(module, each.name):
            continue
        part = each.name
        given[part] = value = getattr(module, part)
        if part == "Options":
            check_options(value, file)
        elif part == "CAUSAL":
            if value not in get_args(Causal):
                raise InputError(f"{file}: CAUSAL is {value!r:.40}, not one of {', '.join(get_args(Causal))}")
        elif part.isupper():
            kind = type(getattr(Family, part))
            if not isinstance(value, kind):
                raise InputError(f"{file}: {part} is {value!r:.40}, and must be a {kind.__name__}")
        elif not callable(value):
            raise InputError(f"{file}: {part} is {value!r:.40}, and must be a function")
    if source:
        given |= {part: _blamed(given[part], file, part) for part in ("build", "cost", *HUB) if given.get(part)}
    return Family(name, source, file, **given)


HUB = ("to_hub", "from_hub", "masked_lm_to_hub", "discriminator_to_hub")


def _blamed(function: Callable[..., Any], file: str, part: str) -> Callable[..., Any]:
    """Return the function of a stranger's file, whose errors are one sentence with file and line."""

    def call(*given: Any) -> Any:
        with blaming(file, f"{part} raised", "encoder"):
            return function(*given)

    return call


def resolved(encoder: EncoderSpec) -> EncoderSpec:
    """Return the settings with name and hash of the family's file, and with all of its options, checked.

    Raises InputError for a family that cannot be loaded, or an option that it does not have.
    """
    family = family_of(encoder)
    options = options_of(family.Options, encoder.options, "encoder.options", family.file, "encoder")
    return encoder.model_copy(update={"family": family.name, "source": family.source, "options": options})
