"""FLOPs against the official script's output (google-research/electra, `flops_computation.py`), and against torch."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from workbench import objectives
from workbench.models import flops
from workbench.models.families import PLUGS, built_in
from workbench.models.flops import Flops
from workbench.spec.parts import EncoderSpec, GeneratorSpec
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

ELECTRA = {  # hidden, layers, embedding, length, width of the generator
    "small_g64": (256, 12, 128, 128, 0.25),
    "small_g128": (256, 12, 128, 128, 0.5),
    "base_g256": (768, 12, 768, 512, 1 / 3),
    "large_g256": (1024, 24, 1024, 512, 0.25),
}


def electra(name: str, **changes: object) -> RunSpec:
    hidden, layers, embedding, length, width = ELECTRA[name]
    encoder = {"hidden": hidden, "layers": layers, "embedding": embedding}
    return RunSpec.model_validate(
        {"encoder": encoder, "data": {"length": length}, "generator": {"width": width}} | changes
    )


def bert(spec: RunSpec) -> Flops:
    return flops.encoder(spec.encoder, spec.data.length) + flops.lm_head(spec.encoder, spec.data.length, spec.picks)


def rtd(spec: RunSpec) -> Flops:
    return flops.generator(spec) + flops.encoder(spec.encoder, spec.data.length) + flops.binary_head(spec, "all")


def cost(name: str, spec: RunSpec) -> Flops:
    """Return the cost that the file of the objective computes."""
    spec = spec.replace(objective=name)
    price: Flops = objectives.load(spec).cost(spec)
    return price


@pytest.mark.parametrize(
    ("sizes", "length", "expected"),
    [  # hidden, layers, embedding, heads -> block, input, output, binary head
        ((256, 12, 128, 4), 128, (220594816, 1013006336, 161892280, 17137664)),
        ((64, 12, 128, 1), 128, (17400448, 1006690304, 160909240, 1138688)),
        ((128, 12, 128, 2), 128, (59966080, 1004584960, 161236920, 4374528)),
        ((768, 12, 768, 12), 512, (8106543616, 24412028928, 3862867680, 608305152)),
        ((256, 12, 768, 4), 512, (1091570176, 24613486592, 3799953120, 68550656)),
        ((1024, 24, 1024, 16), 512, (14029949440, 32549371904, 5186735840, 1079508992)),
        ((256, 24, 1024, 4), 512, (1091570176, 32817938432, 5060906720, 68550656)),
    ],
)
def test_components_of_one_forward_pass(sizes: tuple[int, ...], length: int, expected: tuple[int, ...]) -> None:
    enc = EncoderSpec(**dict(zip(("hidden", "layers", "embedding", "heads"), sizes, strict=True)))
    spec = RunSpec.model_validate({"encoder": enc, "data": {"length": length}})
    parts = (
        flops.block(enc.hidden, enc.ffn_width, enc.head_count, length),
        flops.embedding(enc, length),
        flops.lm_head(enc, length, 7),
        flops.binary_head(spec, "all"),
    )
    assert tuple(part.paper for part in parts) == expected
    assert flops.encoder(enc, length).paper == enc.layers * expected[0] + expected[1]


def test_the_mask_rate_changes_matmul_but_not_paper() -> None:
    low, high = (electra("large_g256", corruption={"rate": rate}) for rate in (0.15, 0.25))
    assert rtd(low).paper == rtd(high).paper
    assert rtd(low).matmul < rtd(high).matmul


@pytest.mark.parametrize(
    ("scale", "objective", "paper"),
    [
        ("bert-base", "bert-mlm", 6.428335104e19),
        ("bert-large", "bert-mlm", 1.91720905883648e20),
        ("roberta-large", "bert-mlm", 3.187221435776e21),
        ("albert-xxlarge", "bert-mlm", 3.113923955392512e22),
        ("gpt-1", "causal-lm", 3.968752230785352e19),
        ("base", "rtd", 6.424541834277683e19),
        ("large", "rtd", 7.117606040895488e20),
    ],
)
def test_published_sizes_cost_what_the_script_says(scale: str, objective: str, paper: float) -> None:
    spec = resolve(scale, {"objective": objective})
    steps = spec.budget.steps
    assert steps is not None and spec.budget.convention == "paper" and spec.data.length == 512
    assert float(cost(objective, spec).train("paper") * spec.batch.size * steps) == paper


@pytest.mark.parametrize(
    ("sizes", "batch", "per_step"),
    [
        ("small_g64", 128, (978441320448, 1293743798272, 1290042062848, 1330800979968, 1554617645056)),
        ("small_g128", 128, (978441320448, 1424050337792, 1420348602368, 1461107519488, 1684924184576)),
        ("base_g256", 256, (64283351040000, 83871303319552, 83608515493888, 85537639333888, 96218098548736)),
    ],
)
def test_every_objective_per_step(sizes: str, batch: int, per_step: tuple[int, ...]) -> None:
    names = ("bert-mlm", "rtd", "electra-15", "replace-mlm", "all-tokens-mlm")
    assert tuple(cost(name, electra(sizes)).train("paper") * batch for name in names) == per_step


@pytest.mark.parametrize(
    ("price", "name", "batch", "steps", "sparse"),
    [
        (rtd, "small_g64", 128, 1_000_000, 7.8166961152e17),
        (rtd, "small_g128", 128, 1_000_000, 9.1197615104e17),
        (bert, "small_g64", 128, 1_450_000, 1.0474861292544e18),
        (rtd, "base_g256", 256, 766_000, 4.54174746442793e19),
        (bert, "base_g256", 256, 1_000_000, 5.1993570557952e19),
        (rtd, "large_g256", 2048, 400_000, 6.068878106427392e20),
        (bert, "large_g256", 2048, 464_000, 6.508417824409518e20),
    ],
)
def test_paper_sparse_leaves_out_dense_look_ups(
    price: Callable[[RunSpec], Flops], name: str, batch: int, steps: int, sparse: float
) -> None:
    row = price(electra(name))
    assert float(row.train("paper-sparse") * batch * steps) == sparse


def test_recipe_and_head_do_not_change_the_paper_convention() -> None:
    linear, dense = electra("small_g64"), electra("small_g64", head="dense")
    assert rtd(linear).paper == rtd(dense).paper
    assert rtd(dense).matmul - rtd(linear).matmul == 128 * 2 * 256 * 256
    assert flops.binary_head(linear, 20).matmul == 20 * 2 * 256


def test_tying_all_costs_two_passes_of_the_encoder() -> None:
    spec = electra("base_g256", tying="all", generator=GeneratorSpec(width=1.0))
    assert flops.generator(spec) == bert(spec)


def test_amounts_are_exact_fractions_and_written_as_ints_if_whole() -> None:
    enc = EncoderSpec(hidden=64, layers=1)
    assert type(flops.number(flops.lm_head(enc, 128, 20).train("paper"))) is int
    odd = flops.lm_head(EncoderSpec(hidden=64, layers=1, vocab=101), 9, 2).paper
    assert isinstance(odd, Fraction)
    assert flops.number(odd) == float(odd) and type(flops.number(odd)) is float
    assert type(flops.number(Fraction(6, 2))) is int
    assert sum([flops.gate(electra("small_g64"))] * 2, Flops(0, 0, 0)) == Flops(131072, 131072, 131072)


def test_frozen_parts_cost_their_forward_pass_only() -> None:
    """The backward pass costs one forward pass in the paper's conventions, and two under `matmul`."""
    price, still = Flops(10, 6, 4), Flops(Fraction(7, 2), Fraction(5, 2), 3).frozen()
    forward = {"paper": still.paper, "paper-sparse": still.sparse, "matmul": still.matmul}
    for convention, (learnt, unlearnt) in {"paper": (20, 3.5), "paper-sparse": (12, 2.5), "matmul": (12, 3)}.items():
        assert price.train(convention) == learnt  # type: ignore[arg-type]
        assert still.train(convention) == unlearnt == forward[convention]  # type: ignore[arg-type]
        assert (price + still).train(convention) == (still + price).train(convention) == learnt + unlearnt  # type: ignore[arg-type]
    twice = still + still
    assert twice == Flops(7, 5, 6, (7, 5, 6)) and [type(flops.number(part)) for part in twice.still] == [int, int, int]


def test_a_frozen_generator_and_a_fixed_distribution() -> None:
    spec = electra("small_g64")
    start = {"parent": {"objective": "bert-mlm"}, "take": "generator", "freeze_generator": True}
    frozen = spec.replace(objective="rtd", start=start, generator={"width": 1.0}, tying="none")
    learning = flops.generator(frozen.replace(start=start | {"freeze_generator": False}))
    assert learning.still == (0, 0, 0)
    assert flops.generator(frozen) == learning.frozen()
    for kind in ("unigram", "uniform"):
        assert flops.generator(spec.replace(generator={"kind": kind})) == Flops(0, 0, 0)


def test_half_of_the_baselines_backward_pass_is_not_computed() -> None:
    """The product has a gradient with respect to its weights, but none with respect to its input."""
    spec = electra("small_g64")
    width, picks = spec.generator_encoder.hidden, spec.picks
    price = flops.baseline(spec)
    assert price.matmul == 2 * width * picks and price.train("matmul") == 2 * price.matmul
    assert type(price.train("matmul")) is int
    assert price.train("paper") == price.train("paper-sparse") == 2 * Fraction(5, 32) * 128 * 2 * width


@pytest.mark.parametrize(
    ("family", "embedding"),
    [(name, None) for name in PLUGS.built_in] + [(each.name, 32) for each in built_in() if each.OWN_WIDTH],
)
def test_the_cost_of_a_row_agrees_with_the_counter_of_torch(family: str, embedding: int | None) -> None:
    """The cost of a row is a difference, since some families also compute something once for each batch."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from workbench.models.encoder import Encoder
    from workbench.spec.parts import Special

    enc = EncoderSpec(
        family=family, hidden=64, layers=2, heads=2, embedding=embedding, vocab=90, positions=40, attention="eager"
    )
    model = Encoder(enc, Special(pad=0, unk=1, cls=2, sep=3, mask=4))

    def counted(rows: int) -> int:
        with FlopCounterMode(display=False) as counter:
            model(torch.randint(5, 90, (rows, 24))).sum().backward()
        return int(counter.get_total_flops())

    assert counted(4) - counted(2) == 2 * flops.encoder(enc, 24).train("matmul")


def test_the_head_of_gpt2_is_one_product_and_the_script_counts_a_whole_one() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from workbench.models.encoder import Encoder
    from workbench.models.heads import TiedHead
    from workbench.spec.parts import Special

    enc = EncoderSpec(family="gpt2", hidden=64, layers=1, heads=2, vocab=90, positions=40)
    head = TiedHead(Encoder(enc, Special(pad=0, unk=1, cls=2, sep=3, mask=4)).table)
    with FlopCounterMode(display=False) as counter:
        head(torch.randn(3, 24, 64, requires_grad=True)).sum().backward()
    price, bert = flops.lm_head(enc, 24, "all"), flops.lm_head(enc.model_copy(update={"family": "bert"}), 24, "all")
    assert counter.get_total_flops() == 3 * price.train("matmul")
    assert bert.matmul - price.matmul == 24 * 2 * 64 * 64
    assert (bert.paper, bert.sparse) == (price.paper, price.sparse)


def test_the_pair_head_reads_one_position_of_a_row() -> None:
    """A dense layer with bias and tanh, and two outputs with bias, whatever the length of the row."""
    spec = resolve("small", {"data.length": 128})
    price = flops.pair_head(spec.encoder)
    assert price.matmul == 2 * 256 * 256 + 2 * 2 * 256
    assert price.paper == price.sparse == price.matmul + 256 + 256 + 2 and price.still == (0, 0, 0)


def test_relative_positions_add_the_same_products_under_every_convention() -> None:
    """DeBERTa's content-to-position and position-to-content scores (He et al. 2021, equation 4) are two products of
    width h for each token and each of the `relative` positions, and count like any other product.
    """
    plain, relative = (flops.block(64, 256, 4, 32, relative=positions) for positions in (0, 16))
    added = 32 * 2 * (2 * 64 * 16)
    assert relative.paper - plain.paper == relative.matmul - plain.matmul == added


def test_only_the_content_stream_looks_up_tokens() -> None:
    """A query stream starts from one vector, so the script's dense look-ups are those of the row, once."""
    enc = EncoderSpec(hidden=32, layers=3, heads=2, embedding=16, vocab=100)
    cost = flops.two_streams(enc, length=20, queries=3)
    assert cost.paper - cost.sparse == 20 * 2 * 16 * 100


def test_a_family_without_a_query_stream_counts_as_its_encoder() -> None:
    """Building such a model is refused elsewhere; its cost must not raise."""
    enc = EncoderSpec(family="gpt2", hidden=32, layers=3, heads=2, vocab=100)
    assert flops.two_streams(enc, length=20, queries=3) == flops.encoder(enc, 20)


def test_a_gated_layer_has_a_second_projection_and_a_product_of_both() -> None:
    """Each token: 2 h ffn operations more under every convention, and in the paper's one for each inner value."""
    plain, gated = (flops.block(64, 96, 4, 32, gated=gate) for gate in (False, True))
    assert gated.matmul - plain.matmul == 32 * 2 * 64 * 96
    assert gated.paper - plain.paper == gated.sparse - plain.sparse == 32 * (2 * 64 * 96 + 96)
    assert plain == flops.block(64, 96, 4, 32)
