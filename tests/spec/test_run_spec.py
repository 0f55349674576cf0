"""What a run is: its parts and every setting of them, picks, overrides, identity, and when it has an id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from workbench.cli import app
from workbench.errors import InputError
from workbench.execution.study_options import base_spec
from workbench.objectives import with_options
from workbench.options import SpecOptions
from workbench.spec import presets, run_spec
from workbench.spec.parts import (
    COUNTS,
    UNITS,
    Budget,
    CorruptionSpec,
    DataSpec,
    EncoderSpec,
    PairSpec,
    Part,
    ScheduleSpec,
    TasksSpec,
)
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec, known_keys, part_of, split_settings, value_at
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore


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


# ---- overrides ----


def test_override_takes_the_type_of_its_field() -> None:
    overrides = run_spec.overrides_of(
        run_spec.split_settings(["optim.lr=1e-4", "encoder.embedding=unset", "data.corpus=a.txt, b.txt", "seed=7"])
    )
    run = presets.resolve("small", overrides)
    assert (run.optim.lr, run.encoder.embedding, run.data.corpus, run.seed) == (1e-4, None, ("a.txt", "b.txt"), 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("encoder.hiden=3", "unknown key 'encoder.hiden' in --set; did you mean 'encoder.hidden'?"),
        ("lr=3", "unknown key 'lr' in --set; did you mean 'optim.lr'?"),
        ("optim.learning_rate=3", "unknown key 'optim.learning_rate' in --set; did you mean 'optim.lr'?"),
        ("frobnicate=3", "unknown key 'frobnicate' in --set; workbench list keys prints all that there are"),
        ("device=cuda", "unknown key 'device' in --set; give --device DEVICE"),
        ("seeds=3", "unknown key 'seeds' in --set; give --seeds N|auto"),
        ("compile=true", "unknown key 'compile' in --set; give --compile"),
        ("encoder=3", "unknown key 'encoder' in --set; it holds encoder.family, encoder.source, encoder.options"),
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
        run_spec.overrides_of(run_spec.split_settings([text]))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_override_given_twice() -> None:
    assert run_spec.overrides_of(run_spec.split_settings(["seed=1", "seed=1"])) == {"seed": "1"}
    with pytest.raises(InputError, match="seed is given twice, as '1' and '2'; keep one"):
        run_spec.overrides_of(run_spec.split_settings(["seed=1", "seed=2"]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"encoder.hidden": "wide"}, "encoder.hidden='wide' cannot be used"),
        ({"encoder.hidden": "9" * 5000}, f"encoder.hidden='{'9' * 199} cannot be used"),
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
        (
            {"tying": "all", "generator.width": 1.0, "generator.heads": 8},
            "so the generator has the encoder's 4 heads; leave generator.heads=8 out",
        ),
        ({"generator.heads": 3}, "generator.heads=3: a width of 64 cannot be divided equally among 3"),
        ({"tying": "everything"}, "tying='everything' cannot be used"),
        ({"corruption.mask": 0.9, "corruption.random": 0.2}, "mask (0.9) and random (0.2) together exceed 1"),
        (
            {"corruption.generator_random": 0.1},
            "generator_random (0.1) together exceed 1; lower generator_mask, as in generator_mask=0.8",
        ),
        ({"optim.generator_lr": "0"}, "optim.generator_lr='0' cannot be used"),
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


@pytest.mark.parametrize(
    "text",
    ["steps=1.5", "steps=-1", "flops=0", "tokens=many", "hours=3", "steps", "flops=nan", "flops=1e999", "words=none"],
)
def test_budget_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match="--budget"):
        run_spec.parse_budget(text)


def test_a_budget_without_an_amount_is_refused() -> None:
    with pytest.raises(InputError, match="None is not a positive number of steps"):
        run_spec.parse_budget({"steps": None})  # type: ignore[dict-item]


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
        ("words=1e8", "words", 1e8),
    ],
)
def test_budget(text: str, unit: str, amount: float) -> None:
    budget = run_spec.parse_budget(text)
    assert (budget.unit, budget.amount) == (unit, amount)


def test_every_key_of_the_spec_can_be_set() -> None:
    """Every field of every part, besides those that commands fill in; `tasks.pair` is no field of the part `pair`."""
    spec, keys = run_spec.RunSpec(), run_spec.known_keys()
    parts = {name: getattr(spec, name) for name in type(spec).model_fields if name not in ("pair", "published")}
    fields = {
        f"{name}.{field}" for name, part in parts.items() if hasattr(part, "model_fields_set") for field in dict(part)
    }
    assert {"tasks.pair", "optim.lr"} < fields
    assert {key for key in fields if key != "data.special"} <= set(keys)
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


PLACED: list[dict[str, Any]] = [
    {"data.corpus": "/other/place/text.txt.xz"}, {"data.corpus": "owner/name", "data.revision": "a" * 40},
    {"data.column": "content"}, {"data.tokenizer": "/a/folder"},
]  # fmt: skip


@pytest.mark.parametrize("overrides", PLACED, ids=str)
def test_where_a_prepared_text_lies_does_not_change_the_run(overrides: dict[str, Any]) -> None:
    """Before the text is prepared nothing else tells two texts apart; a run and its parent read the same text."""
    here, there = (presets.resolve("nano", each) for each in ({}, overrides))
    assert here.name != there.name
    known = {"data.fingerprint": "ab", "start.share": 0.5}
    here, there = (presets.resolve("nano", each | known) for each in ({}, overrides))
    assert here.name == there.name and there.placed(here.places()) == here
    parents = [each.parent() for each in (here, there)]
    assert parents[0] is not None and parents[1] is not None and parents[0].name == parents[1].name


def test_a_pair_is_its_files_wherever_they_lie() -> None:
    names = ({"pair.names": "a/d,a/g"}, {"pair.names": "/copy/d,/copy/g", "data.tokenizer": "/copy/d"})
    known = {"pair.files": "f" * 64, "data.fingerprint": "ab"}
    one, two = (presets.resolve("nano", each | known) for each in names)
    assert one.name == two.name != presets.resolve("nano", names[0] | known | {"pair.files": "0" * 64}).name
    assert two.placed(one.places()) == one
    alone = presets.resolve("nano", {"data.fingerprint": "ab"})
    assert alone.placed(one.places()).pair is None, "a baseline goes on from nothing"


def test_what_the_generator_sees_as_random_words_changes_the_run() -> None:
    shown = {"corruption.generator_mask": 0.8}
    ids = {presets.resolve("small", shown | {"corruption.generator_random": share}).name for share in (0, 0.1, 0.2)}
    assert len(ids) == 3


def test_fields_that_came_later_leave_older_runs_their_names() -> None:
    """The hash of ELECTRA-Small's identity before there were rates and random words for the generator."""
    found = presets.resolve("small").identity()
    assert "generator_random" not in found["corruption"] and "generator_lr" not in found["optim"]
    assert presets.resolve("small").name == "rtd-small-s0-4ed670dfbdd2"


def test_a_generator_has_a_head_for_each_64_of_its_width_unless_told_otherwise() -> None:
    """A number that says what holds anyway, or a generator without weights, does not make another run."""
    spec = presets.resolve("micro", {"generator.width": 0.5})
    assert spec.generator_encoder.head_count == 1 and spec.encoder.head_count == 2
    two = spec.replace(generator={"width": 0.5, "heads": 2})
    assert two.generator_encoder.head_count == 2 and two.name != spec.name
    assert spec.replace(generator={"width": 0.5, "heads": 1}).name == spec.name
    whole = presets.resolve("micro", {"tying": "all"})
    assert whole.replace(generator={"width": 1.0, "heads": 2}).generator_encoder == whole.generator_encoder
    names = {presets.resolve("micro", {"generator.kind": "unigram", "generator.heads": n}).name for n in (None, 4)}
    assert len(names) == 1


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


KNOWN = {"data.fingerprint": "f" * 16, "budget.steps": 20}


def bound(**keys: Any) -> BoundRun:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return BoundRun(with_options(resolve("nano", KNOWN | {"objective": "rtd"} | given)))


def test_a_draft_has_no_id_and_no_place_in_a_store(tmp_path: Path) -> None:
    draft, store = resolve("nano", KNOWN), RunStore(tmp_path)
    with pytest.raises(AttributeError, match="run_id"):
        store.open(draft)  # type: ignore[arg-type]
    assert store.runs() == []
    run = store.open(bound())
    assert run.run_id == bound().run_id and run.spec() == bound().spec


def test_the_parent_of_a_bound_run_is_bound_as_well() -> None:
    assert bound().parent() is None
    child = bound(tying="none", start__take="encoder", start__parent={"objective": "bert-mlm"})
    parent = child.parent()
    assert parent is not None and parent.run_id.startswith("bert-mlm-nano-s0-")
    assert parent.spec.data.fingerprint == KNOWN["data.fingerprint"] and parent.spec.budget.steps == 10


@given(st.sets(st.sampled_from(UNITS)))
def test_a_budget_is_in_exactly_one_unit(units: set[str]) -> None:
    if len(units) == 1:
        budget = Budget(**dict.fromkeys(units, 5))
        assert (budget.unit, budget.amount) == (*units, 5.0)
    else:
        with pytest.raises(ValidationError, match="budget takes exactly one of steps, tokens, words, flops and seco"):
            Budget(**dict.fromkeys(units, 5))


@given(st.integers(1, 10**9), st.floats(1e-6, 1))
def test_a_part_of_a_budget_has_its_unit_and_convention(amount: int, share: float) -> None:
    steps = Budget(**Budget(steps=amount, convention="matmul").part(share))
    assert steps.convention == "matmul" and steps.steps is not None
    assert 1 <= steps.steps <= amount and abs(steps.steps - amount * share) <= max(1, amount * 1e-9)
    tokens = Budget(**Budget(tokens=amount).part(share))
    assert tokens.amount == pytest.approx(amount * share) and tokens.convention == "paper"


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        (EncoderSpec, {"layers": 5000}, "should be less than or equal to 4096"),  # to count its weights takes minutes
        (ScheduleSpec, {"floor": 0.1}, "at which only a cosine ends"),
        (ScheduleSpec, {"kind": "wsd", "overlap": True}, "set schedule.overlap=false or schedule.kind=linear"),
        (PairSpec, {"names": "one"}, "takes two models, as in start.from=DISCRIMINATOR,GENERATOR, and 1 are named"),
        (TasksSpec, {"at": "log:51"}, "log:N with N from 1 to 50, such as log:6"),
        (TasksSpec, {"at": "log:06"}, "must be auto, none, words, or log:N"),
        (DataSpec, {"corpus": ("a", "b\udcff")}, "is not valid UTF-8"),
        (DataSpec, {"corpus": " , "}, "at least 1 item"),
        (ScheduleSpec, {"decay": float("nan")}, "finite number"),
    ],
)
def test_values_that_contradict_each_other_are_refused(part: type[Part], values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        part(**values)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("part", "values"),
    [
        (CorruptionSpec, {"mask": 0.9, "random": 0.1}),  # 0.1 + 0.9 may be a little above 1
        (ScheduleSpec, {"kind": "cosine", "floor": 0.1}),
        (TasksSpec, {"at": "log:50"}),
    ],
)
def test_values_at_the_limit_are_taken(part: type[Part], values: dict[str, Any]) -> None:
    assert {key: getattr(part(**values), key) for key in values} == values


@given(st.lists(st.text("abc xyz", min_size=1).map(str.strip).filter(bool), min_size=1))
def test_names_may_be_one_text_with_commas(names: list[str]) -> None:
    assert DataSpec(corpus=" , ".join(names)) == DataSpec(corpus=tuple(names))  # type: ignore[arg-type]


def test_tasks_are_chosen_where_one_has_a_name() -> None:
    assert [TasksSpec(names=names).chosen for names in (("none",), (), ("none", "RTE"))] == [False, False, True]


# What must be said with a value, because the two are checked together.
WITH = {
    "tying=all": ["generator.width=1"],
    "schedule.kind=wsd": ["schedule.overlap=false"],
    "schedule.kind=constant": ["schedule.overlap=false"],
    "start.take=generator": ["generator.width=1", "tying=none"],
    "start.freeze_generator=true": ["tying=none", "start.take=generator", "generator.width=1"],
}


def field_of(key: str) -> FieldInfo:
    part, name = part_of(key)
    return part.model_fields[name]


def literals() -> Iterator[tuple[str, str, Any]]:
    """Key, value as typed, and value as read, of every field that is a list of words or a switch."""
    for key in known_keys():
        field = field_of(key)
        for kind in (field.annotation, *get_args(field.annotation)):
            if get_origin(kind) is Literal:
                yield from ((key, value, value) for value in get_args(kind))
            elif kind is bool:
                yield from ((key, str(value).lower(), value) for value in (True, False))


@pytest.mark.parametrize(("key", "text", "value"), list(literals()), ids=lambda each: str(each))
def test_a_literal_value_is_what_it_says(key: str, text: str, value: Any) -> None:
    given = [*WITH.get(f"{key}={text}", []), f"{key}={text}"]
    assert value_at(base_spec(SpecOptions(set=split_settings(given))), key) == value
    shown = CliRunner().invoke(app, ["flops", "--json", *(part for each in given for part in ("--set", each))])
    assert shown.exit_code == 0, shown.exception
    assert json.loads(shown.stdout)["steps"] > 0


def test_values_called_none_are_values_in_a_sweep_too() -> None:
    shown = CliRunner().invoke(app, ["sweep", "--over", "tying=none,tokens", "--dry-run", "--json"])
    assert shown.exit_code == 0, shown.exception
    assert '"none"' in shown.stdout


@pytest.mark.parametrize("key", [*COUNTS, "source", "data.fingerprint", "data.special.pad"])
def test_what_is_found_in_the_text_or_the_objective_cannot_be_set(key: str) -> None:
    told = f"{key}: this value is {'counted in the text and cannot be set' if key in COUNTS else 'read from'}"
    for words in (["run", "ablation", "--set", f"{key}=5"], ["sweep", "--over", f"{key}=5,6"]):
        refused = CliRunner().invoke(app, [*words, "--dry-run"])
        assert isinstance(refused.exception, InputError)
        assert str(refused.exception).startswith(f"{words[-2]} {told}")


@pytest.mark.parametrize("key", ["recipe", "tasks.names", "tasks.lr"])
def test_what_runs_of_a_command_share_is_no_axis(key: str, tmp_path: Path) -> None:
    """The runs would have other names and the same settings."""
    file = tmp_path / "mine.py"
    file.write_text(f"QUESTION = 'Which?'\nAXES = {{'objective': ('rtd',), {key!r}: (1,)}}\n")
    for words in (["sweep", "--over", f"{key}=1,2"], ["sweep", "--over", f"{key}=1..2", "--trials", "2"],
                  ["run", str(file)]):  # fmt: skip
        refused = CliRunner().invoke(app, [*words, "--dry-run"])
        assert isinstance(refused.exception, InputError)
        assert f"{key} cannot be an axis" in str(refused.exception)


@pytest.mark.parametrize("key", [key for key in known_keys() if type(None) in get_args(field_of(key).annotation)])
def test_unset_clears_every_field_that_can_be_empty(key: str) -> None:
    if key.startswith("budget."):
        pytest.skip("one unit of a budget replaces another, and one has to stay")
    assert value_at(base_spec(SpecOptions(set={key: None})), key) is None
