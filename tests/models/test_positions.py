"""Initial weights by which positions can be told: sinusoids, and a first layer that attends to neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from workbench.encoders.electra import hugging_face
from workbench.models.encoder import Encoder, build_encoder, sines
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

LENGTH = 24
EAGER: dict[str, Any] = {"encoder__attention": "eager", "encoder__vocab": 500, "encoder__positions": LENGTH + 2}


def spec_of(**keys: Any) -> RunSpec:
    torch.manual_seed(0)
    tiny = {"encoder.hidden": 64, "encoder.layers": 2, "encoder.heads": 2, "data.length": 20}
    return resolve("nano", tiny | {key.replace("__", "."): value for key, value in keys.items()})


def attention_of(encoder: Encoder) -> Tensor:
    """Return the first layer's attention (heads, queries, keys), by Hugging Face's own classes, over random tokens."""
    model = hugging_face(encoder.model) if encoder.spec.family == "electra" else encoder.model
    model.set_attn_implementation("eager")
    ids = torch.randint(5, 500, (64, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        return model.eval()(ids, output_attentions=True).attentions[0].mean(0)


@pytest.mark.parametrize("family", ["electra", "bert", "roberta", "albert", "deberta-v2", "gpt2"])
@pytest.mark.parametrize(("width", "heads", "embedding"), [(128, 2, 128), (64, 2, 64), (96, 4, 96), (64, 2, 128)])
def test_heads_of_the_first_layer_attend_to_neighbours(family: str, width: int, heads: int, embedding: int) -> None:
    if embedding != width and family in ("bert", "roberta", "gpt2"):
        pytest.skip("embeddings of this family are as wide as its layers")
    sizes = {"encoder__hidden": width, "encoder__heads": heads, "encoder__embedding": embedding, "encoder__init": 0.1}
    spec = spec_of(encoder__family=family, encoder__position_init="local", **sizes, **EAGER)
    encoder = build_encoder(spec)
    attention = attention_of(encoder)
    causal = family == "gpt2"
    places = torch.arange(4, LENGTH - 4)
    for head, offset in enumerate((-1, -2, -3, -4)[:heads] if causal else (1, -1, 2, -2)[:heads]):
        by_distance = {d: attention[head, places, places + d].mean().item() for d in range(-4, 5)}
        assert max(by_distance, key=by_distance.__getitem__) == offset, by_distance
        assert by_distance[offset] > 0.4, by_distance


def test_causal_heads_attend_to_tokens_before() -> None:
    attention = attention_of(build_encoder(spec_of(encoder__causal=True, encoder__position_init="local", **EAGER)))
    places = torch.arange(4, LENGTH)
    for head in range(2):
        assert attention[head, places, places - 1 - head].mean() > 0.4


def test_as_many_sinusoids_as_a_head_has_room_for() -> None:
    """Each row of a head's queries and keys reads one sinusoid of the table, and what is left stays as it was drawn."""
    for width, heads, pairs in ((64, 2, 6), (16, 2, 4), (18, 2, 4), (64, 1, 6)):
        sizes = {"encoder__hidden": width, "encoder__heads": heads}
        specs = [spec_of(encoder__position_init=start, **sizes) for start in ("local", "normal")]
        local, drawn = (build_encoder(spec).model.encoder.layer[0].attention.self for spec in specs)
        size = width // heads
        for head in range(heads):
            rows = slice(head * size, head * size + 2 * pairs)
            key = local.key.weight[rows]
            scale = (1.125 * size**0.5) ** 0.5
            torch.testing.assert_close(key, scale * torch.eye(2 * pairs, width))
            torch.testing.assert_close(local.query.weight[rows].norm(dim=-1), torch.full((2 * pairs,), scale))
            rest = slice(head * size + 2 * pairs, (head + 1) * size)
            for name in ("query", "key"):
                assert torch.equal(getattr(local, name).weight[rest], getattr(drawn, name).weight[rest])


def test_without_it_heads_attend_to_no_position_in_particular() -> None:
    for start in ("normal", "sinusoidal"):
        attention = attention_of(build_encoder(spec_of(encoder__position_init=start, encoder__init=0.1, **EAGER)))
        assert attention.max() < 0.4, start


def test_all_other_initial_weights_are_the_same() -> None:
    """Only the position table and rows of the first layer's queries and keys differ between the three ways."""
    drawn = {start: dict(build_encoder(spec_of(encoder__position_init=start)).model.named_parameters())
             for start in ("normal", "sinusoidal", "local")}  # fmt: skip
    changed = {name for name, weight in drawn["local"].items() if not torch.equal(weight, drawn["normal"][name])}
    first = "encoder.layer.0.attention.self."
    assert changed == {"embeddings.position_embeddings.weight", f"{first}query.weight", f"{first}key.weight"}
    sinusoidal, local = (drawn[start]["embeddings.position_embeddings.weight"] for start in ("sinusoidal", "local"))
    torch.testing.assert_close(local, 3 * sinusoidal)


def test_sines_are_those_of_older_runs_to_the_last_bit() -> None:
    """Runs that began before there was another way go on, and can be repeated, with the same numbers."""
    angles = torch.arange(128)[:, None] / 10_000 ** (torch.arange(0, 96, 2) / 96)
    expected = torch.zeros(128, 96)
    expected[:, 0::2], expected[:, 1::2] = angles.sin(), angles.cos()
    assert torch.equal(sines(128, 96), expected)


def test_a_family_that_tells_positions_by_distances_alone_is_left_as_it_is() -> None:
    drawn = [build_encoder(spec_of(encoder__family="modernbert", encoder__position_init=start)).model.state_dict()
             for start in ("normal", "local")]  # fmt: skip
    assert all(torch.equal(weight, drawn[1][name]) for name, weight in drawn[0].items())
