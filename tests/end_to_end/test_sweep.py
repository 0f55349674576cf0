"""Sweeps, searches and experiments whose runs start from others: every cell once, whoever dies or is typed twice."""

from __future__ import annotations

import collections
import contextlib
import csv
import json
import os
import pty
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.store.atomic import read_object

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
    count, deadline = tmp_path / "count", time.monotonic() + 120
    while not (count.exists() and count.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(int(count.read_text().split()[1]), signal.SIGKILL)
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
        workbench(*cells(folder, text, 101, 180, 8), cwd=folder, COUNT=str(folder / "count"), ends=0)
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
    workbench(*words, cwd=folders[0], ends=0)
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
    workbench(*words, cwd=folders[1], ends=0)
    assert results(folders[1]) == results(folders[0])
    for path in folders[1].glob("runs/rtd-*/metrics.jsonl"):
        steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
        assert steps == list(range(1, len(steps) + 1))


def test_the_arms_of_figure_1_are_trained_and_reported(text: Path, workbench: Command, tmp_path: Path) -> None:
    """All published models, with their objectives, families and vocabulary settings, shrunk to two steps each."""
    small = [word for key in SIZES for word in ("--set", key)]
    words = ["run", "paper-figure-1", "--corpus", text, "--tasks", "none", "--budget", "steps=2", *small]
    planned = workbench(*words, "--dry-run", "--out", "plan", "--json", cwd=tmp_path, ends=0)
    runs = json.loads(planned.stdout)["runs"]
    assert len(runs) == 10 and {run["cell"]["scale"] for run in runs} > {"xlnet-large", "albert-xxlarge", "gpt-1"}
    drawn = (tmp_path / "plan" / "plan.svg").read_text()
    assert "rtd-small, planned:" in drawn and "xlnet-large, planned:" in drawn and "BERT-Base: 82.2" in drawn

    done = workbench(*words, "--match", "steps", "--json", cwd=tmp_path, ends=0)
    answer = json.loads(done.stdout)
    assert {run["state"] for run in answer["runs"]} == {"done"} and len(answer["runs"]) == 10
    page = (tmp_path / answer["report"]).read_text()
    assert all(arm in page for arm in ("rtd-small", "bert-base", "xlnet-large", "albert-xxlarge", "gpt-1"))


# Sizes at which each of the models is trained in a second.
SIZES = ("encoder.hidden=32", "encoder.layers=1", "encoder.heads=2", "encoder.ffn=64", "encoder.embedding=32",
         "encoder.vocab=200", "batch.size=4", "data.length=16", "schedule.warmup=0.1", "optim.kind=adamw")  # fmt: skip


def searched(text: Path, table: Path, *more: object) -> list[object]:
    given = ["--corpus", text, "--tasks", table, "--budget", "steps=4", "--match", "steps", *SETS]
    return ["sweep", *more, *given, "--threads", 1, "--set", "tasks.seeds=1", "--set", "tasks.epochs=1", "--json"]


def record(folder: Path, prefix: str) -> dict[str, Any]:
    path = next(path for path in (folder / "runs/experiments").glob("*.json") if path.name.startswith(prefix))
    return dict(json.loads(path.read_text()))


def test_a_search_goes_on_with_the_trials_it_has(text: Path, table: Path, workbench: Command, tmp_path: Path) -> None:
    import optuna

    search = ["--over", "optim.lr=1e-4..1e-2:log", "--over", "tying=tokens,none"]
    workbench(*searched(text, table, *search, "--trials", 2), cwd=tmp_path, ends=0)
    first = record(tmp_path, "over-")["tuning"]
    assert [trial["trial"] for trial in first] == [0, 1]
    assert all(1e-4 <= trial["values"]["optim.lr"] <= 1e-2 and 0 <= trial["score"] <= 100 for trial in first)
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/encoder/model.safetensors")}

    journal = next((tmp_path / "runs/experiments").glob("*.optuna.log"))
    journal.write_bytes(journal.read_bytes()[:-20])  # torn, as by a power cut
    workbench(*searched(text, table, *search, "--trials", 3), cwd=tmp_path, ends=0)
    trials = record(tmp_path, "over-")["tuning"]
    assert trials[:2] == first and len(trials) == 3
    assert all(path.stat().st_mtime_ns == before for path, before in weights.items())
    assert len(list(tmp_path.glob("runs/rtd-*"))) == len({run for trial in trials for run in trial["run_ids"]})

    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(
            str(journal), lock_obj=optuna.storages.journal.JournalFileOpenLock(str(journal))
        )
    )
    (study,) = optuna.get_all_study_summaries(storage)
    shown = optuna.load_study(study_name=study.study_name, storage=storage).get_trials()
    assert [trial.value for trial in shown] == [trial["score"] for trial in trials]


@pytest.mark.slow
def test_tuning_treats_objectives_alike_and_reports_on_other_seeds_and_rows(
    text: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    arms = ["tune", "--objective", "bert-mlm", "--objective", "electra-15", "--trials", 2, "--seeds", 2]
    workbench(*searched(text, table, *arms), cwd=tmp_path, ends=0)
    final = record(tmp_path, "tune-nano")
    assert final["axis"] == "objective" and len(final["runs"]) == 4
    trials = {name: [t for t in final["tuning"] if t["objective"] == name] for name in ("bert-mlm", "electra-15")}
    assert {len(found) for found in trials.values()} == {2}

    chosen: dict[str, set[float]] = {}
    for run in final["runs"]:
        spec = json.loads((tmp_path / "runs" / run / "spec.json").read_text())["spec"]
        chosen.setdefault(spec["objective"], set()).add(spec["optim"]["lr"])
        assert spec["seed"] in (0, 1)
        scores = [json.loads(path.read_text()) for path in (tmp_path / "runs" / run / "scores").glob("*.json")]
        assert [list(score["values"]) for score in scores] == [["test"]]
    for name, found in trials.items():
        best = max(found, key=lambda trial: (trial["score"], -trial["trial"]))
        assert chosen[name] == {best["values"]["optim.lr"]}
        for trial in found:
            assert not set(trial["run_ids"]) & set(final["runs"])
            assert min(trial["seeds"]) > 1
            scores = [
                json.loads(path.read_text())
                for run in trial["run_ids"]
                for path in (tmp_path / "runs" / run / "scores").glob("*.json")
            ]
            assert [list(score["values"]) for score in scores] == [["held-out"]]
            assert trial["score"] == scores[0]["value"]


TASKS = ("--set", "tasks.seeds=1", "--set", "tasks.epochs=1")


def runs_of(folder: Path) -> dict[str, dict[str, object]]:
    """Spec and facts of every trained run."""
    found = {}
    for path in folder.glob("runs/*/done.json"):
        spec = json.loads((path.parent / "spec.json").read_text())["spec"]
        found[path.parent.name] = {
            **json.loads(path.read_text()), "spec": spec, "plan": json.loads((path.parent / "plan.json").read_text()),
            "scores": len(list(path.parent.glob("scores/*.json"))),
        }  # fmt: skip
    return found


def arms_of(folder: Path) -> list[str]:
    with next(folder.glob("out/table.csv")).open(newline="") as lines:
        return [row["arm"] for row in csv.DictReader(lines)]


def test_training_algorithms_side_by_side(workbench: Command, text: Path, table: Path, tmp_path: Path) -> None:
    """Joint, two-stage and adversarial at equal FLOPs, the parent's included; the parent itself has no scores."""
    words = ["sweep", "training-algorithm", "--corpus", text, "--tasks", table, "--budget", "flops=3e9", *SETS, *TASKS]
    workbench(*words, "--out", "out", "--json", cwd=tmp_path, ends=0)
    runs = runs_of(tmp_path)
    two_stage = next(run for run in runs.values() if run["spec"]["start"])  # type: ignore[index]
    parent = runs[two_stage["plan"]["parent"]["run_id"]]  # type: ignore[index]
    assert parent["spec"]["objective"] == "bert-mlm" and parent["scores"] == 0  # type: ignore[index]
    arms = [run for run in runs.values() if run["scores"] and run["steps"]]
    assert len(arms) == 3 and two_stage in arms
    for run in arms:
        assert 0.97 * 3e9 < run["flops"]["matmul"] <= 3e9  # type: ignore[index]
    assert {"adversarial", "rtd", "rtd, two-stage"} <= set(arms_of(tmp_path))


def test_causal_first_and_then_masked(workbench: Command, text: Path, table: Path, tmp_path: Path) -> None:
    """Five arms at equal FLOPs, the causal parents' included, and a baseline for each kind of encoder."""
    words = ["sweep", "biphasic", "--corpus", text, "--tasks", table, "--budget", "flops=3e9", *SETS, *TASKS]
    workbench(*words, "--out", "out", "--json", cwd=tmp_path, ends=0)
    runs: dict[str, Any] = runs_of(tmp_path)
    arms = [run for run in runs.values() if run["scores"] and run["steps"]]
    started = {run["spec"]["start"]["share"]: run for run in arms if run["spec"]["start"]}
    assert len(arms) == 5 and sorted(started) == [0.25, 0.5, 0.75]
    for run in arms:
        assert 0.96 * 3e9 < run["flops"]["matmul"] <= 3e9
    for share, run in started.items():
        parent = runs[run["plan"]["parent"]["run_id"]]
        assert (run["spec"]["objective"], parent["spec"]["objective"]) == ("bert-mlm", "causal-lm")
        assert (run["spec"]["encoder"]["causal"], parent["spec"]["encoder"]["causal"]) == (None, True)
        assert parent["scores"] == 0 and parent["flops"]["matmul"] == pytest.approx(share * 3e9, rel=0.1)
    names = arms_of(tmp_path)
    assert {f"bert-mlm, after {share} % causal-lm" for share in (25, 50, 75)} < set(names)
    assert {"bert-mlm", "causal-lm"} < set(names)
    bare = [run["spec"] for run in runs.values() if not run["steps"]]
    assert {(spec["objective"], spec["encoder"]["causal"]) for spec in bare} == {
        ("bert-mlm", None),
        ("causal-lm", True),
    }


@pytest.mark.slow
def test_branches_of_one_trunk_beside_whole_runs(workbench: Command, text: Path, table: Path, tmp_path: Path) -> None:
    """Five budgets twice, two workers: five pieces of trunk, each trained once, and every branch goes on from one."""
    words = ["sweep", "efficiency", "--corpus", text, "--tasks", table, "--budget", "tokens=160000", *SETS, *TASKS]
    workbench(*words, "--match", "tokens", "--out", "out", "--workers", 2, "--json", cwd=tmp_path, ends=0)
    runs = runs_of(tmp_path)
    kinds: dict[str, list[int]] = {}
    for run in runs.values():
        spec = run["spec"]
        if spec["budget"]["steps"] != 0:  # type: ignore[index]
            kinds.setdefault(spec["schedule"]["kind"], []).append(run["steps"])  # type: ignore[index, arg-type]
    assert {kind: len(steps) for kind, steps in kinds.items()} == {"linear": 5, "wsd": 5, "constant": 5}
    assert sorted(kinds["linear"]) == sorted(kinds["wsd"]) == [39, 78, 156, 312, 625]
    assert sorted(kinds["constant"]) == [31, 62, 125, 250, 500]
    assert {"rtd", "rtd, branch of a trunk"} <= {name.partition(", schedule")[0] for name in arms_of(tmp_path)}


RUN = ["run", "ablation", "--objective", "bert-mlm", "--objective", "rtd", "--seeds", "2", "--budget", "steps=4", *SETS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A text, and two folders of minimal pairs: each is a measure."""
    place = tmp_path_factory.mktemp("declared")
    (place / "text.txt").write_bytes(text.read_bytes())
    for name, wrong in (("one", "the the"), ("two", "dog the")):
        (place / name).mkdir()
        rows = [{"sentence_good": f"the cat sees {n} dogs.", "sentence_bad": f"{wrong} cat {n}."} for n in range(8)]
        (place / name / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def carried_out(
    workbench: Command, folder: Path, tasks: str, *more: str
) -> tuple[dict[str, Any], Path, dict[str, Any]]:
    """The record and the folder of the report of a command, and its outcome as JSON."""
    done = workbench(*RUN, "--corpus", "text.txt", "--tasks", tasks, "--json", *more, cwd=folder, ends=0)
    outcome = json.loads(done.stdout)
    runs = Path(outcome["store"])
    return read_object(runs / "experiments" / f"{outcome['record']}.json"), Path(outcome["report"]).parent, outcome


def seen(record: dict[str, Any]) -> dict[str, int]:
    return {row["name"]: row["seen"] for row in record["measures"]}


def test_a_measure_named_after_scores_were_known_is_exploratory(workbench: Command, folder: Path) -> None:
    first, report, outcome = carried_out(workbench, folder, "one")
    assert seen(first) == {"one": 0} and first["measures"][0]["declared"] <= first["first_score"]
    with (folder / report / "pairs.csv").open(newline="") as lines:
        (pair,) = csv.DictReader(lines)
    assert pair["verdict"] != "exploratory" and pair["items"] == ("8" if pair["low"] else "")
    assert outcome["verdict"]["kind"] != "exploratory" and outcome["verdict"] | {"at": ""} == first["verdict"] | {
        "at": ""
    }

    again, _, _ = carried_out(workbench, folder, "one")
    assert again["measures"] == first["measures"] and again["first_score"] == first["first_score"]

    later, report, outcome = carried_out(workbench, folder, "two,one")
    assert seen(later) == {"one": 0, "two": 2} and later["first_score"] == first["first_score"]
    with (folder / report / "pairs.csv").open(newline="") as lines:
        assert [(row["verdict"], row["declared"]) for row in csv.DictReader(lines)] == [("exploratory", "no")]
    page = (folder / report / "index.html").read_text()
    assert "are exploratory, and nothing is claimed by them: two (" in page and first["first_score"][:16] in page
    assert outcome["verdict"]["kind"] == "exploratory"
    assert outcome["verdict"]["sentence"].startswith("Exploratory: by minimal pairs, named after scores were known, ")

    scorer, _, _ = carried_out(workbench, folder, "one", "--set", "tasks.scorers=generator-pll,default")
    assert seen(scorer) == {"one": 2}, "another scorer is another measure"

    lines = workbench("status", cwd=folder).stdout.splitlines()
    told = {line.split(",")[0].split()[1]: line for line in lines if line.startswith("verdict ")}
    assert set(told) == {first["name"], later["name"], scorer["name"]}
    assert outcome["verdict"]["sentence"] in told[later["name"]]


def test_measures_named_together_before_any_score_are_declared(workbench: Command, folder: Path) -> None:
    record, report, outcome = carried_out(workbench, folder, "one,two", "--runs", "others")
    assert seen(record) == {"one": 0, "two": 0} and outcome["verdict"]["kind"] != "exploratory"
    assert "exploratory" not in (folder / report / "pairs.csv").read_text()


LIMIT = 300.0  # seconds until both runs train, on a machine with ten times as many processes as cores


@pytest.mark.slow
def test_a_live_table_and_status_from_elsewhere_and_a_clean_stop(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["sweep", "--over", "tying=none,tokens", "--match", "steps", "--corpus", text, "--tasks", "none", *SETS]
    words += ["--budget", "steps=1000000", "--workers", 2, "--threads", 1]
    words += ["--notify", "command=cat > told; echo $WORKBENCH_STATE >> told"]
    shown = bytearray()

    def both_train() -> list[dict[str, Any]]:
        rows = json.loads(workbench("status", "--json", cwd=tmp_path).stdout) if b"2 running" in shown else []
        return rows if len(rows) == 2 and all(row["step"] for row in rows) else []

    with on_a_terminal(words, tmp_path, environment(cache), shown) as process:
        rows = wait_for(both_train, process)
        plain = workbench("status", cwd=tmp_path).stdout
        wait_for(lambda: shown.count(b"1,000,000") >= 2, process)  # both runs' steps in the table
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=LIMIT) == 130

    assert [row["state"] for row in rows] == ["running", "running"]
    assert len({row["worker"] for row in rows}) == 2
    for row in rows:
        assert 0 < row["step"] < row["steps"] == 1_000_000 and row["loss"] > 0
        assert row["tokens_per_second"] > 0 and row["seconds_left"] > 0
        assert row["run_id"].encode() in shown
    assert plain.count("of 1,000,000, loss") == 2 and "left, by process" in plain
    assert b"0 of 2 runs are done, 2 running" in shown and b"tokens/s" in shown
    assert b"the same command goes on" in shown and b"Traceback" not in shown
    assert not list(tmp_path.glob("runs/*/lease"))
    told = (tmp_path / "told").read_text()
    assert "is interrupted on" in told and "0 of 2 runs are done." in told and told.endswith("interrupted\n")


@contextlib.contextmanager
def on_a_terminal(
    words: list[Any], cwd: Path, env: dict[str, str], shown: bytearray
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command whose stderr is a terminal; what it writes there goes into `shown`. No process outlives it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *map(str, words)], cwd=cwd, stderr=theirs,
        env=env | {"TERM": "xterm", "COLUMNS": "160"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1 << 16):
                shown.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()
        os.close(ours)


def wait_for(found: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    """Return the first answer of `found` that is true, while the command goes on."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        assert process.poll() is None, "the command ended early"
        time.sleep(0.2)
    raise AssertionError(f"not there after {LIMIT:.0f} s")
