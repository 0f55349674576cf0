"""Scales and recipes: the sizes, the training and the fine-tuning of the papers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import objectives
from workbench.errors import InputError
from workbench.spec import presets
from workbench.spec.parts import Budget, EncoderSpec
from workbench.training.plan import plan


@pytest.mark.parametrize(
    ("scale", "encoder", "generator"),
    [  # (hidden, FFN, heads, layers, embedding), table 6
        ("small", (256, 1024, 4, 12, 128), (64, 256, 1, 12, 128)),
        ("base", (768, 3072, 12, 12, 768), (256, 1024, 4, 12, 768)),
        ("large", (1024, 4096, 16, 24, 1024), (256, 1024, 4, 24, 1024)),
    ],
)
def test_sizes_of_the_paper(scale: str, encoder: tuple[int, ...], generator: tuple[int, ...]) -> None:
    def sizes(enc: EncoderSpec) -> tuple[int, ...]:
        return enc.hidden, enc.ffn_width, enc.head_count, enc.layers, enc.embedding_width

    run = presets.resolve(scale)
    assert (sizes(run.encoder), sizes(run.generator_encoder)) == (encoder, generator)


@pytest.mark.parametrize(
    ("scale", "length", "batch", "steps", "lr", "rate"),
    [
        ("small", 128, 128, 1_000_000, 5e-4, 0.15),
        ("base", 512, 256, 766_000, 2e-4, 0.15),
        ("large", 512, 2048, 400_000, 2e-4, 0.25),
    ],
)
def test_training_of_the_paper(scale: str, length: int, batch: int, steps: int, lr: float, rate: float) -> None:
    run = presets.resolve(scale)
    assert (run.data.length, run.batch.size, run.budget.steps) == (length, batch, steps)
    assert (run.optim.lr, run.corruption.rate) == (lr, rate)
    assert (run.optim.beta1, run.optim.beta2, run.optim.eps, run.optim.weight_decay) == (0.9, 0.999, 1e-6, 0.01)
    assert run.encoder.dropout == run.encoder.attention_dropout == 0.1
    assert run.encoder.vocab == 30522


@pytest.mark.parametrize(("scale", "lr", "decay"), [("small", 3e-4, 0.8), ("base", 1e-4, 0.8), ("large", 5e-5, 0.9)])
def test_fine_tuning_of_the_paper(scale: str, lr: float, decay: float) -> None:
    """Clark et al. 2020, table 7."""
    tasks = presets.resolve(scale).tasks
    assert (tasks.lr, tasks.layer_decay, tasks.seeds) == (lr, decay, 10)
    assert (tasks.warmup, tasks.dropout, tasks.batch, tasks.weight_decay) == (0.1, 0.1, 32, 0.0)


@pytest.mark.parametrize(("scale", "lr", "decay"), [
    ("bert-base", 1e-4, 0.8), ("roberta-base", 1e-4, 0.8), ("bert-large", 5e-5, 0.9), ("roberta-large", 5e-5, 0.9),
])  # fmt: skip
def test_published_sizes_are_fine_tuned_as_ours_of_that_size(scale: str, lr: float, decay: float) -> None:
    """The rows Base and Large of Clark et al. 2020, table 7."""
    tasks = presets.resolve(scale).tasks
    assert (tasks.lr, tasks.layer_decay) == (lr, decay)


def test_a_generator_of_its_own_has_tables_of_its_own_width() -> None:
    run = presets.resolve("base", {"tying": "none"})
    assert run.generator_encoder.embedding_width == run.generator_encoder.hidden == 256
    shallow = presets.resolve("base", {"generator.depth": 0.25, "generator.width": 1.0})
    assert (shallow.generator_encoder.layers, shallow.generator_encoder.hidden) == (3, 768)


def test_given_heads_and_ffn_stay_only_at_the_same_width() -> None:
    given_sizes = {"encoder.heads": 8, "encoder.ffn": 999}
    same = presets.resolve("small", given_sizes | {"generator.width": 1.0}).generator_encoder
    half = presets.resolve("small", given_sizes | {"generator.width": 0.5}).generator_encoder
    assert (same.head_count, same.ffn_width, half.head_count, half.ffn_width) == (8, 999, 2, 512)


def test_released_differs_from_paper_where_the_code_does() -> None:
    paper, released = (presets.resolve("small", {"recipe": recipe}) for recipe in ("paper", "released"))
    assert (paper.corruption.picks, paper.corruption.generator_mask) == ("distinct", 1.0)
    assert (paper.corruption.mask, paper.corruption.random, paper.head) == (0.8, 0.1, "linear")
    assert (released.corruption.picks, released.corruption.generator_mask) == ("released", 0.85)
    assert (released.corruption.mask, released.corruption.random, released.head) == (0.85, 0.0, "dense")
    assert (paper.optim.bias_correction, released.optim.bias_correction) == (True, False)
    assert (paper.schedule.overlap, released.schedule.overlap) == (False, True)
    assert (paper.tasks.lr, released.tasks.lr) == (3e-4, 1e-4)
    assert (paper.tasks.weight_decay, released.tasks.weight_decay) == (0.0, 0.01)


@pytest.mark.parametrize("scale", ["nano", "micro", "mini"])
def test_generators_below_small_see_what_bert_does(scale: str) -> None:
    """No arm is handicapped by its input; the authors' code shows all of them the same as well."""
    for recipe, expected in (("paper", (0.8, 0.1)), ("released", (0.85, 0.0))):
        shares = presets.resolve(scale, {"recipe": recipe}).corruption
        assert (shares.generator_mask, shares.generator_random) == (shares.mask, shares.random) == expected


def test_an_override_wins_over_recipe_and_scale() -> None:
    run = presets.resolve("small", {"recipe": "released", "corruption.generator_mask": "0.5", "tasks.lr": "1e-3"})
    assert (run.corruption.generator_mask, run.corruption.picks, run.tasks.lr) == (0.5, "released", 1e-3)


def test_a_budget_replaces_the_one_of_the_scale() -> None:
    assert presets.resolve("small", {"budget.flops": "1e17"}).budget == Budget(flops=1e17)


@pytest.mark.parametrize("scale", presets.SCALES)
def test_flops_are_counted_by_matrix_products_below_the_papers_scales(scale: str) -> None:
    usual = "paper" if scale in ("small", "base", "large") else "matmul"
    assert presets.resolve(scale).budget.convention == usual
    assert presets.resolve(scale, {"budget.tokens": 2e6}).budget.convention == usual
    assert presets.resolve(scale, {"budget.convention": "paper-sparse"}).budget.convention == "paper-sparse"


@pytest.mark.parametrize("scale", presets.PUBLISHED)
def test_published_sizes_are_models_that_can_be_built(scale: str) -> None:
    """On the meta device, with every tensor of its real shape."""
    name = "causal-lm" if scale == "gpt-1" else "bert-mlm"
    spec = objectives.with_options(presets.resolve(scale, {"objective": name, "optim.kind": "adamw"}))
    millions = plan(spec).parameters["encoder"] / 1e6
    expected = {
        "bert-base": 109, "bert-large": 334, "roberta-base": 124, "roberta-large": 355, "gpt-1": 116,
        "deberta-v3-xsmall": 22 + 49, "deberta-v3-small": 44 + 98, "deberta-v3-base": 86 + 98,
        "deberta-v3-large": 304 + 131, "modernbert-base": 149, "modernbert-large": 395,
    }  # fmt: skip
    assert millions == pytest.approx(expected.get(scale, millions), abs=1)
    assert presets.scale_of_encoder(spec.encoder.layers, spec.encoder.hidden) in presets.SCALES
    assert presets.resolve(scale, {"budget.flops": 1e18}).budget.convention == "paper"


def test_unknown_scale() -> None:
    with pytest.raises(InputError, match="unknown scale 'smal'; did you mean 'small'"):
        presets.resolve("smal")


@given(st.integers(1, 48), st.integers(16, 4096))
def test_an_encoder_is_fine_tuned_as_the_scale_nearest_in_size(layers: int, hidden: int) -> None:
    found, size = presets.scale_of_encoder(layers, hidden), layers * hidden**2
    rows = {name: presets.resolve(name).encoder for name in presets.SCALES}
    sizes = {name: row.layers * row.hidden**2 for name, row in rows.items()}
    assert (found == "nano") == (size <= sizes["nano"])
    if found != "nano":
        ratios = {name: max(size / each, each / size) for name, each in sizes.items() if name != "nano"}
        assert ratios[found] == min(ratios.values())


def test_each_scale_suits_its_own_encoder() -> None:
    for name in presets.SCALES:
        encoder = presets.resolve(name).encoder
        assert presets.scale_of_encoder(encoder.layers, encoder.hidden) == name


def test_settings_that_were_given_stay_in_place_of_those_of_the_objective() -> None:
    rtd = presets.resolve("nano")
    assert presets.of_objective(rtd, []) == {"optim.lr": 2.73e-3, "options.weight": 3.79}
    assert presets.of_objective(rtd, ["optim.lr"]) == {"options.weight": 3.79}
    assert presets.of_objective(presets.resolve("small"), []) == {}  # where the paper's settings are


def test_a_rehearsal_is_the_command_with_less_of_everything() -> None:
    base = presets.resolve("small", {"budget.convention": "matmul"})
    small = presets.rehearsed(base, 3, 4)
    assert (small.budget.steps, small.budget.convention, small.batch.size) == (3, "matmul", 4)
    assert (small.tasks.seeds, small.tasks.epochs, small.tasks.rows) == (1, 1, 40)
    assert (small.encoder, small.data, small.objective) == (base.encoder, base.data, base.objective)
    for warmup, left in ((None, None), (0.1, 0.1), (2000, 0.25)):
        assert presets.rehearsed(base.changed({"schedule.warmup": warmup}), 3, 4).schedule.warmup == left
