"""Settings of an encoder that others made: which of them a library may be given, and which are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import refused
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.hugging_face.checks import CAUSAL, FIRST, KINDS, LAST, OWN, SIZES, check_configuration
from workbench.errors import InputError

FOLDER = Path("models") / "mine"
SOUND = {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 30}
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("a0\n\x1b\u202e\ud800", max_size=99),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


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


@pytest.mark.parametrize("key", ["quantization_config", "is_encoder_decoder", "use_kernels", "pruned_heads"])
def test_what_no_encoder_has_is_refused_where_it_is_set(key: str) -> None:
    for unset in (None, False, {}):
        assert check_configuration(FOLDER, SOUND | {key: unset})[key] == unset
    assert key in refusal({key: {"bits": 4}})


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation", "_attn_implementation_internal"])
def test_attention_is_computed_in_the_ways_that_need_no_code_of_others(key: str) -> None:
    for usual in ("eager", "sdpa", None):
        assert key not in check_configuration(FOLDER, SOUND | {key: usual})
    for other in ("owner/kernel", "flash_attention_2", "", "EAGER", ["eager"], {"": "eager"}):
        said = refusal({key: other})
        assert key in said and ascii(other) in said


@pytest.mark.parametrize("key", ["layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps"])
def test_an_epsilon_is_above_0_and_at_most_1(key: str) -> None:
    assert check_configuration(FOLDER, SOUND | {key: 1})[key] == 1
    for value in (0, -1.0, 1.5):
        assert f"{key}={value!a}, and it must be above 0 and at most 1" in refusal({key: value})


def test_relative_positions_are_no_longer_computed() -> None:
    assert "no longer computed" in refusal({"position_embedding_type": "relative_key_query"})


@pytest.mark.parametrize("key", ["is_decoder", "causal"])
def test_a_switch_is_on_or_off(key: str) -> None:
    for value in (True, False, None):
        assert check_configuration(FOLDER, SOUND | {key: value})[key] is value
    for other in (0, 1, "true", []):
        assert f"{key}={other!a}" in refusal({key: other})


def test_padding_is_a_token_of_the_vocabulary_or_none() -> None:
    for pad in (None, -1, 0, 29):
        assert check_configuration(FOLDER, SOUND | {"pad_token_id": pad})["pad_token_id"] == pad
    for other in (-2, 30, 31, 1.0, True, "0"):
        assert f"pad_token_id={other!a}" in refusal({"pad_token_id": other})
    assert check_configuration(FOLDER, {"model_type": "bert", "pad_token_id": 10**6})


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


@given(st.dictionaries(st.sampled_from([*SIZES, "model_type", "pad_token_id", "is_decoder", "causal", "auto_map",
                                        "attn_implementation", "quantization_config"]), ANYTHING))  # fmt: skip
def test_any_settings_are_taken_or_refused_in_one_line(raw: dict[str, Any]) -> None:
    try:
        found = check_configuration(FOLDER, {"model_type": "bert"} | raw)
    except InputError as error:
        said = str(error)
        assert said.isprintable() and said.isascii() and len(said) < 400 and str(FOLDER) in said
    else:
        for key, (least, most) in SIZES.items():
            assert found.get(key) is None or least <= found[key] <= most
        assert found.items() <= ({"model_type": "bert"} | raw).items()
