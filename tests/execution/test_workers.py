"""What workers are given: the whole of it, on cards and cores that the environment grants."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from written_runs import SPEC, begun, finished

from workbench import cli
from workbench.errors import DamagedRun, InputError
from workbench.execution import workers
from workbench.execution.workers import Assignment
from workbench.spec.host import Host, Launch
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.store.validation import weights_digest

HOST = Host(
    device="cuda:1", precision="bf16", plain=True, compile=True, threads=3, micro_batch=7, log_every=11,
    save_seconds=2.5, save_every=13, track="wandb", devices=2, shard=True, streams=4,
    command=("workbench", "run", "my ablation.py"), launch=Launch(time="04:00:00", gpus=2),
)  # fmt: skip
WHOLE = Assignment(
    Path("some/runs"), "ablation-nano-1", {"seed": 0}, ("a", "b"), (("objective.py", "./idea.py"),), HOST,
    "2026-01-01T00:00:00Z", 17,
)  # fmt: skip


def test_every_field_reaches_a_worker(tmp_path: Path) -> None:
    assert all(getattr(HOST, field.name) != field.default for field in dataclasses.fields(Host))
    WHOLE.write(tmp_path / "assignment.json")
    assert Assignment.read(tmp_path / "assignment.json") == WHOLE


def test_a_hundred_thousand_runs_reach_a_worker(tmp_path: Path) -> None:
    many = dataclasses.replace(WHOLE, runs=tuple(f"rtd-nano-s{seed}-0123456789ab" for seed in range(100_000)))
    many.write(tmp_path / "assignment.json")
    assert Assignment.read(tmp_path / "assignment.json").runs == many.runs


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"store": "x"', '{"host": {"device": 3}}'])
def test_a_file_that_is_no_assignment_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(InputError, match=r"odd\.json cannot be read as the assignment of a worker") as error:
        Assignment.read(tmp_path / "odd.json")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"missing\.json"):
        Assignment.read(tmp_path / "missing.json")


def test_a_pipe_is_no_assignment_and_nobody_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="is not a regular file"):
            Assignment.read(place)


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["0", "1"]), ("4,5", ["4", "5"]), ("GPU-a,GPU-b,GPU-c", ["GPU-a", "GPU-b"])]
)
def test_workers_use_the_cards_that_the_command_may_use(
    visible: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, env, **_: started.append(env))
    workers._start(tmp_path / "assignment.json", Host(), 3)
    assert [env["CUDA_VISIBLE_DEVICES"] for env in started] == [*expected, expected[0]]
    started.clear()
    workers._start(tmp_path / "assignment.json", Host(device="cpu"), 1)
    assert started == [dict(os.environ)]


def test_a_worker_that_ran_out_of_disk_has_said_so_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message names the disk and the bytes; those of the folder of the command would be of another disk."""
    monkeypatch.setattr(workers, "_start", lambda *_: [])
    monkeypatch.setattr(workers, "_wait", lambda *_: [0, 74])
    with pytest.raises(OSError) as caught:
        workers.share(WHOLE, 2)
    assert caught.value.errno == errno.EIO and "its message above says" in str(caught.value)
    assert cli._system_error(caught.value) == 74


def test_a_changed_assignment_is_refused(tmp_path: Path) -> None:
    """A digit that is changed in a queued job's file would have another run carried out, or other settings."""
    place = tmp_path / "assignment.json"
    WHOLE.write(place)
    written = place.read_bytes()
    place.write_bytes(written.replace(b"ablation-nano-1", b"ablation-nano-2"))
    with pytest.raises(InputError, match=r"assignment.json has changed since it was written"):
        Assignment.read(place)
    place.write_bytes(re.sub(rb',"[^"]*":"[0-9a-f]{64}"', b"", written))
    with pytest.raises(InputError, match=r"assignment.json has changed since it was written \(its hash is missing\)"):
        Assignment.read(place)


STOPS_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"


def child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], text=True)


def soon(work: Callable[[], object], *children: subprocess.Popen[str]) -> list[object]:
    """Return what `work` returns or raises within 30 s; otherwise kill the processes, so that it ends."""
    ends: list[object] = []

    def carry_out() -> None:
        try:
            ends.append(work())
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=carry_out)
    thread.start()
    thread.join(30)
    late = thread.is_alive()
    for each in children:
        each.kill()
        each.wait()
    thread.join()
    assert not late, "it still waited after 30 s"
    return ends


def test_a_stopped_worker_is_continued_when_another_has_found_all_runs_settled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "REFRESH", 0.05)
    pair = [child(STOPS_ITSELF), child("")]
    assert soon(lambda: workers._wait([], pair), *pair) == [[0, 0]]
    assert "all runs are settled; continuing 1 worker, stopped by a signal" in caplog.text


def test_a_stopped_worker_is_left_alone_while_runs_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone may want it to wait; a worker that failed has not found all runs settled."""
    monkeypatch.setattr(workers, "REFRESH", 0.05)
    pair = [child(STOPS_ITSELF), child("raise SystemExit(1)")]
    os.waitid(os.P_PID, pair[0].pid, os.WSTOPPED | os.WNOWAIT)
    pair[1].wait()
    waiting = threading.Thread(target=lambda: workers._wait([], pair))
    waiting.start()
    waiting.join(1.5)
    still = waiting.is_alive() and workers._stopped(pair[0])
    pair[0].send_signal(signal.SIGCONT)
    waiting.join(30)
    assert still and not waiting.is_alive()


def test_a_stopped_worker_ends_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "REFRESH", 0.05)
    stopped = child(STOPS_ITSELF + "; import time; time.sleep(60)")

    def interrupted(runs: object, streams: object) -> Any:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "watching", interrupted)
    (end,) = soon(lambda: workers._wait([], [stopped]), stopped)
    assert isinstance(end, KeyboardInterrupt) and stopped.returncode == -signal.SIGTERM


STEPS, TOKENS = 5000, 640_000  # of the plan
STATES = ["new", "running", "interrupted", "trained", "done", "failed", "diverged", "damaged"]


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def training(store: RunStore) -> Iterator[RunDir]:
    """Yield a run that this process trains: its plan is there, and no row yet."""
    run = store.open(BoundRun(SPEC))
    run.write_json("plan.json", {"steps": STEPS, "tokens": TOKENS, "flops": {}})
    run.write_json("env.json", {"versions": {}, "machine": {}})
    with run.lease():
        yield run


def log(run: RunDir, *steps: int, **more: Any) -> None:
    rows = [{"step": step, "loss": 7.125, "tokens_per_second": 3200.0} | more for step in steps]
    with (run.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def failed(store: RunStore, seed: int) -> RunDir:
    run = store.open(BoundRun(SPEC.replace(seed=seed)))
    run.fail("failed", "no such corpus: größe.txt")
    return run


# ---- facts ----


def test_facts_of_a_run_that_trains(training: RunDir) -> None:
    log(training, 1, 2000)
    found = workers.facts(training)
    assert (found["state"], found["worker"]) == ("running", os.getpid())
    assert (found["step"], found["steps"], found["loss"], found["tokens_per_second"]) == (2000, STEPS, 7.125, 3200)
    assert found["seconds_left"] == pytest.approx(3000 * 128 / 3200)  # 128 tokens a step


def test_the_time_left_is_by_the_tokens_of_the_runs_own_steps(training: RunDir) -> None:
    """Its parent took 4,000 of the 5,000 steps, on shorter rows."""
    parent = {"run_id": "x", "steps": 4000, "tokens": 4000 * 32, "flops": {}}
    tokens = 4000 * 32 + 1000 * 128
    training.write_json("plan.json", {"steps": STEPS, "first": 4000, "tokens": tokens, "flops": {}, "parent": parent})
    log(training, 4500)
    assert workers.facts(training)["seconds_left"] == pytest.approx(500 * 128 / 3200)


@pytest.mark.parametrize("pace", [None, 0])
def test_without_a_pace_the_time_left_is_not_known(training: RunDir, pace: float | None) -> None:
    log(training, 7, tokens_per_second=pace, loss=None)
    found = workers.facts(training)
    assert found["step"] == 7 and found["seconds_left"] is None and found["loss"] is None
    text = workers.line(found)
    assert "7 of 5,000" in text and "None" not in text and "loss" not in text and "tokens" not in text


def test_before_its_first_row_and_its_plan_a_run_has_no_step(training: RunDir) -> None:
    assert workers.facts(training)["step"] is None
    (training.path / "metrics.jsonl").touch()
    found = workers.facts(training)
    assert (found["steps"], found["step"], found["worker"]) == (STEPS, None, os.getpid())
    (training.path / "plan.json").unlink()
    found = workers.facts(training)
    assert (found["state"], found["steps"], found["step"]) == ("running", None, None)
    assert workers.line(found) == found["note"]


def test_who_is_at_no_run_has_only_state_and_note(store: RunStore) -> None:
    for run, state in ((finished(store, 1), "done"), (begun(store, 2), "interrupted"), (failed(store, 3), "failed")):
        found = workers.facts(run)
        assert found | run.summary() == found and found["state"] == state
        assert {found[key] for key in ("worker", "step", "steps", "tokens_per_second", "loss", "seconds_left")} == {
            None
        }
        assert workers.line(found) == run.note


def test_while_a_run_is_measured_its_scores_are_counted_with_those_of_its_points(store: RunStore) -> None:
    run = finished(store, 0)  # two tasks, two seeds
    with run.lease():
        assert re.findall(r"\b\d+ scores", workers.facts(run)["note"]) == ["4 scores"]
        (run.path / "points" / "00000002").mkdir(parents=True)
        point = {"format": 1, "step": 2, "mark": "50 %", "tokens": 256, "flops": {}, "encoder": {}, "heads": {}}
        run.write_json("points/00000002/point.json", point)
        whole = json.loads(next(run.path.glob("scores/*.json")).read_text())
        score = {key: whole[key] for key in ("format", "task", "suite", "metric", "seed", "value")}
        run.write_json("points/00000002/scores/a.json", score | {"encoder": weights_digest({}, "encoder")})
        found = workers.facts(run)
        assert re.findall(r"\b\d+ scores", found["note"]) == ["5 scores"]
        assert found["step"] is None and found["worker"] == os.getpid()


# ---- the newest row ----


@pytest.mark.parametrize("content", ["", '{"step": 1', "not a row\n", '{"loss": 1}\n', "[1]\n"])
def test_a_log_without_a_whole_row_has_none(training: RunDir, content: str) -> None:
    (training.path / "metrics.jsonl").write_text(content)
    assert workers.facts(training)["step"] is None


# ---- words ----


def test_a_line_has_the_numbers_of_the_run() -> None:
    found = {
        "step": 1200, "steps": 5000, "loss": 7.1256, "tokens_per_second": 41234.6, "seconds_left": 61.0, "note": "by x",
    }  # fmt: skip
    text = workers.line(found)
    assert all(part in text for part in ("1,200 of 5,000", "7.126", "41,235", "1 min 1 s", "by x"))
    assert "0 s left" in workers.line(found | {"seconds_left": 0.0})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(STATES), max_size=12))
def test_a_tally_counts_every_state_it_names(states: list[str]) -> None:
    counts = Counter(states)
    first, *others = workers.tally(states).split(", ")
    assert [int(number) for number in re.findall(r"\d+", first)] == [counts["done"], len(states)]
    named = {word: int(number) for number, word in (each.split() for each in others)}
    assert named == {state: counts[state] for state in ("running", "failed", "diverged", "damaged") if counts[state]}


# ---- watching without a terminal ----


def test_a_line_is_said_for_each_change_of_what_is_done(
    store: RunStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "terminal", lambda: False)
    first, second = store.open(BoundRun(SPEC.replace(seed=1))), store.open(BoundRun(SPEC.replace(seed=2)))
    with workers.watching([first, second], []) as look:
        look()
        assert capsys.readouterr().err == ""  # none is done
        finished(store, 1)
        look()
        look()
        [said] = capsys.readouterr().err.splitlines()
        assert re.findall(r"\d+", said) == ["1", "2"]
        shutil.rmtree(first.path)  # what is done stays so, and is not read again
        finished(store, 2)
        look()
        [said] = capsys.readouterr().err.splitlines()
        assert re.findall(r"\d+", said) == ["2", "2"]


class Moving(RunDir):
    """A run whose files come and go while they are read, from the second look on, or at once."""

    def __init__(self, path: Path, good_looks: int) -> None:
        super().__init__(path)
        self.good_looks = good_looks

    def summary(self, full: bool = False) -> dict[str, Any]:
        self.good_looks -= 1
        if self.good_looks < 0:
            raise [FileNotFoundError(2, "gone"), DamagedRun("cut")][self.good_looks % 2]
        return super().summary(full)


def test_a_run_that_cannot_be_read_stands_as_it_was(
    store: RunStore, capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
) -> None:
    """What was never read counts as new."""
    runs = [Moving(failed(store, 1).path, 1), Moving(failed(store, 2).path, 0), finished(store, 3)]
    with workers.watching(runs, []) as look:
        look()
        look()
    text = shown(capsys)
    assert "1 of 3" in text and "1 failed" in text and runs[0].run_id in text and runs[1].run_id not in text


# ---- watching on a terminal ----


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a clock that stands still, beside a terminal that is none."""
    held = SimpleNamespace(now=100.0)
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: held.now))
    monkeypatch.setattr(workers, "terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    return held


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_the_table_has_a_row_for_each_run_at_work_or_failed(
    store: RunStore, training: RunDir, clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    log(training, 1250)
    runs = [training, finished(store, 1), failed(store, 2), store.open(BoundRun(SPEC.replace(seed=3)))]
    with workers.watching(runs, []):
        finished(store, 3)  # shown at the end, also where nobody looked again
    text = shown(capsys)
    [at_work] = [each for each in text.splitlines() if training.run_id in each]
    assert all(part in at_work for part in ("1,250/5,000", str(os.getpid()), "7.125", "3,200", "2 min 30 s"))
    [broken] = [each for each in text.splitlines() if runs[2].run_id in each]
    assert "größe.txt" in broken and "None" not in broken
    assert runs[1].run_id not in text and runs[3].run_id not in text
    assert "2 of 4" in text and "1 running" in text and "1 failed" in text


def test_the_time_left_is_that_of_the_runs_done_since_the_start(
    store: RunStore, clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """One was done before; the second took 50 s and two remain, of which the failed one is settled."""
    runs = [
        finished(store, 1),
        *(store.open(BoundRun(SPEC.replace(seed=seed))) for seed in (2, 3, 4)),
        failed(store, 5),
    ]
    with workers.watching(runs, []) as look:
        finished(store, 2)
        clock.now += 50
        look()
    assert "2 of 5" in (text := shown(capsys)) and "1 min 40 s" in text
    with workers.watching(runs, []):
        clock.now += 50
    assert "2 of 5" in (text := shown(capsys)) and " min " not in text, "none was done since"


def test_only_warnings_of_workers_are_shown_above_the_table(
    store: RunStore, clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are: square brackets are no markup of the terminal's."""
    before = set(threading.enumerate())
    voice = io.StringIO("workbench: größe [red] of [0]\nrtd: step 3 of 9\n\nworkbench: second\n")
    with workers.watching([failed(store, 1)], [voice]):
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=10)
    text = shown(capsys)
    assert "workbench: größe [red] of [0]" in text and "workbench: second" in text and "step 3 of 9" not in text
