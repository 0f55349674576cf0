"""Going on from a published pair: an ELECTRA discriminator and its generator, each with its head, by names of weights.

In a pair that was trained together with tied embeddings, both files hold the same word, position and segment tables
and the same layer norm; this is checked. `MAPS` has the names of both libraries, as Hugging Face's
`ElectraForPreTraining` and `ElectraForMaskedLM` write them; the first name of a weight of ours that fits is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from workbench.data import hugging_face, model_files
from workbench.data.hugging_face import model_folder
from workbench.errors import InputError
from workbench.spec.parts import PairSpec
from workbench.spec.run_spec import RunSpec, digest
from workbench.store.atomic import sha256

# Prefix of the names of weights here -> (file of the pair, prefix of the names there).
MAPS: dict[str, tuple[str, str]] = {
    "encoder.model.": ("discriminator", "electra."),
    "head.dense.": ("discriminator", "discriminator_predictions.dense."),
    "head.out.": ("discriminator", "discriminator_predictions.dense_prediction."),
    "generator.body.model.": ("generator", "electra."),
    "generator.head.dense.": ("generator", "generator_predictions.dense."),
    "generator.head.norm.": ("generator", "generator_predictions.LayerNorm."),
    "generator.head.bias": ("generator", "generator_lm_head.bias"),
}
HEADS = {
    "discriminator": ("discriminator_predictions.dense_prediction.weight", "ElectraForPreTraining"),
    "generator": ("generator_lm_head.bias", "ElectraForMaskedLM"),
}
TABLES = "electra.embeddings."
USUAL = {"hidden_act": "gelu", "position_embedding_type": "absolute", "type_vocab_size": 2, "layer_norm_eps": 1e-12}


@dataclass(frozen=True)
class Pair:
    """The checked files of a discriminator and its generator."""

    names: tuple[str, ...]
    discriminator: hugging_face.EncoderFiles
    generator: hugging_face.EncoderFiles

    @property
    def files(self) -> str:
        """One SHA-256 over the weights and sizes of both, and the tokenizer of the discriminator."""
        tokenizer = hugging_face.check_tokenizer_folder(self.discriminator.folder)
        paths = [*self.discriminator.weights.values(), *self.generator.weights.values()]
        paths += [path for _, path in sorted(tokenizer.items())]
        return digest([[sha256(path) for path in paths], _sizes(self.discriminator), _sizes(self.generator)], 64)


def find(spec: PairSpec) -> Pair:
    """Return the files of a pair, downloaded if needed. Raises InputError if one is no ELECTRA that can be read."""
    parts = []
    for name in spec.names:
        folder = model_folder(name, spec.allow_bin)
        folder = model_files.with_safetensors(folder) if spec.allow_bin else folder
        files = hugging_face.check_encoder_folder(folder)
        unusual = next((key for key, value in USUAL.items() if files.config.get(key, value) != value), None)
        kind = files.config["model_type"]
        if kind != "electra" or unusual or files.config.get("is_decoder"):
            what = f"its {unusual} is {files.config.get(unusual)}" if unusual else f"it is a {kind} model"
            raise InputError(f"start.from: {name} cannot be a part of an ELECTRA pair: {what}")
        parts.append(files)
    return Pair(tuple(spec.names), parts[0], parts[1])


def settings(pair: Pair) -> dict[str, Any]:
    """Return the keys of a spec that follow from a pair: sizes, heads, tying and tokenizer."""
    main, small = _sizes(pair.discriminator), _sizes(pair.generator)
    if main["vocab_size"] != small["vocab_size"] or main["embedding_size"] != small["embedding_size"]:
        raise InputError(
            f"start.from: {pair.names[0]} and {pair.names[1]} do not form a pair: their token tables have the sizes "
            f"{main['vocab_size']} x {main['embedding_size']} and {small['vocab_size']} x {small['embedding_size']}"
        )
    return {
        "encoder.family": "electra", "encoder.layers": main["num_hidden_layers"],
        "encoder.hidden": main["hidden_size"], "encoder.heads": main["num_attention_heads"],
        "encoder.ffn": main["intermediate_size"], "encoder.embedding": main["embedding_size"],
        "encoder.positions": main["max_position_embeddings"], "encoder.vocab": main["vocab_size"],
        "generator.kind": "transformer", "generator.width": small["hidden_size"] / main["hidden_size"],
        "generator.depth": small["num_hidden_layers"] / main["num_hidden_layers"],
        "generator.heads": small["num_attention_heads"],
        "head": "dense", "tying": "embeddings", "data.tokenizer": str(pair.discriminator.folder),
    }  # fmt: skip


def check_generator(spec: RunSpec, pair: Pair) -> None:
    """Raise InputError if the spec's generator and the pair's generator differ in size."""
    wanted, stored = spec.generator_encoder, _sizes(pair.generator)
    sizes = {
        "hidden_size": wanted.hidden, "num_hidden_layers": wanted.layers, "num_attention_heads": wanted.head_count,
        "intermediate_size": wanted.ffn_width, "embedding_size": wanted.embedding_width,
        "max_position_embeddings": wanted.positions,
    }  # fmt: skip
    other = next((key for key, value in sizes.items() if stored[key] != value), None)
    if other is not None:
        raise InputError(
            f"start.from: the generator {pair.names[1]} has {other}={stored[other]}, and one for this discriminator "
            f"has {sizes[other]} here; training cannot continue from other shapes"
        )


def check(pair: Pair) -> None:
    """Raise InputError unless both models have their heads, and embeddings and output layer are tied."""
    for place, (name, kind) in HEADS.items():
        if name not in _shapes(getattr(pair, place)):
            raise InputError(f"start.from: the {place} has no {name}, which an {kind} has; without it a head is random")
    main, small = _weights(pair.discriminator, TABLES), _weights(pair.generator, TABLES)
    for name, table in main.items():
        if not name.endswith("position_ids") and (name not in small or not torch.equal(table, small[name])):
            raise InputError(
                f"start.from: {pair.names[0]} and {pair.names[1]} differ in {name}, so they were not trained together "
                f"with tied embeddings"
            )
    output = _weights(pair.generator, "generator_lm_head.weight").get("generator_lm_head.weight")
    if output is not None and not torch.equal(output, small[f"{TABLES}word_embeddings.weight"]):
        raise InputError(f"start.from: the output layer of {pair.names[1]} is not its token table")


def check_objective(model: nn.Module, spec: RunSpec) -> None:
    """Raise InputError if a weight of the objective is in neither file of the spec's pair, or has another shape."""
    assert spec.pair is not None
    pair = find(spec.pair)
    shapes = {place: _shapes(getattr(pair, place)) for place in HEADS}
    for name, weight in model.named_parameters():
        if _given(name, shapes) != list(weight.shape):
            raise InputError(
                f"start.from: the pair has no {tuple(weight.shape)} weights for {name} of {spec.objective}, so this "
                f"objective and these settings cannot go on from it"
            )


def load(model: nn.Module, spec: RunSpec) -> None:
    """Copy the weights of the spec's pair into an objective, each by its name.

    Raises InputError if `check` or `check_objective` does, or files have changed since the run was planned.
    """
    assert spec.pair is not None
    pair = find(spec.pair)
    if pair.files != spec.pair.files:
        raise InputError(f"start.from: the files of {' and '.join(pair.names)} have changed since the run was planned")
    check(pair)
    check_objective(model, spec)
    tensors = {place: _weights(getattr(pair, place)) for place in HEADS}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(_given(name, tensors))


def _given(name: str, by_place: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return what the pair holds under the name of a weight of the objective, None if nothing."""
    for start, (place, other) in MAPS.items():
        if name.startswith(start):
            return by_place[place].get(other + name.removeprefix(start))
    return None


def _sizes(files: hugging_face.EncoderFiles) -> dict[str, int]:
    """Return the sizes of an ELECTRA in config.json, with the library's defaults for missing ones."""
    from transformers import ElectraConfig

    keys = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
            "intermediate_size", "max_position_embeddings")  # fmt: skip
    defaults = ElectraConfig()
    return {key: int(files.config.get(key) or getattr(defaults, key)) for key in keys}


def _stored(files: hugging_face.EncoderFiles, start: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the open file and the name of each tensor of a model whose name begins with `start`."""
    for path in files.weights.values():
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                yield from ((file, name) for name in file.keys() if name.startswith(start))  # noqa: SIM118 - no mapping


def _shapes(files: hugging_face.EncoderFiles) -> dict[str, list[int]]:
    """Return the shapes of all tensors of a model by name."""
    return {name: list(file.get_slice(name).get_shape()) for file, name in _stored(files)}


def _weights(files: hugging_face.EncoderFiles, start: str = "") -> dict[str, Tensor]:
    """Return the tensors of a model whose names begin with `start`, in float32."""
    return {name: file.get_tensor(name).float() for file, name in _stored(files, start)}
