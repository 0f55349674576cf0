"""CONTRASTS of an experiment file: what they may say, which runs they become, and what the record keeps of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.execution.study import Job, job_of
from workbench.spec import experiment
from workbench.spec.contrasts import Contrast
from workbench.spec.presets import resolve
from workbench.spec.run_spec import flat
from workbench.store.run_store import ExperimentRecord, RunStore

BASE = resolve("nano", {"budget.steps": 4})


def written(folder: Path, contrasts: str, axes: str = '{"objective": ("bert-mlm", "rtd", "electra-15")}') -> Path:
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
    path = written(tmp_path, contrasts)
    with pytest.raises(InputError) as caught:
        experiment.load(str(path))
    assert sentence in str(caught.value) and f"CONTRASTS of experiment file {path}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_plain_values_need_one_axis_that_varies(tmp_path: Path) -> None:
    axes = '{"objective": ("rtd", "bert-mlm"), "tying": ("none", "tokens")}'
    with pytest.raises(InputError, match="may be a value of any of the axes objective, tying; write"):
        experiment.load(str(written(tmp_path, '[("rtd", "bert-mlm")]', axes)))


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
    found = experiment.load(str(written(tmp_path, '{"tying": [("tokens", "none")]}', axes)))
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


def test_arms_that_settings_make_one_run_are_refused() -> None:
    """A generator without weights has no depth, so both arms are one run."""
    contrast = Contrast({"generator.depth": 1.0}, {"generator.depth": 0.5})
    found = experiment.Experiment("x", "?", {"generator.depth": (1.0, 0.5)}, contrasts=(contrast,))
    assert len(job_of(found, BASE, 1, []).declared) == 1
    with pytest.raises(InputError, match=r"x compares .* the same runs under these settings"):
        job_of(found, BASE.changed({"generator.kind": "unigram"}), 1, [])


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
