"""Reading one run directory: every file may be missing, cut, of another type or somebody else's."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import made
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.report.load import run_files, study_tables
from workbench.spec.parts import CONVENTIONS
from workbench.store import atomic
from workbench.store.atomic import sealed

FLOPS = {name: 10.0 * n for n, name in enumerate(CONVENTIONS, 1)}
SCORE = {"task": "Zürich", "suite": "table", "metric": "accuracy", "seed": 1, "value": 61.5}
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "3", [], [1], {}, {"a": 1}])
KEYS = st.text(st.characters(exclude_characters="."), min_size=1, max_size=4)
NESTED = st.recursive(
    st.dictionaries(KEYS, st.integers() | st.text(max_size=3), min_size=1, max_size=3),
    lambda inner: st.dictionaries(KEYS, inner | st.integers(), min_size=1, max_size=3),
    max_leaves=4,
)


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


# ---- values ----


@settings(max_examples=60, deadline=None)
@given(ANYTHING)
@example(10**400)
@example(True)
@example("3")
def test_number_takes_finite_numbers_only(value: Any) -> None:
    found = run_files.number(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        assert found == float(value) and isinstance(found, float)
    else:
        assert math.isnan(found)


@pytest.mark.parametrize("item", [None, 3, "text", [1], [["b", 1]]])
def test_part_is_a_dictionary_or_an_empty_one(item: Any) -> None:
    assert run_files.part({"a": item}, "a") == run_files.part({}, "a") == {}
    assert run_files.part({"a": {"b": item}}, "a") == {"b": item}


def unflattened(flat: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for dotted, item in flat.items():
        *above, last = dotted.split(".")
        inner = whole
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = item
    return whole


@settings(max_examples=30, deadline=None)
@given(NESTED)
def test_flat_keys_lead_back_to_the_nested_mapping(value: dict[str, Any]) -> None:
    flat = run_files.flatten(value)
    assert unflattened(flat) == value and not any(isinstance(item, dict) for item in flat.values())


def test_lists_become_text_and_empty_mappings_nothing() -> None:
    assert run_files.flatten({"a": {"b": [1, "x"], "c": []}, "d": {}}) == {"a.b": "1, x", "a.c": ""}
    signed = {"data": {"corpus": ["docs", "https://h/x?sig=Pl4ntedS3cret"]}}
    assert run_files.flatten(signed) == {"data.corpus": "docs, https://h/x?sig=***"}


# ---- small files ----


@pytest.mark.parametrize("content", ["", '{"a": 1', "[1]", '{"a": NaN}', "\ufeff{}", "[" * 9000])
def test_an_optional_file_that_is_no_object_counts_as_missing(tmp_path: Path, content: str) -> None:
    assert run_files.optional(written(tmp_path / "a.json", content)) == {}


def test_an_optional_file_is_read_whole_and_its_hash_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert run_files.optional(path) == {} and run_files.optional(tmp_path) == {}
    path.write_bytes(sealed({"a": "ä"}))
    assert run_files.optional(path) == {"a": "ä"}
    path.write_bytes(path.read_bytes().replace("ä".encode(), "ö".encode()).replace(b"\\u00e4", b"\\u00f6"))
    assert run_files.optional(path) == {}
    (tmp_path / "link.json").symlink_to(written(tmp_path / "b.json", {"a": 1}))
    assert run_files.optional(tmp_path / "link.json") == {}


SPEC: dict[str, Any] = {"seed": 3, "budget": {"steps": 100, "tokens": None, "convention": "paper"}, "objective": "rtd"}


def test_spec_and_identity_come_from_one_file(tmp_path: Path) -> None:
    written(tmp_path / "spec.json", {"spec": SPEC, "identity_sha": "ab"})
    assert run_files.spec_of(tmp_path) == (SPEC, "ab")
    written(tmp_path / "spec.json", {"spec": SPEC, "identity_sha": None})
    assert run_files.spec_of(tmp_path) == (SPEC, "")


@pytest.mark.parametrize(
    "spec",
    [
        None, [], {}, SPEC | {"seed": "3"}, SPEC | {"seed": None}, SPEC | {"budget": None}, SPEC | {"budget": {}},
        SPEC | {"budget": {"steps": "100"}}, SPEC | {"budget": {"steps": True}},
        SPEC | {"budget": {"steps": 1, "tokens": 2}},
    ],
)  # fmt: skip
def test_a_spec_without_one_seed_and_one_budget_is_refused(tmp_path: Path, spec: Any) -> None:
    for content in (None, "{", {"spec": spec}):  # it may also be missing, or cut
        if content:
            written(tmp_path / "spec.json", content)
        with pytest.raises(ValueError, match=r"spec\.json"):
            run_files.spec_of(tmp_path)


# ---- totals ----

DONE: dict[str, Any] = {"steps": 60, "tokens": 4096, "seconds": 1.5, "flops": FLOPS}


def test_totals_of_a_finished_run_are_those_recorded(tmp_path: Path) -> None:
    written(tmp_path / "done.json", DONE)
    expected = {"steps": 60, "tokens": 4096, "seconds": 1.5} | {f"flops_{name}": FLOPS[name] for name in CONVENTIONS}
    assert run_files.totals(tmp_path, {"step": 7, "tokens": 1}) == expected


def test_totals_of_an_unfinished_run_are_those_of_its_last_row(tmp_path: Path) -> None:
    last = {"step": 7.0, "tokens": 70.0, "seconds": 0.5, **{f"flops.{name}": value for name, value in FLOPS.items()}}
    found = run_files.totals(tmp_path, last)
    assert found == {"steps": 7, "tokens": 70, "seconds": 0.5} | {f"flops_{name}": FLOPS[name] for name in CONVENTIONS}
    nothing = run_files.totals(tmp_path, {})
    assert nothing.keys() == found.keys() and all(map(math.isnan, nothing.values()))


@pytest.mark.parametrize("key", ["steps", "tokens", "seconds"])
@pytest.mark.parametrize("value", [None, "60", True, 10**400])
def test_a_total_that_is_no_number_is_named(tmp_path: Path, key: str, value: Any) -> None:
    written(tmp_path / "done.json", DONE | {key: value})
    others = {"steps", "tokens", "seconds", "flops_paper"} - {key}
    with pytest.raises(ValueError, match=rf"done\.json.*\b{key}\b") as caught:
        run_files.totals(tmp_path, {})
    assert not any(other in str(caught.value) for other in others)


def test_flops_that_lack_a_convention_are_named_and_a_cut_file_is_no_unfinished_run(tmp_path: Path) -> None:
    written(tmp_path / "done.json", DONE | {"flops": {name: 1.0 for name in CONVENTIONS if name != "matmul"}})
    with pytest.raises(ValueError, match="flops_matmul"):
        run_files.totals(tmp_path, {})
    written(tmp_path / "done.json", '{"steps": 60')
    with pytest.raises(ValueError, match=r"done\.json"):
        run_files.totals(tmp_path, {"step": 7.0})


# ---- words and floors ----


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**12), st.integers(1, 10**9), st.integers(1, 10**9), st.integers(8, 512))
def test_words_and_epochs_follow_from_tokens_by_hand(tokens: int, words: int, text: int, length: int) -> None:
    """Of `length` tokens of a row two are no text; the others hold words at the rate of the whole corpus."""
    spec = {"data": {"corpus": ["docs"], "length": length, "words": words, "tokens": text}}
    exact = Fraction(tokens) * (length - 2) / length * words / text
    found = run_files.words_and_epochs(spec, tokens)
    assert abs(found["words"] - exact) <= max(Fraction(1, 2), exact / 10**12)
    assert found["words"] == round(found["words"])
    assert found["epochs"] == pytest.approx(float(exact / words))


@pytest.mark.parametrize(
    ("data", "tokens"),
    [({}, 10), ({"corpus": ["docs"]}, 10), ({"corpus": ["docs"], "words": 5, "tokens": 9}, math.nan),
     ({"corpus": 3, "words": 5, "tokens": 9}, 10), (None, 10)],
)  # fmt: skip
def test_words_that_were_not_counted_are_nan(data: Any, tokens: float) -> None:
    assert all(map(math.isnan, run_files.words_and_epochs({"data": data}, tokens).values()))


def test_only_floors_that_are_numbers_count(tmp_path: Path) -> None:
    assert run_files.floors(tmp_path) == {}
    written(tmp_path / "done.json", {"floors": {"mlm_loss": 6.5, "discriminator_loss": None, "generator_loss": "6"}})
    assert run_files.floors(tmp_path) == {"mlm_loss": 6.5}
    written(tmp_path / "done.json", {"floors": [1]})
    assert run_files.floors(tmp_path) == {}


# ---- curves ----


def test_no_log_and_an_empty_log_are_no_fault(tmp_path: Path) -> None:
    assert run_files.curve_of(tmp_path, 100)[0].rows == [] and run_files.curve_of(tmp_path, 100)[1] == ""
    written(tmp_path / "metrics.jsonl", "")
    curve, fault = run_files.curve_of(tmp_path, 100)
    assert (curve.rows, curve.last, fault) == ([], {}, "")


@pytest.mark.parametrize("kind", ["link", "dangling", "folder"])
def test_a_log_that_is_no_file_of_its_own_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "metrics.jsonl"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(written(tmp_path / "other", '{"step": 1}\n') if kind == "link" else tmp_path / "nowhere")
    curve, fault = run_files.curve_of(tmp_path, 100)
    assert curve.rows == [] and "metrics.jsonl" in fault


@pytest.mark.parametrize("bad", [0, 1, 3])
@pytest.mark.parametrize("torn", ["", '{"step": 9, "lo'])
def test_unreadable_lines_are_counted_and_a_torn_end_is_none(tmp_path: Path, bad: int, torn: str) -> None:
    lines = ['{"step": 1, "loss": 4}', *["\0" * 20] * bad, '{"step": 2, "loss": 2}']
    written(tmp_path / "metrics.jsonl", "\n".join(lines) + "\n" + torn)
    curve, fault = run_files.curve_of(tmp_path, 100)
    assert [row["loss"] for row in curve.rows] == [4, 2] and curve.last["step"] == 2
    assert fault == "" if not bad else fault.startswith(f"{bad} ") and "metrics.jsonl" in fault


# ---- scores ----


def test_a_score_is_read_with_what_it_may_lack(tmp_path: Path) -> None:
    more = {
        "values": {"dev": {"accuracy": 61.5, "f1": None}, "odd": 3}, "baselines": {"majority": 50, "none": "x"},
        "finetune": {"lr": 1e-4}, "scorer": "pll", "digest": "ab", "test_rows": 500, "ties": None,
        "notes": ["two rows twice", 3],
    }  # fmt: skip
    written(tmp_path / "scores" / "b.json", SCORE)
    written(tmp_path / "scores" / "a.json", SCORE | more)
    (full, no_fault), (bare, none) = run_files.scores_of(tmp_path)
    assert (no_fault, none) == ("", "") and (full["path"], bare["path"]) == ("a.json", "b.json")
    assert {key: full[key] for key in SCORE} == SCORE == {key: bare[key] for key in SCORE}
    assert full["values"]["dev"]["accuracy"] == 61.5 and math.isnan(full["values"]["dev"]["f1"])
    assert full["values"]["odd"] == {} and full["baselines"]["majority"] == 50 and math.isnan(full["baselines"]["none"])
    assert (full["test_rows"], full["finetune"], full["scorer"], full["digest"]) == (500, {"lr": 1e-4}, "pll", "ab")
    assert (bare["values"], bare["baselines"], bare["finetune"], bare["scorer"], bare["digest"]) == ({}, {}, {}, "", "")
    assert (full["notes"], bare["notes"]) == (["two rows twice", "3"], [])
    assert all(math.isnan(bare[key]) for key in ("seconds", "train_rows", "test_rows", "ties"))


@pytest.mark.parametrize(
    "change", [{key: None} for key in ("task", "suite", "metric", "seed")] + [{"task": ""}, {"seed": "1"}]
)
def test_a_score_without_a_name_or_a_seed_is_left_out_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    written(tmp_path / "scores" / "a.json", SCORE | change)
    written(tmp_path / "scores" / "b.json", "{")
    written(tmp_path / "scores" / "c.json", SCORE)
    written(tmp_path / "scores" / "notes.txt", "no score")
    found = list(run_files.scores_of(tmp_path))
    assert [bool(score) for score, _ in found] == [False, False, True]
    assert [("scores/a.json" in fault, "scores/b.json" in fault) for _, fault in found] == [
        (True, False), (False, True), (False, False),
    ]  # fmt: skip


def test_a_value_that_is_no_number_is_nan_and_not_left_out(tmp_path: Path) -> None:
    written(tmp_path / "scores" / "a.json", SCORE | {"value": None})
    [(score, fault)] = run_files.scores_of(tmp_path)
    assert fault == "" and math.isnan(score["value"])
    assert list(run_files.scores_of(tmp_path / "nowhere")) == []


# ---- points ----


def test_points_come_in_the_order_of_training(tmp_path: Path) -> None:
    """The folder of step 100000000 has a longer name than that of step 99999999, and comes after it."""
    steps = (100_000_000, 2, 99_999_999)
    for step in steps:
        folder = tmp_path / "points" / f"{step:08d}"
        facts = {"step": step, "mark": f"{step} M words", "tokens": step * 64, "seconds": 0.5, "flops": FLOPS}
        written(folder / "point.json", facts)
        written(folder / "scores" / "a.json", SCORE)
    (tmp_path / "points" / "00000003").mkdir()  # without a record, as a killed run leaves it
    found = list(run_files.points_of(tmp_path))
    assert [point["steps"] for point, _, _ in found] == sorted(steps)
    for (point, scores, fault), step in zip(found, sorted(steps), strict=True):
        assert (point["mark"], point["tokens"], point["seconds"], fault) == (f"{step} M words", step * 64, 0.5, "")
        assert {name: point[f"flops_{name}"] for name in CONVENTIONS} == FLOPS
        assert [score["path"] for score in scores] == [f"points/{step:08d}/scores/a.json"]


def test_a_damaged_point_is_left_out_and_a_damaged_score_of_one_named(tmp_path: Path) -> None:
    one, two = (tmp_path / "points" / name for name in ("00000001", "00000002"))
    written(one / "point.json", '{"step": 1')
    written(one / "scores" / "a.json", SCORE)
    written(two / "point.json", {"step": 2, "flops": None})
    written(two / "scores" / "a.json", "[")
    written(two / "scores" / "b.json", SCORE)
    (no_point, none, said), (point, scores, fault) = run_files.points_of(tmp_path)
    assert (no_point, none) == ({}, []) and "points/00000001" in said
    assert point["steps"] == 2 and point["mark"] == "" and math.isnan(point["flops_paper"])
    assert [score["path"] for score in scores] == ["points/00000002/scores/b.json"]
    assert "points/00000002/scores/a.json" in fault and "b.json" not in fault
    assert list(run_files.points_of(tmp_path / "nowhere")) == []


# ---- every run of a record ----


def test_a_report_reads_each_json_file_of_a_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, name = made.study(tmp_path / "runs", made.noisy(made.LEVELS), arms=("rtd", "bert-mlm"), seeds=2)
    opened: Counter[str] = Counter()

    def counted(path: Path, original: Any = atomic.open_regular) -> Any:
        opened[str(path)] += 1
        return original(path)

    monkeypatch.setattr(atomic, "open_regular", counted)
    found = study_tables.read_study(store, name)
    assert len(found.runs) == 6 and len(found.scores) == 6 * 4 * 2
    files = {str(path) for path in store.root.glob("*/**/*.json") if path.parent.name != "experiments"}
    assert {path: opened[path] for path in files} == dict.fromkeys(files, 1)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_runs_come_in_the_order_asked_for_without_those_that_are_gone(tmp_path: Path, gone: int) -> None:
    store, _ = made.study(tmp_path / "runs", made.noisy(made.LEVELS), arms=("rtd",), seeds=3, tasks=())
    names = [run.run_id for run in store.runs()][::-1]
    asked = [*names[:gone], "never-made", *names[gone:]]
    every = list(run_files.every_run(store, asked, verify=True, most_rows=100))
    assert every.pop(gone) is None
    found = [each for each in every if each is not None]
    assert [each.run_id for each in found] == names
    assert [len(each.curve.rows) for each in found] == [
        0 if each.records["plan.json"]["steps"] == 0 else 60 for each in found
    ]
