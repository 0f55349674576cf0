"""What a run is: sizes, picks, overrides and identity."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import objectives
from workbench.errors import InputError
from workbench.spec import presets, run_spec
from workbench.spec.experiment import changed
from workbench.spec.parts import Budget, EncoderSpec
from workbench.spec.run_spec import RunSpec
from workbench.training.plan import plan


def at(length: int, rate: float, picks: str) -> RunSpec:
    return RunSpec.model_validate({"data": {"length": length}, "corruption": {"rate": rate, "picks": picks}})


# ---- picks ----


@pytest.mark.parametrize(
    ("length", "rate", "paper", "released"),
    [(128, 0.15, 20, 19), (512, 0.15, 77, 77), (512, 0.25, 128, 128), (64, 0.15, 10, 9), (8, 0.15, 2, 1)],
)
def test_picks_of_full_rows(length: int, rate: float, paper: int, released: int) -> None:
    assert at(length, rate, "distinct").picks == paper
    assert at(length, rate, "released").picks == released


def test_released_picks_round_half_to_even_and_stop_at_their_cap() -> None:
    assert at(40, 0.125, "released").picked(20) == 2  # 2.5
    assert at(40, 0.125, "released").picked(28) == 4  # 3.5
    assert at(40, 0.125, "released").picked(1) == 1
    assert at(10, 0.149, "released").picked(10) == 1


@given(st.integers(8, 512), st.floats(0.01, 0.99), st.data())
def test_rows_never_pick_more_than_their_slots(length: int, rate: float, data: st.DataObject) -> None:
    tokens = data.draw(st.integers(2, length))
    for picks in ("distinct", "released"):
        run = at(length, rate, picks)
        assert 1 <= run.picked(tokens) <= run.picks <= length


# ---- sizes ----


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


# ---- recipes ----


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


# ---- overrides ----


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
    expected = {"bert-base": 109, "bert-large": 334, "roberta-base": 124, "roberta-large": 355, "gpt-1": 116}
    assert millions == pytest.approx(expected.get(scale, millions), abs=1)
    assert presets.scale_of_encoder(spec.encoder.layers, spec.encoder.hidden) in presets.SCALES
    assert presets.resolve(scale, {"budget.flops": 1e18}).budget.convention == "paper"


def test_a_budget_on_an_axis_or_of_a_parent_keeps_the_convention() -> None:
    base = presets.resolve("nano", {"budget.convention": "matmul"})
    assert changed(base, {"budget.flops": 1e12}).budget == Budget(flops=1e12, convention="matmul")
    child = base.changed({"start.parent.schedule.kind": "constant", "start.parent.budget.tokens": 1e6})
    parent = child.parent()
    assert parent is not None and parent.budget == Budget(tokens=1e6, convention="matmul")


def test_override_takes_the_type_of_its_field() -> None:
    overrides = run_spec.parse_overrides(
        ["optim.lr=1e-4", "encoder.embedding=unset", "data.corpus=a.txt, b.txt", "seed=7"]
    )
    run = presets.resolve("small", overrides)
    assert (run.optim.lr, run.encoder.embedding, run.data.corpus, run.seed) == (1e-4, None, ("a.txt", "b.txt"), 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("encoder.hiden=3", "unknown key 'encoder.hiden' in --set; did you mean 'encoder.hidden'?"),
        ("lr=3", "unknown key 'lr' in --set; did you mean 'optim.lr'?"),
        ("frobnicate=3", "unknown key 'frobnicate' in --set; there are batch.size"),
        ("encoder.hidden", "is not of the form key=value"),
        ("=3", "is not of the form key=value"),
        ("encoder.hidden=unset", "encoder.hidden always has a value"),
        ("tying=unset", "tying always has a value"),
        ("encoder.heads=none", "to clear a value, write encoder.heads=unset"),
        ("tasks.rows=null", "to clear a value, write tasks.rows=unset"),
    ],
)
def test_override_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        run_spec.parse_overrides([text])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_override_given_twice() -> None:
    assert run_spec.parse_overrides(["seed=1", "seed=1"]) == {"seed": "1"}
    with pytest.raises(InputError, match="seed is given twice, as '1' and '2'; keep one"):
        run_spec.parse_overrides(["seed=1", "seed=2"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"encoder.hidden": "wide"}, "encoder.hidden='wide' cannot be used"),
        ({"encoder.hidden": "-1"}, "encoder.hidden='-1' cannot be used"),
        ({"optim.lr": "nan"}, "optim.lr='nan' cannot be used"),
        ({"optim.lr": "inf"}, "optim.lr='inf' cannot be used"),
        ({"encoder.hidden": "3.5"}, "encoder.hidden='3.5' cannot be used"),
        (
            {"encoder.hidden": 100, "encoder.heads": 3},
            "a width of 100 cannot be divided equally among 3 attention heads",
        ),
        ({"data.length": 600}, "data.length=600 must not exceed encoder.positions=512"),
        ({"tying": "all"}, "tying=all shares every weight, so it needs generator.width=1"),
        ({"tying": "everything"}, "tying='everything' cannot be used"),
        ({"corruption.mask": 0.9, "corruption.random": 0.2}, "mask (0.9) and random (0.2) together exceed 1"),
        ({"corruption.generator_random": 0.1}, "generator_mask (1) and generator_random (0.1) together exceed 1"),
        ({"optim.generator_lr": "0"}, "optim.generator_lr='0' cannot be used"),
        (
            {"budget.steps": 5, "budget.tokens": 5},
            "budget takes exactly one of steps, tokens, words, flops and seconds",
        ),
        ({"encoder.depth": 3}, "unknown key 'encoder.depth'"),
        ({"recipe": "papr"}, "unknown recipe 'papr'; did you mean 'paper'?"),
        ({"seed": "-1"}, "seed='-1' cannot be used"),
    ],
)
def test_values_that_cannot_be(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        presets.resolve("small", overrides)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_scale() -> None:
    with pytest.raises(InputError, match="unknown scale 'smal'; did you mean 'small'"):
        presets.resolve("smal")


@pytest.mark.parametrize(
    "text", ["steps=1.5", "steps=-1", "flops=0", "tokens=many", "hours=3", "steps", "flops=nan", "flops=1e999"]
)
def test_budget_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match="--budget"):
        run_spec.parse_budget(text)


@pytest.mark.parametrize("text", ["words=1e99", "steps=1e13"])
def test_a_budget_that_is_too_large_is_called_that(text: str) -> None:
    with pytest.raises(InputError, match=r"is more than 1e\+1\d (words|steps)$"):
        run_spec.parse_budget(text)


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("steps=1e3", "steps", 1000),
        ("steps=0", "steps", 0),
        ("tokens=2e6", "tokens", 2e6),
        ("seconds=0.5", "seconds", 0.5),
    ],
)
def test_budget(text: str, unit: str, amount: float) -> None:
    budget = run_spec.parse_budget(text)
    assert (budget.unit, budget.amount) == (unit, amount)


def test_every_key_of_the_spec_can_be_set() -> None:
    keys = run_spec.known_keys()
    for key in (
        "encoder.hidden",
        "generator.width",
        "generator.depth",
        "tying",
        "data.length",
        "batch.size",
        "optim.lr",
    ):
        assert key in keys
    assert len(keys) == len(set(keys))


# ---- identity ----

SAME: list[dict[str, Any]] = [
    {"tasks.seeds": 9},
    {"tasks.names": "glue"},
    {"encoder.embedding": 128},
    {"encoder.heads": 4},
]
OTHER: list[dict[str, Any]] = [
    {"seed": 1}, {"objective": "bert-mlm"}, {"optim.lr": 1e-3}, {"tying": "none"}, {"budget.steps": 5},
    {"recipe": "released"}, {"data.fingerprint": "ab"}, {"source": "cd"}, {"options": {"weight": 1}},
    {"encoder.heads": 8}, {"generator.width": 0.5}, {"head": "dense"}, {"schedule.warmup": 1},
    {"budget.convention": "matmul"}, {"data.special.mask": 4}, {"optim.generator_lr": 5e-4},
]  # fmt: skip


@pytest.mark.parametrize("overrides", SAME, ids=str)
def test_what_does_not_change_the_run(overrides: dict[str, Any]) -> None:
    """Tasks are measured afterwards; a size written out is the size left out."""
    assert presets.resolve("small", overrides).name == presets.resolve("small").name


@pytest.mark.parametrize("overrides", OTHER, ids=str)
def test_what_changes_the_run(overrides: dict[str, Any]) -> None:
    assert presets.resolve("small", overrides).name != presets.resolve("small").name


def test_what_the_generator_sees_as_random_words_changes_the_run() -> None:
    shown = {"corruption.generator_mask": 0.8}
    ids = {presets.resolve("small", shown | {"corruption.generator_random": share}).name for share in (0, 0.1, 0.2)}
    assert len(ids) == 3


def test_fields_that_came_later_leave_older_runs_their_names() -> None:
    """The hash of ELECTRA-Small's identity before there were rates and random words for the generator."""
    found = presets.resolve("small").identity()
    assert "generator_random" not in found["corruption"] and "generator_lr" not in found["optim"]
    assert presets.resolve("small").name == "rtd-small-s0-4ed670dfbdd2"


def test_run_id_is_a_readable_folder_name() -> None:
    run = presets.resolve("small", {"objective": "all-tokens-mlm", "seed": 3})
    assert run.name.startswith("all-tokens-mlm-small-s3-")
    assert run.changed({"budget": {"steps": 0}}).name.startswith("untrained-small-s3-")
    wild = run.changed({"objective": "../../Ünser Ziel" * 20}).name
    assert "/" not in wild and ".." not in wild and len(wild) < 100


def test_identity_does_not_hang_on_the_order_of_keys_or_the_process() -> None:
    run = presets.resolve("small")
    shuffled = dict(reversed(run.model_dump(mode="json").items()))
    assert run_spec.parse(shuffled).name == run.name
    assert run_spec.digest({"b": 1, "a": [1.5, None, "é"]}) == "4fa79d67d7df"


names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
overridden = st.fixed_dictionaries(
    {},
    optional={
        "objective": names,
        "seed": st.integers(0, 2**31 - 1),
        "encoder.hidden": st.sampled_from([64, 128, 256, 512]),
        "encoder.layers": st.integers(1, 48),
        "encoder.dropout": st.floats(0, 1, exclude_max=True),
        "generator.width": st.sampled_from([0.25, 0.5, 1.0]),
        "tying": st.sampled_from(["none", "tokens", "embeddings"]),
        "data.corpus": st.lists(names, min_size=1, max_size=3).map(tuple),
        "optim.lr": st.floats(1e-9, 10),
        "budget": st.sampled_from([{"steps": 3}, {"tokens": 1e6}, {"flops": 1e17}, {"seconds": 0.1}]),
        "tasks.rows": st.none() | st.integers(1, 10**6),
    },
)


@given(overridden)
def test_a_spec_survives_json(overrides: dict[str, Any]) -> None:
    run = presets.resolve("small").changed(overrides)
    again = run_spec.parse(json.loads(json.dumps(run.model_dump(mode="json"), allow_nan=False)))
    assert again == run
    assert again.name == run.name


def test_a_spec_cannot_be_changed_in_place() -> None:
    run = presets.resolve("small")
    with pytest.raises(ValueError, match="frozen"):
        run.seed = 5  # type: ignore[misc]
    assert run.replace(seed=5).seed == 5
    with pytest.raises(InputError, match="unknown key 'sed'"):
        run.replace(sed=5)


def test_merge_leaves_its_input_alone() -> None:
    raw = {"a": {"b": 1, "c": 2}}
    assert run_spec.merge(raw, {"a.b": 3, "d.e": 4}) == {"a": {"b": 3, "c": 2}, "d": {"e": 4}}
    assert raw == {"a": {"b": 1, "c": 2}}
