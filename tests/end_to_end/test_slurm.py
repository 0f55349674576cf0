"""Jobs on a real SLURM cluster of one node: runs, tuning, evaluation and texts end as local ones do."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drills.small import curve, weights
from helpers import slurm
from helpers.slurm import LIMIT, asked, begun, submitted, wait_for

from .conftest import SETS, environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.lacking()), reason=slurm.lacking() or "-")]
RATES = "optim.lr=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3"


def words(text: Path, runs: Path, *more: object, over: str = RATES) -> list[str]:
    given = ["sweep", "--over", over, "--objective", "bert-mlm", "--match", "steps", "--budget", "steps=60"]
    given += ["--corpus", text, "--tasks", "none", "--save-every", 10, "--threads", 1, "--runs", runs, *SETS]
    return [str(word) for word in [*given, *more]]


def same(folder: Path, runs: Path, whole: Path) -> None:
    assert len(list(runs.glob("bert-mlm-*/done.json"))) == len(list(whole.glob("bert-mlm-*/done.json")))
    assert curve(runs) == curve(whole) and weights(runs) == weights(whole), (folder / "said").read_text()
    assert not list(runs.glob("*/lease")), "a lease is left"


def test_a_sweep_with_cancelled_requeued_and_delayed_jobs_ends_as_a_local_one(
    workbench: Callable[..., Any], cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    whole, runs, node = tmp_path / "whole", tmp_path / "runs", asked(cluster, "sinfo", "--noheader", "-o", "%n").strip()
    assert workbench(*words(text, whole)).returncode == 0

    asked(cluster, "scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    process = begun(words(text, runs, "--workers", 3), tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    wait_for(lambda: "pending (" in (tmp_path / "said").read_text(), process, tmp_path)  # with SLURM's reason
    asked(cluster, "scontrol", "update", f"nodename={node}", "state=resume")

    wait_for(lambda: list(runs.glob("bert-mlm-*/checkpoints/step-*")), process, tmp_path)
    queue = asked(cluster, "squeue", "--noheader", "-o", "%i %T")
    running = [line.split()[0] for line in queue.splitlines() if line.endswith("RUNNING")]
    asked(cluster, "scancel", running[0])
    said = asked(cluster, "scontrol", "requeue", running[1])
    assert not said.strip(), said
    wait_for(lambda: f"{running[1]} PENDING" in asked(cluster, "squeue", "--noheader", "--array", "-o", "%i %T"),
             process, tmp_path)  # fmt: skip
    asked(cluster, "scontrol", "update", f"jobid={running[1]}", "starttime=now")  # SLURM holds it for minutes
    assert process.wait(LIMIT) == 0, (tmp_path / "said").read_text()
    same(tmp_path, runs, whole)
    logs = list((runs / "jobs").glob(f"*/{job}_*.log"))
    assert len(logs) == 3
    for run in runs.glob("bert-mlm-*"):
        assert re.search(rf'"slurm": ?"{job}_\d"', (run / "env.json").read_text())
        assert any(str(log) in (run / "env.json").read_text() for log in logs)


def test_all_jobs_cancelled_the_same_command_submits_what_is_left(
    workbench: Callable[..., Any], cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    whole, runs, few = tmp_path / "whole", tmp_path / "runs", "optim.lr=1e-3,2e-3"
    assert workbench(*words(text, whole, over=few)).returncode == 0
    process = begun(words(text, runs, "--workers", 2, over=few), tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    wait_for(lambda: list(runs.glob("bert-mlm-*/checkpoints/step-*")), process, tmp_path)
    status = workbench("status", "--runs", runs, **cluster)
    assert f"SLURM {job}: " in status.stderr and "running" in status.stdout
    asked(cluster, "scancel", job)
    assert process.wait(LIMIT) == 1
    said = (tmp_path / "said").read_text()
    assert f"the jobs {job} of SLURM have ended" in said and "the same command submits them again" in said
    assert not list(runs.glob("*/lease")), "a cancelled job holds a run"
    assert "Traceback" not in said

    process = begun(words(text, runs, "--workers", 2, over=few), tmp_path, cache, cluster)
    assert process.wait(LIMIT) == 0
    same(tmp_path, runs, whole)


def test_before_its_time_ends_a_job_saves_and_is_queued_again(
    workbench: Callable[..., Any], cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    """The signal that SLURM sends some time before the limit, whose least unit is a minute, is sent by hand."""
    whole, runs, one = tmp_path / "whole", tmp_path / "runs", "optim.lr=1e-3"
    assert workbench(*words(text, whole, over=one)).returncode == 0
    process = begun(words(text, runs, over=one), tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path) + "_0"
    wait_for(lambda: list(runs.glob("bert-mlm-*/checkpoints/step-*")), process, tmp_path)
    asked(cluster, "scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: f"{job} PENDING" in asked(cluster, "squeue", "--noheader", "--array", "-o", "%i %T"),
             process, tmp_path)  # fmt: skip
    assert not list(runs.glob("bert-mlm-*/lease"))
    again = begun(words(text, runs, over=one), tmp_path, cache, cluster)  # a second command waits for the same jobs
    wait_for(lambda: "carry out these runs already" in (tmp_path / "said").read_text(), again, tmp_path)
    asked(cluster, "scontrol", "update", f"jobid={job}", "starttime=now")
    assert process.wait(LIMIT) == 0 and again.wait(LIMIT) == 0, (tmp_path / "said").read_text()
    same(tmp_path, runs, whole)
    assert len(list((runs / "jobs").iterdir())) == 1


def test_what_slurm_refuses_is_said_and_nothing_is_left(
    cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    given = words(text, tmp_path / "runs", "--set", "launch.partition=nowhere", over="optim.lr=1e-3")
    process = begun(given, tmp_path, cache, cluster)
    assert process.wait(LIMIT) == 2
    said = (tmp_path / "said").read_text()
    assert "--launcher slurm: sbatch refused the jobs" in said and "nvalid partition" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "runs" / "jobs").iterdir())


CELLS = int(os.environ.get("WORKBENCH_SLURM_CELLS", "12"))  # the full drill has 40
MEASURED = re.compile("seconds|memory|per_second")
Workbench = Callable[..., Any]


def queue(cluster: dict[str, str]) -> dict[str, str]:
    lines = asked(cluster, "squeue", "--noheader", "--array", "-o", "%i %T").splitlines()
    return {line.split()[0]: line.split()[1] for line in lines}


def computed(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table without times and memory, which are measured."""
    with path.open(newline="") as file:
        rows = [{key: value for key, value in row.items() if not MEASURED.search(key)} for row in csv.DictReader(file)]
    assert rows
    return rows


def test_a_search_is_carried_out_by_jobs_as_here(
    workbench: Workbench, cluster: dict[str, str], text: Path, table: Path, cache: Path, tmp_path: Path
) -> None:
    given = ["sweep", "tune", "--objective", "bert-mlm", "--trials", "2", "--sampler", "random", "--budget", "steps=20"]
    given += ["--corpus", str(text), "--tasks", str(table), "--threads", "1", *map(str, SETS)]
    given += ["--set", "tasks.epochs=1", "--set", "tasks.seeds=1"]
    workbench(*given, "--runs", tmp_path / "whole", "--out", tmp_path / "here", ends=0)
    process = begun([*given, "--runs", "runs", "--workers", "2"], tmp_path, cache, cluster)
    assert process.wait(LIMIT) == 0, (tmp_path / "said").read_text()

    def trials(runs: Path) -> list[dict[str, Any]]:
        [record] = (runs / "experiments").glob("tune-search-*.json")
        return json.loads(record.read_text())["tuning"]

    assert trials(tmp_path / "runs") == trials(tmp_path / "whole")
    assert all(trial["score"] is not None for trial in trials(tmp_path / "runs"))
    assert len(list((tmp_path / "runs/jobs").iterdir())) == 2, "an array for the trials, and one for the report"


def test_models_are_measured_by_jobs_and_asked_for_twice_only_once(
    workbench: Workbench, cluster: dict[str, str], text: Path, table: Path, cache: Path, tmp_path: Path
) -> None:
    trained = ["run", "ablation", "--objective", "bert-mlm", "--objective", "electra-15", "--budget", "steps=5"]
    done = workbench(*trained, "--corpus", text, "--tasks", "none", *SETS, "--runs", tmp_path / "trained", "--out",
                     tmp_path / "report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    models = []
    for encoder in sorted((tmp_path / "trained").glob("*/encoder")):
        models.append(tmp_path / f"model {len(models)}")
        encoder.rename(models[-1])
    given = ["evaluate", *map(str, models), "--tasks", str(table), "--set", "tasks.epochs=1"]
    done = workbench(*given, "--json", "--runs", tmp_path / "whole", ends=0)
    here = json.loads(done.stdout)

    process = begun([*given, "--runs", "runs", "--workers", "1"], tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    status = workbench("status", "--runs", tmp_path / "runs", **cluster)
    assert f"SLURM {job}: " in status.stderr
    assert process.wait(LIMIT) == 0, (tmp_path / "said").read_text()
    kept = [json.loads(path.read_text())["value"] for path in sorted((tmp_path / "runs").glob("published-*/scores/*"))]
    assert sorted(kept) == sorted(row["value"] for row in here) and len(kept) == 4
    logs = {path.name for path in (tmp_path / "runs/jobs").glob("*/*.log")}
    assert logs == {f"{job}_0.log", f"{job}_1.log"}
    assert not list((tmp_path / "runs").glob("*/lease"))

    again = begun([*given, "--runs", "runs"], tmp_path, cache, cluster)
    assert again.wait(LIMIT) == 0, (tmp_path / "said").read_text()
    times = {path.stat().st_mtime for path in (tmp_path / "runs").glob("published-*/scores/*")}
    assert len(times) == 4 and max(times) < (tmp_path / "runs/jobs").stat().st_mtime, "a score was taken again"


def test_a_model_whose_job_is_cancelled_is_named_and_measured_by_the_same_command(
    workbench: Workbench, cluster: dict[str, str], text: Path, table: Path, cache: Path, tmp_path: Path
) -> None:
    done = workbench("run", "ablation", "--objective", "bert-mlm", "--budget", "steps=5", "--corpus", text, "--tasks",
                     "none", *SETS, "--runs", tmp_path / "trained", "--out", tmp_path / "report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    [encoder] = (tmp_path / "trained").glob("*/encoder")
    encoder.rename(tmp_path / "model")
    given = ["evaluate", "model", "--tasks", str(table), "--set", "tasks.epochs=40", "--runs", "runs"]
    process = begun(given, tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    wait_for(lambda: list((tmp_path / "runs").glob("published-*/lease")), process, tmp_path)
    asked(cluster, "scancel", job)
    assert process.wait(LIMIT) == 1
    said = (tmp_path / "said").read_text()
    assert f"model was not measured by the jobs {job} of SLURM" in said and "Traceback" not in said
    assert not list((tmp_path / "runs").glob("*/lease")), "a cancelled job holds a model"
    process = begun(given, tmp_path, cache, cluster)
    assert process.wait(LIMIT) == 0, (tmp_path / "said").read_text()


PREPARE = """
import sys
from workbench.data import tokenizer
from workbench.data import preprocessing
tokenizer.SAMPLE, preprocessing.SLICE = 200_000, 20_000
from workbench.cli import main
sys.argv = ["workbench", "data", "prepare", "--json", "--set", "encoder.vocab=800", *sys.argv[1:]]
main()
"""


def test_a_text_is_prepared_by_jobs_as_here(cluster: dict[str, str], tmp_path: Path) -> None:
    book, draw = tmp_path / "book.txt", random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 9))) for _ in range(2000)]
    book.write_text("\n\n".join(" ".join(draw.choices(words, k=draw.randint(1, 90))) for _ in range(4000)))

    def begin(cache: Path, *more: str) -> subprocess.Popen[str]:
        with (tmp_path / "said").open("a") as said:
            return subprocess.Popen(
                [sys.executable, "-c", PREPARE, "--corpus", str(book), "--set", "data.min_words=3", *more],
                cwd=tmp_path, env=environment(cache) | cluster, stdout=subprocess.PIPE, stderr=said, text=True,
            )  # fmt: skip

    here, _ = begin(tmp_path / "here").communicate(timeout=LIMIT)
    process = begin(tmp_path / "there", "--launcher", "slurm", "--workers", "2")
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    wait_for(lambda: list((tmp_path / "there/slices").glob("[!.]*")), process, tmp_path)
    asked(cluster, "scancel", f"{job}_0")  # the other job goes on alone
    there, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, (tmp_path / "said").read_text()
    apart = {"folder", "bytes"}
    assert {key: value for key, value in json.loads(there).items() if key not in apart} == {
        key: value for key, value in json.loads(here).items() if key not in apart
    }
    logs = {path.name for path in (tmp_path / "there/jobs").glob("*/*.log")}
    assert logs == {f"{job}_0.log", f"{job}_1.log"} and not list((tmp_path / "there/locks").glob("*-*"))


def test_many_cells_with_jobs_cancelled_requeued_and_a_drained_node(
    workbench: Workbench, cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    """Three jobs are cancelled, one is queued again, and the node is drained while jobs run and resumed afterwards."""
    rates = "optim.lr=" + ",".join(f"{number}e-4" for number in range(1, CELLS + 1))
    given = ["sweep", "--over", rates, "--objective", "bert-mlm", "--match", "steps", "--budget", "steps=40"]
    given += ["--corpus", str(text), "--tasks", "pairs:replace", "--evaluate-at", "none", "--save-every", "10"]
    given += ["--threads", "1", *map(str, SETS), "--set", "data.held_out=0.5"]
    workbench(*given, "--runs", tmp_path / "whole", "--out", tmp_path / "one", ends=0)
    node = asked(cluster, "sinfo", "--noheader", "-o", "%n").strip()
    process = begun([*given, "--runs", "runs", "--out", "two", "--workers", "6"], tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    runs = tmp_path / "runs"

    def done_cells() -> int:
        return len(list(runs.glob("bert-mlm-*/done.json")))

    def running() -> list[str]:
        return [name for name, state in queue(cluster).items() if state == "RUNNING"]

    wait_for(lambda: running() and list(runs.glob("bert-mlm-*/checkpoints/step-*")), process, tmp_path)
    requeued = running()[0]
    asked(cluster, "scontrol", "requeue", requeued)
    cancelled = 0
    while cancelled < 3:
        before = done_cells()
        wait_for(lambda before=before: done_cells() > before and set(running()) - {requeued}, process, tmp_path)
        asked(cluster, "scancel", (set(running()) - {requeued}).pop())
        cancelled += 1
        if cancelled == 1:
            asked(cluster, "scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
            wait_for(lambda: "drain" in asked(cluster, "sinfo", "--noheader", "-o", "%T"), process, tmp_path)
            asked(cluster, "scontrol", "update", f"nodename={node}", "state=resume")
    asked(cluster, "scontrol", "update", f"jobid={requeued}", "starttime=now")  # SLURM holds it for minutes
    assert process.wait(3 * LIMIT) == 0, (tmp_path / "said").read_text()
    assert done_cells() == len(list((tmp_path / "whole").glob("bert-mlm-*/done.json")))
    assert curve(runs) == curve(tmp_path / "whole")
    assert not list(runs.glob("*/lease")) and "Traceback" not in (tmp_path / "said").read_text()
    for name in ("table.csv", "scores.csv", "tasks.csv"):
        assert computed(tmp_path / "two" / name) == computed(tmp_path / "one" / name), name
    for run in runs.glob("bert-mlm-*"):
        assert re.search(rf'"slurm": ?"{job}_\d"', (run / "env.json").read_text())
