"""Names of arms, for people and in the code."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from made import PROBES, recorded, scored, spec_of, trained

from workbench.report.comparison import leaderboards
from workbench.report.data_files import results_of
from workbench.report.load import study_tables
from workbench.report.load.arm_names import (
    arm_name,
    arm_names,
    begun,
    budget_of,
    code_of,
    kind_of,
    named,
    sizeless,
    spoken,
)
from workbench.report.page import rendering
from workbench.report.page.document import Page
from workbench.report.results import ReportOptions
from workbench.store.run_store import RunStore


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ({"tokens": 2e6}, "2,000,000 tokens"),
        ({"steps": 1000}, "1,000 steps"),
        ({"seconds": 0.5}, "0.5 seconds"),
        ({"flops": 1e17, "convention": "matmul"}, "1e17 FLOPs (matmul)"),
    ],
)
def test_budgets_and_arms_have_names(budget: dict[str, float], text: str) -> None:
    assert budget_of(budget)[0] == text
    assert [arm_name(v) for v in (0.25, 1.0, "ideas/my_idea.py", None)] == ["0.25", "1", "my_idea", "unknown"]


COUNTS = {"data.words": 60_000, "data.tokens": 100_000}

TEXT = {"words": 60_000, "tokens": 100_000, "documents": 9, "sources": {"bnc.train": 10_000, "childes.train": 50_000}}


def test_runs_that_count_words_stay_in_the_arm_of_those_that_did_not(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    specs = [spec_of("rtd", seed, {"steps": 60}, **(COUNTS if seed else {})) for seed in range(3)]
    bare = [spec_of("bert-mlm", seed, {"steps": 0}) for seed in range(3)]
    for spec in (*bare, *specs):
        run = trained(store, spec, spec.budget.steps or 0)
        for task in PROBES:
            scored(run, task, 0, 60.0 + spec.seed)
    found = study_tables.read_study(store, recorded(store, specs, bare, text=TEXT))
    (board,) = leaderboards(found)
    (cell,) = board.at(board.budget)
    assert cell.arm == "rtd" and len(cell.scores) == 3
    assert cell.gain is not None and cell.gain.estimate.n == 3  # each has the untrained encoder of its seed

    rows = {row["seed"]: row for row in found.rows("runs") if row["role"] == "arm"}
    assert math.isnan(rows[0]["words"]) and math.isnan(rows[0]["epochs"])
    seen = 60 * 4096 * 30 / 32 * 0.6  # of rows of 32 tokens, 30 are of the text
    assert rows[1]["words"] == pytest.approx(seen) and rows[1]["epochs"] == pytest.approx(seen / 60_000)
    told = dict(rendering.facts(found, [board]))
    assert told["Text"] == "docs (60,000 words: childes.train 50,000, bnc.train 10,000)"
    assert told["Words seen by a run"] == "138 k (2.3 epochs)"
    page = Page(results_of(found, {}, ReportOptions()))
    assert not any(key.startswith("data.words") for key, _ in page.matrix[2])


def names_of(axis: str, specs: list[dict[str, object]]) -> list[str]:
    """Return the names of the arms of runs with these settings."""
    rows = [{"run_id": f"r{number}", "role": "arm"} for number in range(len(specs))]
    return list(arm_names(axis, rows, {f"r{number}": spec for number, spec in enumerate(specs)}).values())


def test_runs_are_one_arm_where_only_seed_and_budget_differ() -> None:
    base = {"objective": "rtd", "seed": 0, "budget.steps": 10, "tasks.lr": 1e-4, "optim.lr": 1e-3}
    assert (
        names_of("objective", [base, base | {"seed": 1}, base | {"budget.steps": 20, "tasks.lr": 2.0}]) == ["rtd"] * 3
    )
    apart = names_of("objective", [base, base | {"optim.lr": 2e-3}, base | {"objective": "bert-mlm"}])
    assert apart == ["rtd, optim.lr=0.001", "rtd, optim.lr=0.002", "bert-mlm"]
    assert names_of("objective,optim.lr", [base, base | {"optim.lr": 2e-3}]) == ["rtd, 0.001", "rtd, 0.002"]


def test_scales_are_arms_and_those_of_the_paper_are_named_with_their_objective() -> None:
    """The scale is no part of a run's identity, but it is what such arms are called."""
    rows = [
        {"objective": "rtd", "scale": "base", "encoder.hidden": 768},
        {"objective": "bert", "scale": "bert-large", "encoder.hidden": 1024},
        {"objective": "ideas/mine.py", "scale": "small", "encoder.hidden": 256},
        {"objective": "rtd", "scale": "bert-large", "encoder.hidden": 1024},
    ]
    assert names_of("scale", rows) == [
        "rtd-base", "bert-large, objective=bert", "mine-small", "bert-large, objective=rtd"
    ]  # fmt: skip


def test_options_that_follow_from_the_objective_are_not_in_the_name_of_an_arm() -> None:
    rtd, clm = {"objective": "rtd", "options.weight": 50.0}, {"objective": "all-tokens-mlm", "options.copy": True}
    specs = [one | {"optim.lr": lr} for one in (rtd, clm) for lr in (0.1, 0.2)]
    assert names_of("optim.lr", specs) == [
        "0.1, objective=rtd", "0.2, objective=rtd", "0.1, objective=all-tokens-mlm", "0.2, objective=all-tokens-mlm"
    ]  # fmt: skip
    varied = names_of("optim.lr", [*specs[:3], specs[0] | {"options.weight": 20.0}])
    assert (
        varied[0] == "0.1, objective=rtd, options.weight=50.0"
        and varied[3] == "0.1, objective=rtd, options.weight=20.0"
    )


def test_arms_whose_names_agree_after_forty_characters_are_numbered() -> None:
    long = "x" * 40
    specs = [{"objective": "rtd", "data.corpus": long + end} for end in ("a", "b")]
    name = f"rtd, data.corpus={long}"
    assert names_of("objective", specs) == [name, f"{name} (2)"]


def test_a_run_without_settings_and_the_untrained_are_no_arm_of_the_axis() -> None:
    rows = [{"run_id": "a", "role": "arm"}, {"run_id": "b", "role": "untrained"}, {"run_id": "c", "role": "arm"}]
    settings = {"a": {}, "b": {"objective": "rtd"}, "c": {"objective": "untrained"}}
    named = arm_names("objective", rows, settings)
    assert (named["a"], named["b"]) == ("unknown", "untrained") and named["c"] not in ("untrained", "unknown")


def test_a_trunk_that_grows_with_its_branches_makes_no_arms() -> None:
    start = {"start.take": "all", "objective": "rtd"}
    assert len(set(names_of("objective", [start | {"start.parent.budget.steps": n} for n in (8, 16)]))) == 1
    start |= {"start.take": "encoder"}
    assert len(set(names_of("objective", [start | {"start.parent.optim.lr": n} for n in (8, 16)]))) == 2


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, ""),
        ({"start.take": "generator", "start.freeze_generator": True}, "two-stage"),
        ({"start.take": "generator"}, "started from a masked LM"),
        ({"start.take": "all"}, "branch of a trunk"),
        ({"start.take": "encoder", "start.parent.objective": "rtd", "objective": "rtd"}, "started from an encoder"),
        (
            {"start.take": "encoder", "start.parent.objective": "bert-mlm", "objective": "rtd", "start.share": 0.25},
            "after 25 % bert-mlm",
        ),
    ],
)
def test_a_run_is_named_after_the_one_that_it_starts_from(spec: dict[str, object], text: str) -> None:
    assert begun(spec) == text


def test_kinds_generators_axes_and_code_have_short_names() -> None:
    specs = (
        {"published": {"name": "x"}}, {"budget": {"steps": 0}}, {"budget": {"steps": 1}}, {"budget": {"tokens": 0}},
    )  # fmt: skip
    assert [kind_of(spec) for spec in specs] == ["published", "untrained", "pre-training", "pre-training"]
    assert sizeless("generator.width", {"generator.kind": "unigram"}) == "unigram"
    assert (
        sizeless("generator.width", {"generator.kind": "transformer"})
        == sizeless("objective", {"generator.kind": "unigram"})
        == ""
    )
    assert spoken("generator.width,seed") == "generator width" and spoken("optim.eps") == "optim.eps"
    assert (
        code_of({"workbench": "1.2", "git": {"commit": "0123456789abcdef", "dirty": True}}) == "1.2 0123456789 changed"
    )
    assert code_of({"git": {"dirty": False}}) == ""


def test_arms_are_called_after_the_axis() -> None:
    assert named("objective", "rtd") == "rtd"
    assert named("generator.width", "0.25") == "generator width 0.25"
    assert named("encoder.layers", "2") == "encoder.layers 2"


@pytest.mark.parametrize("arm", ["unigram", "uniform", "unigram, optim.lr=0.1"])
def test_a_generator_without_weights_has_no_size(arm: str) -> None:
    assert named("generator.width", arm) == f"a {arm} generator"
    assert named("generator.kind", "ngram") == "an ngram generator"
    assert named("corruption.rate", arm) == f"mask rate {arm}"
