"""Sweeps with several workers: every cell once, whoever dies, fails or is typed twice."""

from __future__ import annotations

import collections
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import SETS, Command, environment

# BERT MLM, and a line in a log whenever training begins. `options.cell` makes cells that differ in name only.
COUNTED = '''"""Counted."""
import os
from workbench.objectives import bert_mlm
from workbench.objectives.bert_mlm import cost

class Options(bert_mlm.Options):
    cell: int = 0

class Objective(bert_mlm.Objective):
    def __init__(self, encoder, spec, options):
        super().__init__(encoder, spec, bert_mlm.Options())
        self.cell, self.begun = options.cell, False
        if options.cell == 13 and next(encoder.parameters()).device.type != "meta":
            raise RuntimeError("an unlucky cell")

    def forward(self, batch):
        if not self.begun and len(batch.ids) > 2:  # the check of losses before training computes two rows
            self.begun = True
            with open(os.environ["COUNT"], "a") as log:
                log.write(f"{self.cell} {os.getpid()}\\n")
        return super().forward(batch)
'''


def cells(folder: Path, text: Path, first: int, last: int, workers: int, steps: int = 2) -> list[str]:
    """The words of a sweep over cells that are cheap and real."""
    (folder / "counted.py").write_text(COUNTED)
    words = ["sweep", "--over", f"options.cell={','.join(map(str, range(first, last + 1)))}", "--match", "steps"]
    words += ["--objective", "./counted.py", "--corpus", text, "--tasks", "none", "--budget", f"steps={steps}"]
    words += ["--workers", workers, "--threads", 1, *SETS]
    return [str(word) for word in words]


def begun(folder: Path) -> collections.Counter[int]:
    """How often each cell began to train."""
    return collections.Counter(int(line.split()[0]) for line in (folder / "count").read_text().splitlines())


def test_every_cell_is_trained_once_and_a_failed_one_is_named(text: Path, workbench: Command, tmp_path: Path) -> None:
    done = workbench(*cells(tmp_path, text, 8, 15, 3), cwd=tmp_path, COUNT=str(tmp_path / "count"))
    assert done.returncode == 1
    assert begun(tmp_path) == collections.Counter(set(range(8, 16)) - {13})
    assert "7 of 8 runs are done" in done.stdout and "an unlucky cell" in done.stdout
    assert done.stderr.count("an unlucky cell") == 1  # the other workers do not try it again
    assert "error.log" in done.stderr and "Traceback" not in done.stderr


def test_a_command_typed_twice_at_once_shares_the_work(text: Path, cache: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "workbench", *cells(tmp_path, text, 1, 4, 1, steps=20)]
    env = environment(cache) | {"COUNT": str(tmp_path / "count")}
    both = [
        subprocess.Popen([*words, "--out", str(tmp_path / name)], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL)
        for name in ("one", "two")
    ]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert begun(tmp_path) == collections.Counter(range(1, 5))
    assert (tmp_path / "one/index.html").is_file() and (tmp_path / "two/index.html").is_file()


def test_a_worker_that_dies_loses_its_cell_to_another(text: Path, cache: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "workbench", *cells(tmp_path, text, 1, 2, 2, steps=200)]
    env = environment(cache) | {"COUNT": str(tmp_path / "count")}
    process = subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "count").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(int((tmp_path / "count").read_text().split()[1]), signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "signal 9" in said
    assert sorted(begun(tmp_path).values()) == [1, 2]
    for path in (tmp_path / "runs").glob("*/metrics.jsonl"):
        assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == list(range(1, 201))


@pytest.mark.slow
def test_eight_workers_train_eighty_cells_once_each(text: Path, workbench: Command, tmp_path: Path) -> None:
    """`SWEEP_REPEATS=20` makes it the full drill: 1,600 of 1,600."""
    for repeat in range(int(os.environ.get("SWEEP_REPEATS", "1"))):
        folder = tmp_path / str(repeat)
        folder.mkdir()
        done = workbench(*cells(folder, text, 101, 180, 8), cwd=folder, COUNT=str(folder / "count"))
        assert done.returncode == 0, done.stderr
        assert begun(folder) == collections.Counter(range(101, 181))


def results(folder: Path) -> list[dict[str, str]]:
    """The final table, but for what is measured on a clock."""
    with next(folder.glob("reports/*/table.csv")).open(newline="") as lines:
        return [
            {k: v for k, v in row.items() if "second" not in k and "time" not in k} for row in csv.DictReader(lines)
        ]


@pytest.mark.slow
def test_killed_three_times_the_table_is_that_of_an_undisturbed_sweep(
    text: Path, table: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["sweep", "generator-size", "--corpus", text, "--tasks", table, "--budget", "steps=40", "--seeds", 3]
    words += ["--workers", 2, "--save-every", 10, *SETS, "--set", "tasks.seeds=1", "--set", "tasks.epochs=1"]
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    whole = workbench(*words, cwd=folders[0])
    assert whole.returncode == 0, whole.stderr
    rng = random.Random(3)
    command = [sys.executable, "-m", "workbench", *map(str, words)]
    for _ in range(3):
        process = subprocess.Popen(command, cwd=folders[1], env=environment(cache), stderr=subprocess.DEVNULL)
        before = len(list(folders[1].glob("runs/*/metrics.jsonl")))
        wanted, deadline = before + rng.randint(1, 3), time.monotonic() + 200
        while len(list(folders[1].glob("runs/*/metrics.jsonl"))) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.random())
        process.kill()
        process.wait()
    last = workbench(*words, cwd=folders[1])
    assert last.returncode == 0, last.stderr
    assert results(folders[1]) == results(folders[0])
    for path in folders[1].glob("runs/rtd-*/metrics.jsonl"):
        steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
        assert steps == list(range(1, len(steps) + 1))


def test_the_arms_of_figure_1_are_trained_and_reported(text: Path, workbench: Command, tmp_path: Path) -> None:
    """All published models, with their objectives, families and vocabulary settings, shrunk to two steps each."""
    small = [word for key in SIZES for word in ("--set", key)]
    words = ["run", "paper-figure-1", "--corpus", text, "--tasks", "none", "--budget", "steps=2", *small]
    planned = workbench(*words, "--dry-run", "--out", "plan", "--json", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    runs = json.loads(planned.stdout)["runs"]
    assert len(runs) == 10 and {run["cell"]["scale"] for run in runs} > {"xlnet-large", "albert-xxlarge", "gpt-1"}
    drawn = (tmp_path / "plan" / "plan.svg").read_text()
    assert "rtd-small, planned:" in drawn and "xlnet-large, planned:" in drawn and "BERT-Base: 82.2" in drawn

    done = workbench(*words, "--match", "steps", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {run["state"] for run in answer["runs"]} == {"done"} and len(answer["runs"]) == 10
    page = (tmp_path / answer["report"]).read_text()
    assert all(arm in page for arm in ("rtd-small", "bert-base", "xlnet-large", "albert-xxlarge", "gpt-1"))


# Sizes at which each of the models is trained in a second.
SIZES = ("encoder.hidden=32", "encoder.layers=1", "encoder.heads=2", "encoder.ffn=64", "encoder.embedding=32",
         "encoder.vocab=200", "batch.size=4", "data.length=16", "schedule.warmup=0.1", "optim.kind=adamw")  # fmt: skip
