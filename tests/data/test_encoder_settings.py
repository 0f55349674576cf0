"""Encoders and tokenizers that others made: settings that a library may be given, and sizes that fit the weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refused
from safetensors.numpy import save

from workbench.data.hugging_face import (
    CAUSAL,
    FIRST,
    HOW,
    KINDS,
    LAST,
    MOST_GROWTH,
    NO_LIMIT,
    OWN,
    SIZES,
    TOKENIZER_FILES,
    check_configuration,
    check_encoder_folder,
    check_tokenizer_folder,
    kind_of_tokenizer,
    longest_text,
)
from workbench.data.model_files import INDEX, LARGEST_VOCABULARY, SINGLE
from workbench.errors import InputError

FOLDER = Path("models") / "mine"
SOUND = {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 30}


def refusal(changes: dict[str, Any]) -> str:
    return refused.refusal(FOLDER, lambda: check_configuration(FOLDER, SOUND | changes))


def test_settings_pass_unchanged_but_for_those_that_lead_elsewhere() -> None:
    aside = {"auto_map": {"AutoModel": "mine.Model"}, "_name_or_path": "owner/name", "name_or_path": "owner/name",
             "torch_dtype": "float16", "dtype": "float16", "transformers_version": "9",
             "attn_implementation": "sdpa", "_attn_implementation": "eager"}  # fmt: skip
    kept = SOUND | {"layer_norm_eps": 1e-12, "of_their_own": [1, {"a": None}]}
    raw = kept | aside
    before = dict(raw)
    assert check_configuration(FOLDER, raw) == kept
    assert raw == before


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_one_way_to_be_read(kind: str) -> None:
    assert check_configuration(FOLDER, {"model_type": kind}) == {"model_type": kind}
    assert sum(kind in kinds for kinds in (FIRST, CAUSAL, LAST, {OWN})) == 1


@pytest.mark.parametrize("kind", ["", "BERT", "t5", "../bert", None, 3, True, ["bert"], {"bert": 1}])
def test_another_kind_is_refused(kind: Any) -> None:
    said = refusal({"model_type": kind})
    assert ascii(kind) in said


@pytest.mark.parametrize("key", sorted(SIZES))
def test_a_size_is_a_whole_number_between_its_ends(key: str) -> None:
    least, most = SIZES[key]
    for value in (least, most, None):
        found = check_configuration(FOLDER, {"model_type": "bert", key: value})
        assert found[key] == value
    for value in (least - 1, most + 1, -most, float(least), True, str(most), [most]):
        said = refusal({key: value})
        assert f"{key}={value!a}" in said and str(least) in said and str(most) in said
    assert key in refusal({key: "\x1b\n\ud800" * 99})


NUMBER, SWITCH, UNSET = "above 0 and at most 1", "true or false", "is not supported"
VALUES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], str]] = {  # key -> values that are taken and refused, and why
    **dict.fromkeys(("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps"),
                    ((1, None), (0, -1.0, 1.5), NUMBER)),
    **dict.fromkeys(("is_decoder", "causal"), ((True, False, None), (0, 1, "true", []), SWITCH)),
    **dict.fromkeys(("quantization_config", "is_encoder_decoder", "use_kernels", "pruned_heads"),
                    ((None, False, {}), ({"bits": 4},), UNSET)),
    "pad_token_id": ((None, -1, 0, 29), (-2, 30, 31, 1.0, True, "0"), "an id of its vocabulary"),
    "position_embedding_type": (("absolute", None), ("relative_key_query",), "no longer computed"),
}  # fmt: skip


@pytest.mark.parametrize("key", VALUES)
def test_a_value_is_taken_as_it_is_or_refused_by_name(key: str) -> None:
    taken, refused_values, why = VALUES[key]
    for value in taken:
        assert check_configuration(FOLDER, SOUND | {key: value})[key] is value
    for value in refused_values:
        said = refusal({key: value})
        assert key in said and why in said and (why == UNSET or ascii(value) in said)


@pytest.mark.parametrize("key", HOW)
def test_attention_is_computed_in_the_ways_that_need_no_code_of_others(key: str) -> None:
    for usual in ("eager", "sdpa", None):
        assert key not in check_configuration(FOLDER, SOUND | {key: usual})
    for other in ("owner/kernel", "flash_attention_2", "", "EAGER", ["eager"], {"": "eager"}):
        said = refusal({key: other})
        assert key in said and ascii(other) in said


@pytest.mark.parametrize(
    ("width", "heads"), [("hidden_size", "num_attention_heads"), ("n_embd", "n_head"), ("dim", "n_heads")]
)
def test_heads_share_the_width_evenly_unless_their_own_width_is_given(width: str, heads: str) -> None:
    sizes = {"model_type": "bert", width: 16, heads: 4}
    assert check_configuration(FOLDER, sizes) == sizes
    with pytest.raises(InputError, match=r"\b16\b.*\b3\b"):
        check_configuration(FOLDER, sizes | {heads: 3})
    for own in ("head_dim", "d_head"):
        assert check_configuration(FOLDER, sizes | {heads: 3, own: 8})


SETTINGS: dict[str, Any] = {"model_type": "bert", "hidden_size": 4, "num_hidden_layers": 3, "vocab_size": 10}
# 40 + 12 + 8 = 60 fractions in three tensors, and one tensor of whole numbers
TENSORS = {
    "words": np.ones((10, 4), "f"), "first": np.ones((3, 4), "e"), "second": np.ones(8, "d"), "ids": np.arange(9),
}  # fmt: skip


def encoder(folder: Path, **changes: Any) -> Path:
    """Write an encoder with these changes of its settings; those of None are left out."""
    settings = {key: value for key, value in (SETTINGS | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(save(TENSORS))
    return folder


def folder_refusal(folder: Path) -> str:
    return refused.refusal(folder, lambda: check_encoder_folder(folder))


def test_what_is_found_is_told(tmp_path: Path) -> None:
    found = check_encoder_folder(encoder(tmp_path, torch_dtype="float16"))
    assert found.folder == tmp_path and found.config == SETTINGS
    assert found.weights == {"model.safetensors": tmp_path.resolve() / "model.safetensors"}
    assert found.elements == 60 and found.whole_numbers == {"ids"}


def test_layers_are_as_many_as_tensors_of_fractions_at_most(tmp_path: Path) -> None:
    assert check_encoder_folder(encoder(tmp_path, num_hidden_layers=3))
    assert check_encoder_folder(encoder(tmp_path, num_hidden_layers=None))
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        said = folder_refusal(encoder(tmp_path, **{"num_hidden_layers": None, key: 4}))
        assert " 4 " in said and " 3 " in said
    albert = encoder(tmp_path, model_type="albert", num_hidden_layers=12)  # whose layers share their weights
    assert check_encoder_folder(albert)


@pytest.mark.parametrize(
    ("fits", "exceeds"),
    [
        ({"vocab_size": 15}, {"vocab_size": 16}),
        ({"embedding_size": 2, "vocab_size": 30}, {"embedding_size": 2, "vocab_size": 31}),
        ({"n_positions": 15}, {"n_positions": 16}),
        ({"vocab_size": None, "n_positions": 15}, {"vocab_size": None, "n_positions": 16}),
        ({"hidden_size": 60, "vocab_size": 1}, {"hidden_size": 61, "vocab_size": 1}),
        ({"hidden_size": 10**6, "vocab_size": None}, {"hidden_size": 10**6, "vocab_size": 1}),
        ({"hidden_size": None, "vocab_size": 60}, {"hidden_size": None, "vocab_size": 61}),
    ],
)
def test_no_table_is_larger_than_all_weights_together(
    tmp_path: Path, fits: dict[str, Any], exceeds: dict[str, Any]
) -> None:
    """60 numbers, as rows of the smallest width that the settings name, for tokens or for positions."""
    assert check_encoder_folder(encoder(tmp_path, **fits)).elements == 60
    assert " 60 " in folder_refusal(encoder(tmp_path, **exceeds))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_lacks_neither_settings_nor_weights(tmp_path: Path, name: str) -> None:
    (encoder(tmp_path) / name).unlink()
    assert name in folder_refusal(tmp_path)
    (tmp_path / name).mkdir()
    assert name in folder_refusal(tmp_path)


WORDS = {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}}, "added_tokens": [{"id": 0, "content": "[UNK]"}]}


def tokenizer(folder: Path, **files: Any) -> Path:
    """Write these files of JSON, by their names before the dot."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def tokenizer_refusal(folder: Path) -> str:
    return refused.refusal(folder, lambda: check_tokenizer_folder(folder))


def test_files_of_a_tokenizer_are_found_and_nothing_else(tmp_path: Path) -> None:
    tokenizer(
        tmp_path, tokenizer=WORDS, tokenizer_config={}, special_tokens_map={}, added_tokens={}, config={}, other={}
    )
    for name in ("merges.txt", "vocab.txt", "tokenizer.py", "chat_template.jinja"):
        (tmp_path / name).write_text("a")
    whole = tmp_path.resolve()
    names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
             "vocab.txt"}  # fmt: skip
    assert check_tokenizer_folder(tmp_path) == {name: whole / name for name in names}
    assert names <= set(TOKENIZER_FILES)


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model",
     "tokenizer.model"],
)  # fmt: skip
def test_one_vocabulary_is_enough(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps(WORDS))
    assert list(check_tokenizer_folder(tmp_path)) == [name]


def test_a_folder_without_a_vocabulary_holds_no_tokenizer(tmp_path: Path) -> None:
    """A library would make an empty one up."""
    assert "tokenizer.json" in tokenizer_refusal(tmp_path / "gone")
    tokenizer(tmp_path, tokenizer_config={}, special_tokens_map={}, added_tokens={"a": 1})
    (tmp_path / "merges.txt").write_text("a b")
    (tmp_path / "tokenizer.json").mkdir()
    assert "tokenizer.json" in tokenizer_refusal(tmp_path)


def replaces(*contents: str) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": [{"type": "Replace", "content": content} for content in contents]}


@pytest.mark.parametrize(
    ("normalizer", "growth"),
    [
        (None, 1), ("a" * 999, 1), ({"type": "Lowercase"}, 1), ({"type": "Sequence", "normalizers": 3}, 1),
        ({"type": "Replace", "content": 10**9}, 1), ({"type": "Replace", "content": "a" * 101}, 101),
        ({"type": "Prepend", "prepend": "a" * 120}, 120), ({"type": "Replace", "content": "a" * 100}, 100),
        (replaces("a" * 10, "", "a" * 10), 100), (replaces("a" * 10, "", "a" * 11), 110), (replaces(*["aa"] * 7), 128),
        ({"type": "Sequence", "normalizers": [replaces("a" * 20), replaces("a" * 20)]}, 400),
    ],
)  # fmt: skip
def test_a_normaliser_writes_up_to_a_hundred_characters_for_one(tmp_path: Path, normalizer: Any, growth: int) -> None:
    tokenizer(tmp_path, tokenizer=WORDS | {"normalizer": normalizer})
    if growth <= MOST_GROWTH:
        assert check_tokenizer_folder(tmp_path)
    else:
        assert f" {growth} " in tokenizer_refusal(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "spiece.model"])
def test_a_vocabulary_larger_than_any_is_not_read(tmp_path: Path, name: str) -> None:
    (tokenizer(tmp_path, tokenizer=WORDS) / name).touch()
    os.truncate(tmp_path / name, LARGEST_VOCABULARY + 1)
    said = tokenizer_refusal(tmp_path)
    assert name in said and str(LARGEST_VOCABULARY + 1) in said


@pytest.mark.parametrize("name", ["special_tokens_map", "added_tokens", "tokenizer_config", "tokenizer"])
def test_settings_are_objects_that_name_no_code(tmp_path: Path, name: str) -> None:
    for content in ([], {"auto_map": {"AutoTokenizer": ["mine.Mine", None]}}):
        tokenizer(tmp_path, tokenizer=WORDS)
        tokenizer(tmp_path, **{name: content})
        assert f"{name}.json" in tokenizer_refusal(tmp_path)


@pytest.mark.parametrize(
    ("kind", "sound"),
    [("BertTokenizerFast", True), ("T5Tokenizer", True), ("TokenizersBackend", True), (None, True),
     ("Tokenizer", False), ("mine.BertTokenizer", False), ("BertTokenizer\n", False), ("pipeline", False),
     (3, False), ([], False)],
)  # fmt: skip
def test_the_class_is_one_of_tokenizers(tmp_path: Path, kind: Any, sound: bool) -> None:
    tokenizer(tmp_path, tokenizer=WORDS, tokenizer_config={"tokenizer_class": kind})
    if sound:
        assert check_tokenizer_folder(tmp_path)
    else:
        assert ascii(kind) in tokenizer_refusal(tmp_path)


@pytest.mark.parametrize(
    ("told", "length"),
    [(512, 512), (8, 8), (8.5, 8), (NO_LIMIT - 1, NO_LIMIT - 1), (NO_LIMIT, None), (1e30, None), (10**40, None),
     (None, None)],
)  # fmt: skip
def test_the_longest_text_is_what_the_settings_allow(tmp_path: Path, told: Any, length: int | None) -> None:
    assert longest_text(tokenizer(tmp_path, tokenizer=WORDS)) is None  # without settings
    found = longest_text(tokenizer(tmp_path, tokenizer_config={"model_max_length": told}))
    assert found == length and type(found) is type(length)


@pytest.mark.parametrize("told", [7, 0, -512, True, "512", [512]])
def test_a_text_has_room_for_a_few_tokens(tmp_path: Path, told: Any) -> None:
    tokenizer(tmp_path, tokenizer=WORDS, tokenizer_config={"model_max_length": told})
    with pytest.raises(InputError, match="model_max_length") as caught:
        longest_text(tmp_path)
    assert ascii(told) in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"model_type": "xlm-roberta"}, {"model_type": "xlm-roberta"}),
        ({"model_type": "bert", "tokenizer_class": "BertTokenizer", "hidden_size": 9},
         {"model_type": "bert", "tokenizer_class": "BertTokenizer"}),
        ({"model_type": "bert", "tokenizer_class": "os.system"}, {"model_type": "bert"}),
        ({"model_type": "bert", "tokenizer_class": None}, {"model_type": "bert"}),
        ({"tokenizer_class": "BertTokenizer"}, None), ({"model_type": "../bert"}, None), ({"model_type": ""}, None),
        ({"model_type": "a" * 61}, None), ({"model_type": ["bert"]}, None), ({}, None), (None, None),
    ],
)  # fmt: skip
def test_the_kind_is_what_the_settings_beside_it_say(
    tmp_path: Path, settings: Any, kind: dict[str, str] | None
) -> None:
    if settings is not None:
        tokenizer(tmp_path, config=settings)
    assert kind_of_tokenizer(tmp_path) == kind


def test_the_kind_follows_from_the_weights_in_one_file_or_in_shards(tmp_path: Path) -> None:
    tensors = {"electra.embeddings.word_embeddings.weight": np.ones((2, 2), "f")}
    for folder, name in (("whole", SINGLE), ("shards", "part.safetensors")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(save(tensors))
        tokenizer(tmp_path / folder, config={"hidden_size": 2})
    places = dict.fromkeys(tensors, "part.safetensors")
    (tmp_path / "shards" / INDEX).write_text(json.dumps({"weight_map": places}))
    for folder in ("whole", "shards"):
        assert kind_of_tokenizer(tmp_path / folder) == {"model_type": "electra"}
