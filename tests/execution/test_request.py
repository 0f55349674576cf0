"""From the options of a command to specs, seeds and hosts, and the sentences where they do not fit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.execution import request
from workbench.execution.auto_seeds import Limit
from workbench.execution.request import seeds_of
from workbench.spec.experiment import Experiment
from workbench.spec.parts import Budget
from workbench.spec.presets import resolve


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("0", None, None), "--seeds '0' is neither a number from 1 to 1000 nor auto"),
        (("many", None, None), "neither a number"),
        (("1001", None, None), "neither a number"),
        (("5", 8, None), "--most-seeds 8 limits --seeds auto, which was not given"),
        ((None, None, "flops=1e9"), "--most-compute flops=1e9 limits --seeds auto"),
        (("auto", 8, "flops=x"), "--most-compute 'flops=x': 'x' is not a positive number"),
        (("auto", None, None, True), "a search has none"),
    ],
)
def test_words_that_cannot_be_are_refused(given: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        seeds_of(*given)
    assert sentence in str(caught.value)


def test_words_become_a_limit() -> None:
    assert seeds_of("7", None, None) == (7, None) and seeds_of(None, None, None) == (1, None)
    assert seeds_of("auto", None, None) == (12, Limit(12))
    assert seeds_of("auto", 30, "seconds=3600") == (30, Limit(30, Budget(seconds=3600)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": "mini", "sets": ["scale=nano"]}, "--scale mini and --set scale=nano contradict each other"),
        ({"tasks": "none", "sets": ["tasks.names=probes"]}, "--tasks none and --set tasks.names=probes contradict"),
        ({"corpus": ["a", "b"], "sets": ["data.corpus=c"]}, "--corpus a,b and --set data.corpus=c contradict"),
        ({"budget": "steps=3", "sets": ["budget.flops=1e9"]}, "--budget steps=3 and --set budget.flops=1e9 contradict"),
        ({"sets": ["objective=rtd"]}, "--set objective=... is refused; give --objective NAME instead"),
        ({"tasks": ","}, "--tasks names no task; name some, or give --tasks none"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], words: str) -> None:
    given = {"scale": None, "sets": None, "corpus": None, "tasks": None, "budget": None} | options
    with pytest.raises(InputError) as caught:
        request.base_spec(**given)
    assert words in str(caught.value)


def test_the_same_value_given_twice_is_no_contradiction() -> None:
    twice = request.base_spec("mini", ["scale=mini", "tasks.names=none"], None, "none", "steps=3")
    assert twice == request.base_spec("mini", None, None, "none", "steps=3")
    assert (twice.scale, twice.tasks.names, twice.budget.steps) == ("mini", ("none",), 3)


def test_settings_that_are_given_hold_at_every_scale_of_an_experiment() -> None:
    """Also those that are what the first scale has anyway; the base of the command is the first scale."""
    given = ("encoder.layers=1", "encoder.hidden=64", "optim.lr=1e-3", "scale=micro", "encoder.family=electra")
    asked = request.Request(settings=given, tasks="none", budget="tokens=1e9")
    job, _ = request.experiment_job(asked, "paper-figure-1", {}, ())
    assert job.base.scale == "small" and job.base.data.length == 128
    assert [(spec.scale, spec.data.length) for spec in job.specs[1:4]] == [
        ("base", 512), ("large", 512), ("bert-small", 128)
    ]  # fmt: skip
    for spec in job.specs:
        assert (spec.encoder.layers, spec.encoder.hidden, spec.optim.lr) == (1, 64, 1e-3)
        assert spec.budget.tokens == 1e9
    request.refuse_epochs(job, None)


def test_several_scales_cannot_be_searched() -> None:
    asked = request.Request(tasks="none")
    with pytest.raises(InputError, match="paper-figure-1 has several scales, and a search is for one; give --scale"):
        request.search_jobs(asked, "paper-figure-1", {"optim.lr": ("1e-3", "1e-4")}, request.Trials(2))


def test_a_rehearsal_is_small_and_says_that_its_scores_mean_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(request.REHEARSAL, "1")
    base = request.base_spec("small", None, None, "none", "flops=1e18")
    assert (base.budget.steps, base.batch.size) == request.TRIED and "its scores mean nothing" in caplog.text
    assert request.seeds_of("7", None, None) == (2, None) and request.rehearsed(None, 3) == 3
    monkeypatch.delenv(request.REHEARSAL)
    assert request.seeds_of("7", None, None) == (7, None) and request.rehearsed(None, 3) is None


def test_a_task_whose_files_are_absent_is_named_before_a_text_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget in words needs the text, which may take an hour to prepare."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("".join(f"The cat {n} sat on the mat by the door.\n\n" for n in range(3000)))
    given = {"data.corpus": str(tmp_path / "text.txt"), "budget.words": 5000, "tasks.names": "blimp-fast"}
    base = resolve("nano", given | {"tasks.blimp": str(tmp_path / "gone"), "encoder.vocab": 200})
    with pytest.raises(InputError, match=r"^tasks.blimp=.*gone is not a file or folder here"):
        request.with_words(base)
    assert not (tmp_path / "cache").exists()
    assert request.with_words(base.changed({"tasks.names": "pairs:replace"})).data.words == 30_000


def test_a_report_is_never_written_into_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert request.report_folder(tmp_path / "out", tmp_path / "runs") == tmp_path / "out"
    assert request.report_folder(None, tmp_path / "runs") is None
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    for out, store in ((tmp_path / "runs" / "x", tmp_path / "runs"), (tmp_path / "link", tmp_path / "runs"),
                       (None, tmp_path)):  # fmt: skip
        with pytest.raises(InputError, match=r"lies in the store .*; name a place outside of it"):
            request.report_folder(out, store)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"nothing can be written in .*file/out"):
        request.report_folder(tmp_path / "file" / "out", tmp_path / "runs")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "fp16"}, "--precision 'fp16' is not one of auto, fp32 and bf16"),
        ({"track": "mlflow"}, "--track 'mlflow' is unknown; the only tracker is wandb"),
        ({"devices": 0}, "devices=0 is not a whole number from 1 to 1024"),
        ({"device": "abacus"}, "'abacus' is not one of"),
    ],
)
def test_a_host_that_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        request.host_of(**options)


def test_threads_whose_stacks_the_address_space_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP would end the process, without a word of ours."""
    monkeypatch.setattr("workbench.memory.address_space", lambda: 6 << 30)
    assert request.host_of(threads=64).threads == 64
    with pytest.raises(InputError, match=r"limited to 6\.4 GB \(ulimit -v\), and torch with 4,096 threads needs 37\.6"):
        request.host_of(threads=4096)


def test_a_setting_that_an_axis_overrules_is_named(caplog: pytest.LogCaptureFixture) -> None:
    found = Experiment("x", "?", {"optim.lr": (1e-3, 2e-3), "tying": ("none",)})
    with caplog.at_level(logging.WARNING, "workbench"):
        request.warn_of_overruled(found, ["tying=none", "batch.size=8"])
        assert not caplog.records
        request.warn_of_overruled(found, ["optim.lr=5"])
    assert "--set optim.lr=5 has no effect on x, whose runs have optim.lr=0.001, 0.002" in caplog.text
