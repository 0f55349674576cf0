"""What a notebook can do: the same runs, scores and comparisons as the command line and the report."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pandas as pd
import parsed
import pytest
import torch
import written_runs
from drills.small import TINY, write_text

import workbench as wb
from workbench.report.statistics.paired_comparison import own_noises
from workbench.report.statistics.power import gap_by_own_noise
from workbench.spec.run_spec import RunSpec
from workbench.store.atomic import dumps
from workbench.store.run_store import RunStore

LEVELS = dict.fromkeys(made.ARMS, 65.0) | {"untrained": 50.0, "rtd": 70.0, "bert-mlm": 60.0}
SETTINGS = dict(setting.split("=", 1) for setting in TINY)


def test_scores_are_those_of_the_runs(study: wb.Study) -> None:
    scores = study.scores()
    assert len(scores) == 6 * 4 * len(made.PROBES) * 2
    truth = made.noisy(LEVELS)
    row = scores[(scores.arm == "rtd") & (scores.seed == 2) & (scores.task == "order") & (scores.fine_tuning_seed == 1)]
    assert row["value"].item() == truth("rtd", 60, "order", 2, 1)


def test_a_comparison_is_the_one_of_the_report_either_way_round(study: wb.Study, tmp_path: Path) -> None:
    forward, backward = study.compare("rtd", "bert-mlm"), study.compare("bert-mlm", "rtd")
    scores = study.scores().groupby(["arm", "seed"])["value"].mean()
    assert forward.difference == pytest.approx((scores["rtd"] - scores["bert-mlm"]).mean())
    assert forward.verdict == "ahead" and backward.verdict == "behind" and forward.seeds == 4
    assert forward.low is not None and forward.high is not None and forward.low < forward.difference < forward.high
    assert (backward.difference, backward.low, backward.high) == (-forward.difference, -forward.high, -forward.low)
    assert "rtd is ahead of bert-mlm" in str(forward) and "rtd is ahead of bert-mlm" in str(backward)
    assert "over 4 seeds" in str(forward) and "over 1 seed:" in str(replace(forward, seeds=1))
    page = study.report(tmp_path / "out")
    (row,) = [r for r in parsed.sheet(page.parent / "pairs.csv") if {r["a"], r["b"]} == {"rtd", "bert-mlm"}]
    assert float(row["difference"]) == pytest.approx(forward.difference)
    assert float(row["p_adjusted"]) == pytest.approx(forward.p) and row["verdict"] == forward.verdict
    (verdict,) = study.verdicts()
    assert study.answer() == str(verdict) and verdict.best == "rtd" and "Take RTD" in study.answer()
    assert (page.parent / "verdict.json").read_text() == dumps(verdict.to_json()) + "\n"
    (line,) = parsed.sheet(page.parent / "verdict.csv")
    assert line["sentence"] == str(verdict) and line["decides"] == "yes"


def test_what_a_study_does_not_have_is_refused(study: wb.Study) -> None:
    for call, said in (
        (lambda: study.compare("rdt", "bert-mlm"), "called 'rdt'; did you mean 'rtd'"),
        (lambda: study.compare("rtd", "rtd"), "the same arm"),
        (lambda: study.compare("rtd", "bert-mlm", measure="glue"), "has no measure 'glue'"),
        (lambda: study.compare("rtd", "bert-mlm", budget="7 steps"), "has no budget '7 steps'"),
    ):
        with pytest.raises(wb.InputError, match=said):
            call()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"sedes": 3}, "unknown argument 'sedes'; did you mean 'seeds'"),
        ({"objective": "rdt"}, "unknown objective 'rdt'"),
        ({"set": {"optim.rl": 1}}, "optim.rl"),
        ({"budget": "stpes=3"}, "stpes"),
        ({"seeds": "three"}, "seeds"),
        ({"device": "abacus"}, "abacus"),
        ({"out": "/proc/nowhere", "set": SETTINGS}, "nothing can be written in '/proc/nowhere'"),
    ],
)
def test_words_that_cannot_be_used_are_refused_before_anything_is_made(
    words: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(wb.InputError, match=said):
        wb.run("ablation", runs=tmp_path / "runs", **words)
    assert not (tmp_path / "runs").exists()


def test_a_plan_says_what_would_be_run() -> None:
    plan = wb.plan("ablation", objective=["rtd", "bert-mlm"], set=SETTINGS, budget="steps=10", seeds=3)
    assert list(plan["objective"]) == ["rtd", "bert-mlm"] * 3 and sorted(set(plan["seed"])) == [0, 1, 2]
    assert plan["steps"][0] == 10 and plan["steps"][1] > 10  # a step of BERT MLM costs less


def test_a_study_is_carried_out_and_read(carried_out: tuple[wb.Study, dict[str, Any]]) -> None:
    study, words = carried_out
    assert study.outcome.exit_code == 0 and (words["out"] / "index.html").is_file()
    assert len(study.runs()) == 2 * 2 + 2 and set(study.runs()["state"]) == {"done"}
    assert set(study.scores()["task"]) == {"animals"} and repr(study).endswith("6 done>")
    assert set(study.curves()["arm"]) >= {"bert-mlm", "rtd"}
    store = wb.Store(words["runs"])
    assert store.studies() == [study.name] and store.study("ablation").name == study.name
    (run_id,) = store.runs(["objective=rtd", "seed=1"])["run_id"]
    run = store.run(run_id)
    assert json.loads((run.path / "env.json").read_text())["command"][:3] == ["workbench", "wb.run", "ablation"]
    assert isinstance(run.spec, RunSpec) and run.spec.seed == 1 and run.state == "done"
    metrics = run.metrics()
    steps = study.runs().set_index("run_id")["steps"][run_id]  # fewer than BERT MLM's 4, as each costs more
    assert isinstance(metrics, pd.DataFrame) and list(metrics["step"]) == list(range(1, int(steps) + 1))
    mean = study.scores().query("run_id == @run_id")["value"].mean()
    assert run.scores()["value"].mean() == pytest.approx(mean)


def test_the_environment_of_a_notebook_is_left_alone(
    carried_out: tuple[wb.Study, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command tells libraries by variables not to ask the hub; a later cell of a notebook may want to."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    wb.run("ablation", **carried_out[1])
    wb.plan("ablation", objective="bert-mlm", set=SETTINGS)
    assert dict(os.environ) == before


def test_it_goes_on_where_it_stopped(carried_out: tuple[wb.Study, dict[str, Any]]) -> None:
    study, words = carried_out
    before = {path: path.stat().st_mtime_ns for path in words["runs"].glob("*/done.json")}
    assert wb.run("ablation", **words).name == study.name
    assert before == {path: path.stat().st_mtime_ns for path in words["runs"].glob("*/done.json")}


def test_a_sweep_takes_values_of_any_key(tmp_path: Path) -> None:
    study = wb.sweep(
        over={"optim.lr": (1e-3, 2e-3)}, objective="bert-mlm", corpus=str(write_text(tmp_path / "small.txt")),
        budget="steps=2", tasks="none", set=SETTINGS, runs=tmp_path / "runs", out=tmp_path / "report",
    )  # fmt: skip
    assert len(study.runs()) == 2 and study.measures() == []
    with pytest.raises(wb.InputError, match="nothing can be compared"):
        study.compare("optim.lr=0.001", "optim.lr=0.002")


def test_a_search_and_a_tuning_are_carried_out_and_their_trials_read(
    carried_out: tuple[wb.Study, dict[str, Any]], tmp_path: Path
) -> None:
    keys = ("corpus", "tasks", "set", "budget", "threads")
    words = {key: carried_out[1][key] for key in keys} | {"objective": "bert-mlm", "match": "steps"}
    words |= {"runs": tmp_path / "runs", "out": tmp_path / "report"}
    space = {"optim.lr": "1e-4..1e-2:log", "batch.size": (2, 4)}
    found = wb.sweep(over=space, trials=3, sampler="random", **words).trials()
    assert list(found["trial"]) == [0, 1, 2] and set(found["objective"]) == {"bert-mlm"}
    assert found["optim.lr"].between(1e-4, 1e-2).all() and set(found["batch.size"]) <= {"2", "4"}
    assert found["score"].between(0, 100).all() and found["run_ids"].map(len).eq(1).all()

    tuned = wb.sweep("tune", over={"optim.lr": "1e-4..1e-2:log"}, trials=2, tuning_seeds=2, **words)
    assert len(tuned.trials()) == 2 and tuned.trials()["run_ids"].map(len).eq(2).all()
    best = tuned.trials().set_index("optim.lr")["score"].idxmax()  # the earlier one of equal trials
    [run_id] = tuned.runs().query("role == 'arm'")["run_id"]  # the best one, on another seed than the search's
    assert wb.Store(tmp_path / "runs").run(run_id).spec.optim.lr == best and not carried_out[0].trials().size


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"trials": 0}, "trials=0 is not a whole number from 1 to 100,000"),
        ({"trials": 2.5}, "trials=2.5"),
        ({"axis": "tune", "tuning_seeds": -1}, "tuning_seeds=-1"),
        ({"trials": 2}, "needs --over with a space"),
        ({"trials": 2, "over": {"optim.lr": "1e-4..1e-3"}, "sampler": "dice"}, "dice"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(words: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(wb.InputError, match=message):
        wb.sweep(runs=tmp_path / "runs", set=SETTINGS, tasks="pairs", **words)
    assert not (tmp_path / "runs").exists()


def test_a_comparison_of_noisy_arms_needs_a_larger_gap(study: wb.Study) -> None:
    """Each pair needs at least the gap that the report states, and more if its two arms scatter more than all."""
    [board] = [board for board in study._results.boards if board.suite == study.measures()[0]]
    noise, cells = board.noise[board.budget][0], board.at(board.budget)
    own = own_noises({cell.arm: cell.scores for cell in cells})
    gaps = {pair: study.compare(*sorted(pair)).detectable for pair in own}
    assert noise.gap is not None and noise.widest_gap is not None
    for pair, gap in gaps.items():
        assert gap == pytest.approx(max(noise.gap, gap_by_own_noise(own[pair], 4, reach=4)))
    assert max(gap or 0.0 for gap in gaps.values()) == pytest.approx(noise.widest_gap)
    assert noise.gap < noise.widest_gap


def test_a_damaged_run_is_named_when_a_study_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, name = made.study(tmp_path / "runs", made.noisy(LEVELS), ("rtd", "bert-mlm"), seeds=2, tunings=1)
    run = store.runs()[0]
    (run.path / "env.json").write_text("{")
    assert list(wb.Store(store.root).study(name).runs()["state"]).count("damaged") == 1
    assert f"{run.path} is damaged and is left out: env.json cannot be read" in caplog.text


@pytest.fixture
def store(tmp_path: Path) -> wb.Store:
    """A run that is done, and one that was interrupted."""
    inner = RunStore(tmp_path / "runs")
    written_runs.finished(inner, 0)
    written_runs.begun(inner, 1)
    return wb.Store(inner.root)


def test_an_encoder_is_one_of_transformers(carried_out: tuple[wb.Study, dict[str, Any]]) -> None:
    study, words = carried_out
    run = wb.Store(words["runs"]).run(study.runs().query("arm == 'rtd'")["run_id"].iloc[0])
    encoder, tokenizer = run.encoder()
    inputs = tokenizer("the cat sees a dog", return_tensors="pt")
    with torch.no_grad():
        states = encoder(**inputs).last_hidden_state
    assert states.shape == (1, inputs["input_ids"].shape[1], run.spec.encoder.hidden) and states.isfinite().all()
    scores = wb.evaluate(run.path / "encoder", words["tasks"], set=words["set"], device="cpu")
    assert len(scores) == 1 and 0 <= scores["value"].item() <= 100


def test_a_store_is_read_and_never_made(store: wb.Store, tmp_path: Path) -> None:
    assert repr(store) == f"<Store {tmp_path / 'runs'}: 2 runs>" and store.root == tmp_path / "runs"
    with pytest.raises(wb.InputError, match="nowhere"):
        wb.Store(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_runs_are_chosen_and_sorted_by_their_settings(store: wb.Store) -> None:
    everything = store.runs(sort="-seed")
    assert list(everything["seed"]) == [1, 0] and list(everything["state"]) == ["interrupted", "done"]
    assert store.runs("seed<1").equals(store.runs(["seed<1"])), "one condition may be a text"
    assert list(store.runs(["seed<1"])["run_id"]) == [everything["run_id"].iloc[1]]
    with pytest.raises(wb.InputError, match="sed"):
        store.runs(["sed=1"])


def test_a_run_is_found_by_a_part_of_its_name(store: wb.Store) -> None:
    run = store.run("-s1-")
    assert (run.spec.seed, run.state) == (1, "interrupted") and repr(run) == f"<Run {run.run_id}: interrupted>"
    assert list(run.metrics()["step"]) == [1, 2, 3, 4]
    assert run.scores().empty and list(run.scores().columns) == ["task", "suite", "metric", "fine_tuning_seed", "value"]
    with pytest.raises(wb.InputError, match="is interrupted and has no encoder; train it to its end first"):
        run.encoder()
    with pytest.raises(wb.InputError, match="nano"):
        store.run("nano")  # a part of both names


def test_scores_have_a_row_for_each_task_and_seed(store: wb.Store) -> None:
    scores = store.run("-s0-").scores()
    assert sorted(zip(scores["task"], scores["fine_tuning_seed"], strict=True)) == [
        (task, seed) for task in ("next", "order") for seed in (0, 1)
    ]


def test_changed_weights_are_refused(store: wb.Store) -> None:
    run = store.run("-s0-")
    weights = run.path / "encoder" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[::-1])
    with pytest.raises(wb.InputError, match=r"model\.safetensors"):
        run.encoder()


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = {"torch", "pandas", "pydantic", "typer", "transformers"}
    code = f"import sys, workbench; print(sorted({heavy} & set(sys.modules)), dir(workbench))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] ") and "'run'" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        wb.rum  # noqa: B018


def test_a_notebook_shows_progress_answer_and_scores(study: wb.Study, tmp_path: Path) -> None:
    shown = study._repr_html_()
    text = html.unescape(re.sub("<[^>]+>", " ", shown))
    assert study.answer() in text and "24 done" in text
    rows = re.findall(r"<tr><th>([^<]+)</th><td>([\d.]+) ± [\d.]+</td></tr>", shown)
    means = study.scores().groupby(["arm", "seed"])["value"].mean().groupby("arm").mean()
    assert dict(rows).keys() == {*made.ARMS}
    assert all(float(value) == pytest.approx(means[arm], abs=0.051) for arm, value in rows)


def test_the_plot_is_the_main_figure_of_the_report(study: wb.Study, tmp_path: Path) -> None:
    plot = study.plot()
    assert repr(plot).startswith("<Plot: an SVG") and plot._repr_svg_() == plot.svg
    drawing = xml.etree.ElementTree.fromstring(plot.svg)
    words = " ".join(drawing.itertext())
    assert drawing.tag.endswith("svg") and "RTD" in words and "BERT MLM" in words
    assert plot.save(tmp_path / "main.svg").read_text(encoding="utf-8") == plot.svg
    with pytest.raises(wb.InputError, match=r"main.png: a plot is written as SVG; end the name in .svg"):
        plot.save(tmp_path / "main.png")
    with pytest.raises(wb.InputError, match=r"main.svg: there is no folder .*absent"):
        plot.save(tmp_path / "absent" / "main.svg")
    assert study.plot(study.measures()[0]).svg == plot.svg
    with pytest.raises(wb.InputError, match=r"has no measure 'glue'"):
        study.plot("glue")


def test_each_measure_has_an_answer(study: wb.Study) -> None:
    assert {measure: study.answer(measure) for measure in study.measures()} == {
        verdict.suite: str(verdict) for verdict in study.verdicts()
    }
    with pytest.raises(wb.InputError, match="has no measure 'glue'"):
        study.answer("glue")


def test_names_are_text_and_never_markup_in_a_notebook(tmp_path: Path) -> None:
    store, name = made.study(tmp_path / "runs", made.noisy(LEVELS), seeds=2)
    study = wb.Store(store.root).study(name)
    study._frames.record["question"] = "Is <b>bold</b> & better?"
    study.name = "<script>alert(1)</script>"
    assert "<script>" not in study._repr_html_() and "<b>bold</b>" not in study._repr_html_()
    assert "&lt;script&gt;" in study._repr_html_()
