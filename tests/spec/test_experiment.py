"""Experiment files: what they may hold, and the runs that they become."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.execution.study import Job, job_of
from workbench.spec import experiment, presets
from workbench.spec.experiment import Experiment, changed, check_key
from workbench.spec.parts import Budget
from workbench.spec.run_spec import RunSpec, value_at

NANO = presets.resolve("nano", {"budget.steps": 100})


def plan_job(name: str, base: RunSpec, seeds: int, words: list[str]) -> Job:
    return job_of(experiment.load(name), base, seeds, words)


def written(folder: Path, text: str) -> Experiment:
    path = folder / "my_question.py"
    path.write_text(f'QUESTION = "Which?"\n{text}\n')
    return experiment.load(str(path))


def test_a_budget_on_an_axis_or_of_a_parent_keeps_the_convention() -> None:
    base = presets.resolve("nano", {"budget.convention": "matmul"})
    assert changed(base, {"budget.flops": 1e12}).budget == Budget(flops=1e12, convention="matmul")
    child = base.changed({"start.parent.schedule.kind": "constant", "start.parent.budget.tokens": 1e6})
    parent = child.parent()
    assert parent is not None and parent.budget == Budget(tokens=1e6, convention="matmul")


@pytest.mark.parametrize("name", [name for name, _, _ in experiment.listing()])
@pytest.mark.parametrize("scale", ["nano", "small", "base", "large"])
def test_every_experiment_can_be_built_at_every_scale(name: str, scale: str) -> None:
    job = plan_job(name, presets.resolve(scale, {"budget.steps": 100_000}), 1, [])
    assert len(job.specs) > 1
    assert len({spec.name for spec in job.specs}) == len(job.specs)


def test_variants_come_after_the_grid_with_what_the_file_holds_fixed(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        'AXES = {"generator.width": (0.25, 0.5), "objective": ("electra-15",), "tying": ("tokens",)}\n'
        'VARIANTS = [{"generator.depth": 0.5}, {"generator.kind": "unigram", "tying": "none"}]',
    )
    job = job_of(found, NANO, 2, [])
    rows = [(s.seed, s.objective, s.tying, s.generator.kind, s.generator.width, s.generator.depth) for s in job.specs]
    first = [
        (0, "electra-15", "tokens", "transformer", 0.25, 1.0),
        (0, "electra-15", "tokens", "transformer", 0.5, 1.0),
        (0, "electra-15", "tokens", "transformer", NANO.generator.width, 0.5),
        (0, "electra-15", "none", "unigram", NANO.generator.width, 1.0),
    ]
    assert rows == [*first, *((1, *row[1:]) for row in first)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('AXES = {"optim.rl": (1, 2)}', "did you mean 'optim.lr'"),
        ('AXES = {}\nVARIANTS = [{"optim.rl": 1}]', "did you mean 'optim.lr'"),
        ('AXES = {}\nVARIANTS = {"optim.lr": 1}', "must be a list of dicts"),
        ('AXES = {}\nMATCH = "watts"', "MATCH='watts'"),
        ('AXES = {"data.corpus": ("a", "b\\udc80")}', "AXES contains half of a surrogate pair"),
        ('AXES = {}\nVARIANTS = [{"data.corpus": "\\ud800"}]', "VARIANTS contains half of a surrogate pair"),
        ('AXES = {"seed": (1, 2)}\nCONTRASTS = [(1, 2, "\\ud83d")]', "CONTRASTS contains half of a surrogate pair"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        written(tmp_path, text)


@pytest.mark.parametrize(
    "line",
    [
        "AXES = {10**5000: (1, 2)}",
        'AXES = {"optim.lr": (10**5000, 1)}',
        "MATCH = 10**5000",
        'VARIANTS = [{"optim.lr": 10**5000}]',
        "CONTRASTS = [(10**5000, 1)]",
        "class Odd:\n    def __repr__(self): raise SystemExit(0)\nMATCH = Odd()",
    ],
)
def test_a_value_that_no_message_can_show_is_blamed_on_the_file(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"experiment file \S+\.py(, line \d+)?: (ValueError: Exceeds|SystemExit: 0)"):
        written(tmp_path, f"AXES = {{}}\n{line}")


@pytest.mark.parametrize(
    ("question", "plain"),
    [
        ("At equal compute, how large?", "How large?"),
        ("Which is best at equal cost?", "Which is best?"),
        ("Which, at an equal number of tokens, is best?", "Which is best?"),
        ("Are they equal?", "Are they equal?"),
    ],
)
def test_a_question_without_its_equal_compute(question: str, plain: str) -> None:
    assert (experiment.question_text(question, False), experiment.question_text(question, True)) == (plain, question)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 9))
def test_runs_are_all_combinations_once_for_each_seed(sizes: list[int], seeds: int, first: int) -> None:
    keys = ("optim.lr", "batch.size", "data.length")
    axes = {key: tuple(range(8, 8 + size)) for key, size in zip(keys, sizes, strict=False)}
    found = list(Experiment("x", "?", axes).runs(NANO.replace(seed=first), seeds))
    values = {(spec.seed, *(value_at(spec, key) for key in axes)) for spec in found}
    assert len(found) == len(values) == seeds * math.prod(sizes)
    assert [spec.seed for spec in found] == sorted(spec.seed for spec in found)  # whole comparisons come early
    assert found[0].seed == first


def test_a_record_is_of_the_settings_that_all_runs_share() -> None:
    """Budgets, seeds and what an axis varies leave it as it is; any other setting makes another record."""
    found = Experiment("size", "?", {"generator.width": (0.25, 0.5)})
    name = found.record_name(NANO, ["a"])
    assert name.startswith("size-nano-")
    for same in ({"budget.steps": 7}, {"seed": 3}, {"generator.width": 0.125}, {"objective": "bert-mlm"}):
        assert found.record_name(NANO.changed(same), ["a"]) == name, same
    for other in ({"optim.lr": 1e-5}, {"tasks.seeds": 9}, {"data.length": 16}):
        assert found.record_name(NANO.changed(other), ["a"]) != name, other
    assert replace(found, search="12 trials").record_name(NANO, ["a"]) != name
    assert found.record_name(NANO, ["a", "b"]) == found.record_name(NANO, ["b", "a"]) != name


def test_a_record_does_not_depend_on_where_text_and_tasks_lie() -> None:
    found = Experiment("size", "?", {"generator.width": (0.25, 0.5)})
    known = NANO.changed({"data.fingerprint": "ab"})
    places = {"data.corpus": "/b/text.txt.xz", "tasks.names": "/b/my.csv", "tasks.glue": "/b/glue", "tasks.squad": "/b"}
    assert found.record_name(known.changed(places), ["my"]) == found.record_name(known, ["my"])


@pytest.mark.parametrize("key", ["data.corpus", "data.tokenizer", "data.column", "data.held_out", "data.lowercase"])
def test_what_decides_the_text_cannot_be_an_axis(key: str) -> None:
    """All runs of a command read one prepared text, so two values would be one run under two names."""
    with pytest.raises(InputError, match=f"--over: {key} cannot be an axis, since all runs"):
        check_key(key, "--over")
    check_key("data.length", "--over")


def test_more_runs_than_can_be_carried_out_are_refused_before_any_is_made() -> None:
    found = Experiment("wide", "?", {"optim.lr": tuple(range(1, 1001)), "batch.size": tuple(range(1, 101))})
    found.check_size(1)
    with pytest.raises(InputError, match="wide with 2 seeds is 200,000 runs; give fewer values, up to 100,000"):
        next(found.runs(NANO, 2))


@pytest.mark.parametrize("share", [0, -0.5, 1.01])
def test_a_share_of_a_budget_is_a_part_of_it(share: float) -> None:
    assert changed(NANO, {"budget.share": 0.25}).budget == Budget(steps=25, convention=NANO.budget.convention)
    with pytest.raises(InputError, match=r"no run with budget\.share=.* can be made: .* must be above 0 and at most 1"):
        changed(NANO, {"budget.share": share})
