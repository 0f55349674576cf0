"""Experiments of files and of --over: what they may hold, their runs and contrasts, and errors of a file."""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import DamagedRun, Diverged, InputError, Interrupted, blaming
from workbench.execution.study import Job, job_of
from workbench.spec import experiment, presets
from workbench.spec.experiment import Contrast, Experiment, Range, changed, check_key, grid, space_of, unit_of
from workbench.spec.parts import Budget
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec, flat, split_settings, value_at
from workbench.store.run_store import ExperimentRecord, RunStore

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


def test_a_cell_that_cannot_be_is_named() -> None:
    found = grid(None, space_of({"tying": "none,all", "generator.width": "0.5"}), None, NANO)
    with pytest.raises(InputError, match=r"tying=all, generator\.width=0\.5"):
        job_of(found, NANO, 1, [])


def test_values_and_ranges() -> None:
    assert space_of({"tying": "none, all", "optim.lr": "1e-4..1e-3:log", "batch.size": "16..64"}) == {
        "tying": ("none", "all"),
        "optim.lr": Range(1e-4, 1e-3, log=True, whole=False),
        "batch.size": Range(16, 64, log=False, whole=True),
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["optim.lr"], "is not of the form"),
        (["optim.lr="], "is not of the form"),
        (["optim.rl=1,2"], "did you mean 'optim.lr'"),
        (["optim.lr=1,1"], "different values"),
        (["optim.lr=1,,2"], "different values"),
        (["optim.lr=1..x"], "a range is two numbers"),
        (["optim.lr=2..1"], "must be below"),
        (["optim.lr=0..1:log"], "must begin above 0"),
        (["optim.lr=1..1e400"], "too wide to be searched"),
        (["optim.lr=-1e400..1"], "too wide to be searched"),
        (["optim.lr=-1e308..1e308"], "too wide to be searched"),
        (["optim.lr=1,2", "optim.lr=3"], "given twice"),
    ],
)
def test_words_that_say_nothing_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        space_of(split_settings(words, "--over"))


def test_an_axis_takes_other_values_or_joins_others() -> None:
    narrower = grid("generator-size", space_of({"generator.width": "0.5,1"}), None, NANO)
    assert (narrower.name, narrower.axis) == ("generator-size", "generator.width")
    joined = grid("generator-size", space_of({"optim.lr": "1e-3,2e-3"}), None, NANO)
    assert (joined.name, joined.axis) == ("generator-size-over-optim-lr", "generator.width,optim.lr")
    runs: list[RunSpec] = list(joined.runs(NANO, 1))
    assert {(value_at(run, "generator.width"), value_at(run, "optim.lr")) for run in runs} >= {(0.125, 2e-3)}
    with pytest.raises(InputError, match=r"such as generator-size .*, or --over"):
        grid(None, {}, None, NANO)
    with pytest.raises(InputError, match="contradict"):
        grid(None, space_of({"objective": "rtd,bert-mlm"}), None, NANO, ["rtd"])


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e6), st.booleans())
def test_a_range_is_printed_as_it_is_typed(low: float, factor: float, log: bool) -> None:
    [written] = space_of({"optim.lr": f"{low:g}..{low * factor:g}{':log' if log else ''}"}).values()
    assert isinstance(written, Range) and (written.low, written.log) == (float(f"{low:g}"), log)
    assert space_of({"optim.lr": f"{written}"}) == {"optim.lr": written}


@pytest.mark.parametrize(
    ("match", "file", "budget", "unit"),
    [
        (None, None, {}, "flops"),
        (None, None, {"budget.seconds": 60}, "seconds"),
        (None, "tokens", {"budget.seconds": 60}, "tokens"),
        ("steps", "tokens", {}, "steps"),
        ("none", "tokens", {}, None),
    ],
)
def test_the_unit_is_the_commands_then_the_files_then_the_budgets(
    match: str | None, file: str | None, budget: dict[str, float], unit: str | None
) -> None:
    base = presets.resolve("nano", budget)
    assert unit_of(match, Experiment("x", "?", {}, match=file), base) == unit


def test_a_question_of_ones_own_axes_names_them_and_what_is_equal() -> None:
    several = grid(None, space_of({"tying": "none,all", "optim.lr": "1,2", "batch.size": "1,2"}), "tokens", NANO)
    assert several.question == "At an equal number of tokens, which tying, optim.lr and batch.size does best?"
    assert grid(None, space_of({"tying": "none,all"}), "none", NANO).question == "Which tying does best?"
    with pytest.raises(InputError, match="--match 'watts' is not one of steps, tokens, words, flops, seconds, none"):
        grid(None, space_of({"tying": "none,all"}), "watts", NANO)


def test_a_name_of_many_axes_is_cut_to_eighty_characters() -> None:
    keys = ("optim.lr", "optim.beta1", "optim.beta2", "optim.weight_decay", "encoder.dropout", "encoder.init")
    name = grid(None, space_of(dict.fromkeys(keys, "0.1,0.2")), "tokens", NANO).name
    assert len(name) == 80 and name.startswith("over-optim-lr-optim-beta1-")


def loaded(path: Path, text: str) -> Callable[[], Any]:
    """Return the function `f` of a file of a person's own."""
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    found: Callable[[], Any] = names["f"]
    return found


def said(act: Callable[[], Any], *words: str) -> str:
    with pytest.raises(InputError) as caught, blaming(*words):
        act()
    assert type(caught.value) is InputError and caught.value.__cause__ is not None
    return str(caught.value)


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_the_last_line_of_the_file_itself_is_named(tmp_path: Path) -> None:
    """Neither that of the caller, nor that of a library which the file called, nor an outer line of the file."""
    path = tmp_path / "größe.py"
    f = loaded(path, "import json\n\ndef g():\n    return json.loads('no')\n\ndef f():\n    return g()\n")
    text = said(f, str(path), "cost(spec) raised", "objective")
    assert text.startswith(f"objective {path}, line 4: cost(spec) raised JSONDecodeError: ")
    assert "\n" not in text


def test_a_relative_path_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    f = loaded(tmp_path / "mine.py", "\n\ndef f():\n    raise LookupError('x')\n")
    assert said(f, "mine.py") == "mine.py, line 4: LookupError: x"


def test_the_line_of_a_syntax_error_is_the_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert f"{path}, line 3: SyntaxError" in said(lambda: compile("a = 1\n\nb = = 2\n", str(path), "exec"), str(path))


def test_an_error_from_elsewhere_has_no_line() -> None:
    assert said(raising(ValueError("no")), "nowhere.py") == "nowhere.py: ValueError: no"


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), BaseException("x"), Diverged("nan"), OSError(2, "gone")]
)
def test_whatever_else_is_raised_ends_in_a_sentence(error: BaseException) -> None:
    assert type(error).__name__ in said(raising(error), "a.py", "f() raised")


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(), Interrupted(15), MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("doing", ["", "cost(spec) raised"])
def test_stops_and_lack_of_memory_pass_as_they_are(error: BaseException, doing: str) -> None:
    with pytest.raises(type(error)) as caught, blaming("a.py", doing):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("error", [InputError("give --budget"), DamagedRun("move that folder")])
def test_a_refusal_passes_while_the_code_does_something_and_is_named_while_it_loads(error: InputError) -> None:
    with pytest.raises(type(error)) as caught, blaming("a.py", "cost(spec) raised"):
        raise error
    assert caught.value is error
    assert str(error) in said(raising(error), "a.py")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


def test_a_message_of_many_lines_or_none_is_one_line() -> None:
    text = said(raising(ValueError("first\n\tsecond " + "x" * 5000)), "a.py")
    assert "first second" in text and "\n" not in text and len(text) < 300
    assert said(raising(Unprintable()), "a.py") == "a.py: Unprintable"


def test_what_raises_nothing_is_left_alone() -> None:
    with blaming("a.py", "f() raised", "objective"):
        found = 3
    assert found == 3


BASE = resolve("nano", {"budget.steps": 4})


def contrasted(folder: Path, contrasts: str, axes: str = '{"objective": ("bert-mlm", "rtd", "electra-15")}') -> Path:
    path = folder / "mine.py"
    variants = '[{"objective": "rtd", "generator.kind": "unigram"}]'
    path.write_text(f'QUESTION = "Which?"\nAXES = {axes}\nVARIANTS = {variants}\nCONTRASTS = {contrasts}\n')
    return path


def compared(job: Job) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each declared pair of runs as what tells the two apart."""
    specs = {spec.name: spec for spec in job.specs}
    found = []
    for declared in job.declared:
        for ids in declared.runs:
            one, two = (flat(specs[run_id].model_dump()) for run_id in ids)
            keys = [key for key in one if one[key] != two[key]]
            found.append(({key: one[key] for key in keys}, {key: two[key] for key in keys}))
    return found


@pytest.mark.parametrize(
    ("contrasts", "sentence"),
    [
        ('[("rtd", "bert-mml")]', "names bert-mml, which is not an arm of it; did you mean 'bert-mlm'"),
        ('[("rtd", "rtd")]', "compares rtd with itself"),
        ('[("rtd", "bert-mlm"), ("bert-mlm", "rtd")]', "declares bert-mlm against rtd twice, the first time as rtd"),
        ('[("rtd",)]', "is not a pair of arms"),
        ('["rtd", "bert-mlm"]', "is not a pair of arms"),
        ('[("rtd", "bert-mlm", 3)]', "the label of ('rtd', 'bert-mlm') is 3, which is not text"),
        ('"rtd"', "must be a list of pairs of arms"),
        ("7", "must be a list of pairs of arms"),
        ('{"tying": [("all", "none")]}', "'tying' is not a key of AXES"),
        ('[({"generator.kind": "uniform"}, "rtd")]', "names generator.kind=uniform, which is not an arm of it"),
    ],
)
def test_a_contrast_that_cannot_be_is_refused_when_the_file_is_read(
    tmp_path: Path, contrasts: str, sentence: str
) -> None:
    path = contrasted(tmp_path, contrasts)
    with pytest.raises(InputError) as caught:
        experiment.load(str(path))
    assert sentence in str(caught.value) and f"CONTRASTS of experiment file {path}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_plain_values_need_one_axis_that_varies(tmp_path: Path) -> None:
    axes = '{"objective": ("rtd", "bert-mlm"), "tying": ("none", "tokens")}'
    with pytest.raises(InputError, match="may be a value of any of the axes objective, tying; write"):
        experiment.load(str(contrasted(tmp_path, '[("rtd", "bert-mlm")]', axes)))


def test_the_paper_s_contrasts_become_pairs_of_runs_of_one_seed() -> None:
    job = job_of(experiment.load("ablation"), BASE, 3, [])
    objectives = [(d.contrast.a["objective"], d.contrast.b["objective"]) for d in job.declared]
    assert objectives == [
        ("rtd", "bert-mlm"), ("electra-15", "bert-mlm"), ("replace-mlm", "bert-mlm"), ("all-tokens-mlm", "bert-mlm"),
        ("rtd", "all-tokens-mlm"), ("rtd", "electra-15"),
    ]  # fmt: skip
    seeds = {spec.name: (spec.objective, spec.seed) for spec in job.specs}
    for declared, (a, b) in zip(job.declared, objectives, strict=True):
        assert [(seeds[x], seeds[y]) for x, y in declared.runs] == [((a, s), (b, s)) for s in range(3)]


@pytest.mark.parametrize("name", ["generator-size", "weight-tying"])
def test_contrasts_of_an_axis_differ_in_that_axis_alone(name: str) -> None:
    job = job_of(experiment.load(name), BASE, 1, [])
    pairs = compared(job)
    assert len(pairs) == len(job.declared) == 4
    axis = {"generator-size": {"generator.width", "generator.kind"}, "weight-tying": {"tying"}}[name]
    assert all(set(a) <= axis for a, _ in pairs)
    assert ({"tying": "embeddings"}, {"tying": "none"}) in pairs or name != "weight-tying"


def test_a_further_axis_makes_a_contrast_of_each_of_its_values(tmp_path: Path) -> None:
    axes = '{"objective": ("rtd", "electra-15"), "tying": ("none", "tokens")}'
    found = experiment.load(str(contrasted(tmp_path, '{"tying": [("tokens", "none")]}', axes)))
    job = job_of(found, BASE, 1, [])
    assert [dict(d.contrast.a) for d in job.declared] == [
        {"objective": "rtd", "tying": "tokens"},
        {"objective": "electra-15", "tying": "tokens"},
    ]
    assert compared(job) == [({"tying": "tokens"}, {"tying": "none"})] * 2


def test_contrasts_without_both_arms_are_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "workbench"):
        job = job_of(experiment.load("ablation"), BASE, 1, ["rtd", "bert-mlm"])
        assert not caplog.records, "a command that is refused later says nothing but why"
        job.warn()
    assert [str(d.contrast) for d in job.declared] == ["rtd against bert-mlm"]
    [said] = [record.getMessage() for record in caplog.records]
    assert "5 declared contrasts are not compared" in said and "rtd against electra-15" in said


def test_an_objective_that_the_file_does_not_know_is_compared_with_every_other(tmp_path: Path) -> None:
    mine = tmp_path / "my_idea.py"
    mine.write_text((Path("workbench") / "objectives" / "bert_mlm.py").read_text())
    job = job_of(experiment.load("ablation"), BASE, 1, ["rtd", "bert-mlm", str(mine)])
    assert [str(d.contrast) for d in job.declared] == [
        "rtd against bert-mlm", "my-idea against rtd", "my-idea against bert-mlm",
    ]  # fmt: skip


def test_arms_that_settings_make_one_run_are_not_compared() -> None:
    """Half of one layer is one layer."""
    deep, half = {"generator.width": 1.0}, {"generator.width": 1.0, "generator.depth": 0.5}
    axes = {"generator.width": (1.0, 0.5)}
    found = experiment.Experiment("x", "?", axes, (half,), contrasts=(Contrast(deep, half),))
    assert len(job_of(found, BASE.changed({"encoder.layers": 2}), 1, []).declared) == 1
    with pytest.raises(InputError, match=r"x compares .* the same runs under these settings"):
        job_of(found, BASE.changed({"encoder.layers": 1}), 1, [])


def test_a_record_keeps_each_contrast_as_it_was_declared_first(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    row = {"label": "x", "a": {"objective": "rtd"}, "b": {"objective": "bert-mlm"}, "declared": "2026-01-01", "seen": 0}
    first = row | {"runs_a": ["a0"], "runs_b": ["b0"]}
    later = row | {"runs_a": ["a0", "a1"], "runs_b": ["b0", "b1"], "declared": "2026-02-02", "seen": 1}
    other = later | {"a": {"objective": "electra-15"}, "runs_a": ["e0"]}
    for contrasts in ([first], [later, other], []):
        grown = store.extend_experiment(ExperimentRecord("x-1", runs=["a0"], contrasts=contrasts))
    assert grown == store.experiment("x-1")
    assert grown.contrasts == [row | {"runs_a": ["a0", "a1"], "runs_b": ["b0", "b1"]}, other]
