"""From the options of a command to specs, seeds and hosts, and the sentences where they do not fit."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.data import sources
from workbench.errors import InputError
from workbench.execution import study_options
from workbench.execution.sequential_seeds import Limit
from workbench.execution.study import stay_local
from workbench.execution.study_options import seeds_of
from workbench.options import Computation, EvaluateOptions, Output, RunOptions, SpecOptions, SweepOptions, checked
from workbench.spec.experiment import Experiment
from workbench.spec.parts import Budget
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec, overrides_of


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"seeds": 5, "most_seeds": 8}, "--most-seeds 8 limits --seeds auto, which was not given"),
        ({"most_compute": "flops=1e9"}, "--most-compute flops=1e9 limits --seeds auto"),
        ({"seeds": "auto", "most_compute": "flops=x"}, "--most-compute 'flops=x': 'x' is not a positive number"),
        ({"seeds": "auto", "most_compute": {"flop": 1}}, "--most-compute {'flop': 1} must be one of steps="),
    ],
)
def test_seeds_that_cannot_be_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        seeds_of(SpecOptions(**given))
    assert sentence in str(caught.value)


def test_a_search_has_a_number_of_seeds() -> None:
    with pytest.raises(InputError, match="a search has none; give a number of --seeds"):
        seeds_of(SpecOptions(seeds="auto"), search=True)


def test_options_become_a_number_of_seeds_and_a_limit() -> None:
    assert seeds_of(SpecOptions(seeds=7)) == (7, None) and seeds_of(SpecOptions()) == (1, None)
    assert seeds_of(SpecOptions(seeds="auto")) == (12, Limit(12))
    for compute in ("seconds=3600", {"seconds": 3600}):
        given = SpecOptions(seeds="auto", most_seeds=30, most_compute=compute)
        assert seeds_of(given) == (30, Limit(30, Budget(seconds=3600)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": "mini", "set": {"scale": "nano"}}, "--scale mini and --set scale=nano contradict each other"),
        (
            {"tasks": ("none",), "set": {"tasks.names": "probes"}},
            "--tasks none and --set tasks.names=probes contradict",
        ),
        ({"corpus": ("a", "b"), "set": {"data.corpus": "c"}}, "--corpus a,b and --set data.corpus=c contradict"),
        ({"budget": "steps=3", "set": {"budget.flops": 1e9}}, "--budget steps=3 and --set budget.flops=1000000000.0"),
        ({"set": {"objective": "rtd"}}, "--set objective=... is refused; give --objective NAME instead"),
        ({"tasks": ()}, "--tasks names no task; name some, or give --tasks none"),
        ({"set": {"optim.rl": 1}}, "unknown key 'optim.rl' in --set; did you mean 'optim.lr'?"),
        ({"set": {"batch.size": None}}, "batch.size always has a value; give one, or leave the option out"),
        ({"budget": {"steps": 3, "flops": 3}}, "must be one of steps="),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        study_options.base_spec(SpecOptions(**options))
    assert words in str(caught.value)


def test_the_same_value_given_twice_is_no_contradiction() -> None:
    settings = {"scale": "mini", "tasks.names": "none"}
    twice = study_options.base_spec(SpecOptions(scale="mini", set=settings, tasks=("none",), budget="steps=3"))
    assert twice == study_options.base_spec(SpecOptions(scale="mini", tasks=("none",), budget={"steps": 3}))
    assert (twice.scale, twice.tasks.names, twice.budget.steps) == ("mini", ("none",), 3)


def test_values_of_python_and_texts_of_the_command_line_are_the_same_spec() -> None:
    python = {"optim.lr": 1e-3, "encoder.embedding": None, "tasks.control": True, "data.corpus": ("a.txt", "b.txt"),
              "tasks.scorers": ["default"], "start.parent.schedule.warmup": 0.1, "options.x": 3}  # fmt: skip
    typed = {"optim.lr": "1e-3", "encoder.embedding": "unset", "tasks.control": "true", "data.corpus": "a.txt,b.txt",
             "tasks.scorers": "default", "start.parent.schedule.warmup": "0.1", "options.x": "3"}  # fmt: skip
    (one, two) = (overrides_of(each) for each in (python, typed))
    specs = [resolve("small", {key: each[key] for key in each if key != "options.x"}) for each in (one, two)]
    assert specs[0].name == specs[1].name and specs[0].model_dump(exclude={"start"}) == specs[1].model_dump(
        exclude={"start"}
    )
    assert one["options.x"] == 3


def test_settings_that_are_given_hold_at_every_scale_of_an_experiment() -> None:
    """Also those that are what the first scale has anyway; the base of the command is the first scale."""
    given = {
        "encoder.layers": 1,
        "encoder.hidden": "64",
        "optim.lr": 1e-3,
        "scale": "micro",
        "encoder.family": "electra",
    }
    job, _ = study_options.study_job(RunOptions("paper-figure-1", set=given, tasks=("none",), budget="tokens=1e9"))
    assert job.base.scale == "small" and job.base.data.length == 128
    assert [(spec.scale, spec.data.length) for spec in job.specs[1:4]] == [
        ("base", 512), ("large", 512), ("bert-small", 128)
    ]  # fmt: skip
    for spec in job.specs:
        assert (spec.encoder.layers, spec.encoder.hidden, spec.optim.lr) == (1, 64, 1e-3)
        assert spec.budget.tokens == 1e9


def test_several_scales_cannot_be_searched() -> None:
    options = SweepOptions("paper-figure-1", {"optim.lr": (1e-3, 1e-4)}, tasks=("none",), trials=2)
    with pytest.raises(InputError, match="paper-figure-1 has several scales, and a search is for one; give --scale"):
        study_options.search_jobs(options)


def test_a_rehearsal_is_small_and_says_that_its_scores_mean_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(study_options.REHEARSAL, "1")
    base = study_options.base_spec(SpecOptions(scale="small", tasks=("none",), budget="flops=1e18"))
    assert (base.budget.steps, base.batch.size) == study_options.TRIED and "its scores mean nothing" in caplog.text
    assert study_options.seeds_of(SpecOptions(seeds=7)) == (2, None) and study_options.rehearsed(None, 3) == 3
    monkeypatch.delenv(study_options.REHEARSAL)
    assert study_options.seeds_of(SpecOptions(seeds=7)) == (7, None) and study_options.rehearsed(None, 3) is None


def test_a_task_whose_files_are_absent_is_named_before_a_text_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget in words needs the text, which may take an hour to prepare."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("".join(f"The cat {n} sat on the mat by the door.\n\n" for n in range(3000)))
    given = {"data.corpus": str(tmp_path / "text.txt"), "budget.words": 5000, "tasks.names": "blimp-fast"}
    base = resolve("nano", given | {"tasks.blimp": str(tmp_path / "gone"), "encoder.vocab": 200})
    with pytest.raises(InputError, match=r"^tasks.blimp=.*gone is not a file or folder here"):
        study_options.with_words(base)
    assert not (tmp_path / "cache").exists()
    assert study_options.with_words(base.changed({"tasks.names": "pairs:replace"})).data.words == 30_000


def test_a_report_is_never_written_into_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert study_options.report_folder(Output(runs=tmp_path / "runs", out=tmp_path / "out")) == tmp_path / "out"
    assert study_options.report_folder(Output(runs=tmp_path / "runs")) is None
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    for out, store in ((tmp_path / "runs" / "x", tmp_path / "runs"), (tmp_path / "link", tmp_path / "runs"),
                       (None, tmp_path)):  # fmt: skip
        with pytest.raises(InputError, match=r"lies in the store .*; name a place outside of it"):
            study_options.report_folder(Output(runs=store, out=out))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"nothing can be written in .*file/out"):
        study_options.report_folder(Output(runs=tmp_path / "runs", out=tmp_path / "file" / "out"))


def test_a_host_that_cannot_be_is_refused() -> None:
    slow = Computation(plain=True, compile=True)
    for options, words in ((Computation(device="abacus"), "'abacus' is not one of"), (slow, "contradict each other")):
        with pytest.raises(InputError, match=words):
            study_options.host_of(options)


def test_threads_whose_stacks_the_address_space_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP would end the process, without a word of ours."""
    monkeypatch.setattr("workbench.process.address_space", lambda: 6 << 30)
    assert study_options.host_of(Computation(threads=64)).threads == 64
    with pytest.raises(InputError, match=r"limited to 6\.4 GB \(ulimit -v\), and torch with 4,096 threads needs 37\.6"):
        study_options.host_of(Computation(threads=4096))


def test_a_setting_that_an_axis_overrules_is_named(caplog: pytest.LogCaptureFixture) -> None:
    found = Experiment("x", "?", {"optim.lr": (1e-3, 2e-3), "tying": ("none",)})
    with caplog.at_level(logging.WARNING, "workbench"):
        study_options.warn_of_overruled(found, {"tying": "none", "batch.size": 8})
        assert not caplog.records
        study_options.warn_of_overruled(found, {"optim.lr": 5})
    assert "--set optim.lr=5 has no effect on x, whose runs have optim.lr=0.001, 0.002" in caplog.text


NAMES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without the variables, and leave them as they were."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "größe.txt"
    path.write_text("a b\n", encoding="utf-8")
    return str(path)


def spec(*corpus: str, **keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return resolve("nano", {"data.corpus": ",".join(corpus)} | given)


def offline() -> list[str | None]:
    return [os.environ.get(name) for name in NAMES]


@pytest.mark.parametrize("tasks", ["none", "probes", "linear", "order"])
def test_where_text_and_tasks_are_here_nothing_may_ask_the_hub(text: str, tasks: str) -> None:
    stay_local(spec(text, "docs", tasks__names=tasks), own_process=True)
    assert offline() == ["1", "1"] and sources.offline()


def test_the_variables_of_another_s_process_are_left_alone(text: str) -> None:
    stay_local(spec(text, tasks__names="none"), own_process=False)
    assert offline() == [None, None]


@pytest.mark.parametrize("tasks", ["glue", "CoLA", "linear:CoLA", "blimp", "none,RTE"])
def test_tasks_of_the_hub_may_be_downloaded(text: str, tasks: str, tmp_path: Path) -> None:
    stay_local(spec(text, tasks__names=tasks), own_process=True)
    assert offline() == [None, None]
    stay_local(spec(text, tasks__names=tasks, tasks__glue=str(tmp_path), tasks__blimp=str(tmp_path)), own_process=True)
    assert offline() == ["1", "1"], "they are in folders"


def test_a_data_set_of_the_hub_is_looked_up_without_the_built_in_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in text would be extracted at this point, which takes a while."""
    asked = []
    monkeypatch.setattr(sources, "resolve", lambda data: asked.append(data.corpus))
    stay_local(spec("docs", "someone/texts", tasks__names="none"), own_process=True)
    assert asked == [("someone/texts",)] and offline() == [None, None]


def test_a_tokenizer_of_the_hub_may_be_downloaded_for_text_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(sources, "resolve", lambda data: asked.append(data.corpus))
    stay_local(spec("docs", data__tokenizer="someone/words", tasks__names="none"), own_process=True)
    assert asked == [] and offline() == [None, None]


def test_text_that_is_neither_here_nor_on_the_hub_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="someone/texts"):
        stay_local(spec("docs", "someone/texts", tasks__names="none"), own_process=True)


MUTE = """
import torch
from torch import nn
from workbench.objectives import bert_mlm
from workbench.objectives.bert_mlm import Options

class Objective(nn.Module):
    def __init__(self, encoder, spec, options):
        super().__init__()
        self.inner = bert_mlm.Objective(encoder, spec, options)
        self.encoder = encoder
    def forward(self, batch):
        return self.inner(batch)

cost = bert_mlm.cost
"""


@pytest.mark.parametrize(
    ("more", "tasks", "said"),
    [
        ({"objective": ["bert-mlm"]}, ("pairs:replace", "linear:next"), False),
        ({"objective": ["bert-mlm", "mute.py"]}, ("linear:next",), True),
        ({"objective": ["mute.py"], "tasks": "pairs:replace"}, ("pairs:replace",), False),
        ({"objective": ["mute.py"], "set": {"tasks.names": "pairs:replace"}}, ("pairs:replace",), False),
    ],
)
def test_a_study_measures_pairs_and_one_probe_unless_an_objective_scores_no_sentences(
    more: dict[str, Any], tasks: tuple[str, ...], said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mute.py").write_text(MUTE)
    named = [str(tmp_path / each) if each.endswith(".py") else each for each in more["objective"]]
    options = checked(RunOptions, {**more, "experiment": "ablation", "objective": named})
    with caplog.at_level(logging.WARNING):
        job, _ = study_options.study_job(options)
    assert job.base.tasks.names == tasks and {spec.tasks.names for spec in job.specs} == {tasks}
    assert ("mute has no score(ids, attention) for pairs, so the tasks are linear:next alone" in caplog.text) is said


@pytest.mark.parametrize(("tasks", "names"), [(None, ("probes",)), (("pairs",), ("pairs",))])
def test_models_are_measured_on_probes_by_default(tasks: tuple[str, ...] | None, names: tuple[str, ...]) -> None:
    given = study_options._fine_tuning_options(Path("encoder"), EvaluateOptions("encoder", tasks, "nano"))
    assert study_options.base_spec(given).tasks.names == names
