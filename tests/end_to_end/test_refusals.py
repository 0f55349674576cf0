"""Bad input: one sentence on stderr that names the thing, exit code 2, and nothing left on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import SETS, Command

CASES: dict[str, tuple[list[str], str]] = {
    "objective": (["run", "ablation", "--objective", "rtdd"], "did you mean 'rtd'"),
    "experiment": (["run", "ablatoin"], "did you mean 'ablation'"),
    "scale": (["run", "ablation", "--scale", "smal"], "did you mean 'small'"),
    "task": (["run", "ablation", "--tasks", "CoLAA"], "did you mean 'CoLA'"),
    "key": (["run", "ablation", "--set", "encoder.hiden=3"], "did you mean 'encoder.hidden'"),
    "value": (["run", "ablation", "--set", "optim.lr=fast"], "optim.lr"),
    "option": (["run", "ablation", "--set", "options.copy_los=1"], "options.copy_loss"),
    "budget": (["run", "ablation", "--budget", "tokens=lots"], "lots"),
    "small budget": (["run", "ablation", "--budget", "tokens=10"], "less than one step"),
    "huge budget": (["run", "ablation", "--budget", "steps=1e300"], "steps"),
    "huge vocabulary": (["run", "ablation", "--set", "encoder.vocab=1e12"], "encoder.vocab"),
    "tiny vocabulary": (["run", "ablation", "--set", "encoder.vocab=5", "--dry-run"], "encoder.vocab"),
    "no corpus": (["run", "ablation", "--set", "data.corpus=", "--dry-run"], "data.corpus"),
    "many seeds": (["run", "ablation", "--seeds", "1000000000"], "--seeds"),
    "many fine-tunings": (["run", "ablation", "--set", "tasks.seeds=1000000000"], "tasks.seeds"),
    "many threads": (["run", "ablation", "--threads", "1000000000"], "--threads"),
    "many runs": (
        [
            "sweep",
            "--over",
            "optim.lr=" + ",".join(f"{n}e-9" for n in range(1, 1000)),
            "--over",
            "seed=" + ",".join(map(str, range(200))),
        ],
        "199,800 runs",
    ),
    "report to a file": (["run", "ablation", "--out", "/dev/null/x"], "/dev/null/x"),
    "long folder": (["evaluate", "x" * 3000], "File name too long"),
    "long name": (["run", "a" * 5000], "unknown experiment"),
    "two budgets": (["run", "ablation", "--budget", "tokens=1e6", "--set", "budget.steps=5"], "contradict"),
    "two scales": (["run", "ablation", "--scale", "nano", "--set", "scale=small"], "contradict"),
    "two values": (["run", "ablation", "--set", "seed=1", "--set", "seed=2"], "twice"),
    "two tasks": (["run", "ablation", "--tasks", "CoLA", "--set", "tasks.names=RTE"], "contradict"),
    "corpus": (["run", "ablation", "--corpus", "/no/such/file.txt", "--tasks", "none"], "/no/such/file.txt"),
    "tying": (["run", "ablation", "--set", "tying=all"], "generator.width"),
    "device": (["run", "ablation", "--device", "cuda"], "CUDA"),
    "precision": (["run", "ablation", "--precision", "fp8"], "fp8"),
    "warm-up": (["run", "ablation", "--budget", "steps=10", "--set", "schedule.warmup=20"], "schedule.warmup"),
    "glue": (["run", "ablation", "--tasks", "CoLA", "--set", "tasks.glue=/no/such/folder"], "/no/such/folder"),
    "list": (["list", "objektives"], "objectives"),
    "command": (["rnu"], "rnu"),
    "flag": (["run", "ablation", "--seed", "3"], "--seed"),
    "report": (["report", "ablation", "--runs", "no-runs-here"], "no-runs-here"),
    "evaluate": (["evaluate", "no-encoder-here"], "no-encoder-here"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_nothing_written(case: str, workbench: Command, tmp_path: Path) -> None:
    words, named = CASES[case]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert named in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if path.name != "store.json" and path.is_file()] == []


def test_a_text_that_is_not_utf8_is_named_with_its_offset(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good text here\n\nmore \xff text\n" * 50)
    done = workbench("run", "ablation", "--corpus", "bad.txt", "--tasks", "none", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and "bad.txt" in done.stderr and "21" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("workbench: ")


def test_a_corpus_too_small_for_a_batch(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("only a few words\n")
    done = workbench("run", "ablation", "--corpus", "few.txt", "--tasks", "none", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and "too small" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_is_a_disk_error(workbench: Command, text: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    done = workbench("run", "ablation", "--corpus", text, "--runs", tmp_path / "closed/runs", *SETS, cwd=tmp_path)
    assert done.returncode == 74


def test_an_objective_file_with_a_mistake(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "idea.py").write_text("def cost(spec):\n    return 0\n")
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and "Options" in done.stderr and "Objective" in done.stderr
    (tmp_path / "idea.py").write_text("raise SystemExit(3)\n")
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and "idea.py: SystemExit" in done.stderr
    (tmp_path / "idea.py").write_text("def cost(spec)\n")
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and "idea.py, line 1" in done.stderr and "Traceback" not in done.stderr


def test_a_setting_that_an_axis_overrules_is_said(workbench: Command, tmp_path: Path) -> None:
    words = ["sweep", "weight-tying", "--set", "generator.width=0.5", "--tasks", "none", "--dry-run"]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0 and "--set generator.width=0.5 has no effect on weight-tying" in done.stderr
    done = workbench(*words, "--over", "generator.width=0.5", "--set", "tying=tokens", cwd=tmp_path)
    assert "generator.width=0.5 has no effect" not in done.stderr and "--set tying=tokens has no effect" in done.stderr


@pytest.mark.parametrize("out", [".", "/dev/full", "there.txt/x.csv", "/proc/x", "y" * 300 + "/x.csv"])
def test_nothing_is_exported_to_what_is_no_file(out: str, finished: Path, workbench: Command) -> None:
    (finished / "there.txt").write_text("mine")
    done = workbench("export", "ablation", "--out", out, cwd=finished)
    assert done.returncode == 2 and "out" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert (finished / "there.txt").read_text() == "mine"


@pytest.fixture(scope="module")
def finished(workbench: Command, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", "none", "--budget", "steps=2", *SETS]
    assert workbench(*words, cwd=folder).returncode == 0
    return folder
