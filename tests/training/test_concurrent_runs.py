"""Runs that one process trains at the same time: the bits of each are those that it has alone."""

from __future__ import annotations

import itertools
import json
import logging
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import HOST, begun, branch, spec_of, values, with_points

from workbench.data.prepare import Prepared
from workbench.errors import InputError, Interrupted
from workbench.execution import devices, one_run, study_runner
from workbench.execution.one_run import Wanted
from workbench.spec.host import Host
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.run_directory import now
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks import Suite
from workbench.training import loop
from workbench.training.concurrent_runs import TURNS, Turns, in_streams

TIMES = ("seconds", "tokens_per_second", "saving_share", "device_memory_bytes")
STEPS = {"budget.steps": 12, "encoder.attention_dropout": 0.1}


def carry_out(
    specs: Sequence[Any], prepared: Prepared, root: Path, streams: int, suite: Suite, host: Host = HOST
) -> list[RunDir]:
    store = RunStore(root)
    runs = [store.open(BoundRun(study_runner.bind(spec, prepared))) for spec in specs]
    wanted = Wanted(specs[0].tasks, suite, prepared)
    one_run.carry_out_all(store, [run.run_id for run in runs], wanted, replace(host, streams=streams), now())
    return runs


def content(run: RunDir) -> dict[str, Any]:
    """What does not depend on time: rows, and the bytes of weights, of points, and of the last checkpoint."""
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    found: dict[str, Any] = {"rows": [{key: row[key] for key in row if key not in TIMES} for row in rows]}
    return found | {str(p.relative_to(run.path)): p.read_bytes() for p in run.path.rglob("*.safetensors")}


def three() -> list[ResolvedSpec]:
    return [spec_of("rtd", **STEPS), spec_of("rtd", seed=1, **STEPS), spec_of("bert-mlm", **STEPS)]


def test_runs_together_have_the_bits_of_runs_alone(prepared: Prepared, toy: Suite, tmp_path: Path) -> None:
    """With dropout, whose numbers come from a generator that the process has once; points and scores too."""
    specs = [*three(), with_points()]
    alone = carry_out(specs, prepared, tmp_path / "alone", 1, toy)
    for streams in (2, 3):
        together = carry_out(specs, prepared, tmp_path / str(streams), streams, toy)
        for one, same in zip(alone, together, strict=True):
            assert same.trained and content(one) == content(same) and values(one) == values(same)
            facts, before = same.read_json("env.json"), one.read_json("env.json")
            assert facts["streams"] == streams and before["streams"] == 1 and same.run_id == one.run_id
            assert facts["threads"] == before["threads"] and facts["arithmetic"] == before["arithmetic"]
    assert values(alone[-1]), "there are scores"


def test_runs_take_turns_step_by_step(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []
    take = loop.Steps.take

    def noted(self: Any, step: int) -> Any:
        order.append(threading.get_ident())
        return take(self, step)

    monkeypatch.setattr(loop.Steps, "take", noted)
    carry_out(three()[:2], prepared, tmp_path, 2, Suite(()))
    assert len(order) == 24 and len(set(order)) == 2 and threading.get_ident() not in order
    assert sum(one != other for one, other in itertools.pairwise(order)) > 8, "and not one run after another"


def test_stopped_together_and_resumed_with_another_number(prepared: Prepared, tmp_path: Path, caplog: Any) -> None:
    """A signal reaches all runs, each is saved, and no further one begins."""
    alone = carry_out(three(), prepared, tmp_path / "alone", 1, Suite(()))
    append, slow, sent = loop.Metrics.append, replace(HOST, save_every=100), list[int]()

    def stopping(self: Any, rows: list[dict[str, Any]]) -> None:
        append(self, rows)
        if rows[-1]["step"] == 4 and not sent:
            sent.append(1)
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.1)  # Python handles signals in the main thread

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop.Metrics, "append", stopping)
        carry_out(three(), prepared, tmp_path / "runs", 2, Suite(()), slow)
    runs = [run for run in (tmp_path / "runs").iterdir() if (run / "checkpoints").is_dir()]
    assert len(runs) == 2, "the third did not begin"
    for run in runs:
        assert len(list((run / "checkpoints").iterdir())) == 1 and not (run / "lease").exists()
    caplog.set_level(logging.WARNING)
    for one, same in zip(alone, carry_out(three(), prepared, tmp_path / "runs", 3, Suite(())), strict=True):
        whole, resumed = content(one), content(same)
        names = {name for name in whole if "checkpoints" not in name}
        assert {name: whole[name] for name in names} == {name: resumed[name] for name in names}
    assert "continues with" not in caplog.text, "the number is no change of a run's arithmetic"


def test_a_terminal_shows_one_table_of_all_runs(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("progress", "execution.workers"):
        monkeypatch.setattr(f"workbench.{module}.terminal", lambda: True)
    carry_out(three()[:2], prepared, tmp_path, 2, Suite(()))
    shown = capsys.readouterr().err
    assert "2 of 2 runs are done" in shown and "tokens/s" in shown and "%" not in shown


def test_a_run_that_fails_stops_no_other(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = loop.train

    def failing(run: RunDir, *given: Any) -> Any:
        if "-s1-" in run.run_id:
            raise RuntimeError("it cannot be")
        return train(run, *given)

    monkeypatch.setattr(loop, "train", failing)
    runs = carry_out(three(), prepared, tmp_path, 3, Suite(()))
    assert [run.trained for run in runs] == [True, False, True]
    assert (error := runs[1].error()) is not None and "it cannot be" in error["message"]


def test_a_parent_is_waited_for_and_a_full_disk_ends_all(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {"budget.steps": 20, "tasks.names": "none"}
    specs = [branch(**steps), branch(**steps, **{"schedule.decay": 0.1})]
    runs = carry_out(specs, prepared, tmp_path / "runs", 2, Suite(()))
    assert all(run.trained for run in runs) and len(list((tmp_path / "runs").glob("*/done.json"))) == 3

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop.Metrics, "append", full)
    with pytest.raises(OSError, match="No space left"):
        carry_out(three(), prepared, tmp_path / "full", 2, Suite(()))


def test_tokens_held_on_a_device_train_to_the_same_bits(tmp_path: Path) -> None:
    settings = {"data__length": 16, "encoder__positions": 16, "encoder__dropout": 0.1, "budget__steps": 6}
    plain, held = (begun(tmp_path / name, settings | {"batch__size": 4}) for name in ("plain", "held"))
    assert held.corpus.hold(torch.device("cpu"), 10**9)
    for job in (plain, held):
        job.train(precision="fp32", log_every=2)
    assert content(plain.run) == content(held.run)


def test_what_cannot_be_done_by_several_runs_is_refused() -> None:
    with pytest.raises(InputError, match="--streams is for runs that one device each computes; leave it out, or --dev"):
        devices.refuse(spec_of(), Host(device="cpu", devices=2, streams=2))
    timed = spec_of(**{"budget.seconds": 3})
    with pytest.raises(InputError, match="a budget in seconds is not timed beside other runs of --streams; give"):
        devices.refuse(timed, Host(device="cpu", streams=2))


def test_one_thread_has_the_turn_and_all_get_it_in_order() -> None:
    turns, got, inside = Turns(3), list[int](), list[int]()

    def work(number: int) -> None:
        turns.take()
        for _ in range(20):
            inside.append(number)
            assert len(inside) == 1
            got.append(number)
            time.sleep(0.001)
            inside.pop()
            turns.hand_on()
        turns.end()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    turns.take()
    for thread in threads:
        thread.start()
        while len(turns._waiting) <= threads.index(thread):
            time.sleep(0.001)
    turns.leave()
    for thread in threads:
        thread.join()
    assert got == [0, 1, 2] * 20 and turns.count == 0


def test_a_second_ctrl_c_ends_threads_at_once() -> None:
    ended: list[str] = []

    def work() -> None:
        turns = TURNS.get()
        assert turns is not None
        try:
            while True:
                time.sleep(0.01)
                turns.hand_on()
        except KeyboardInterrupt:
            ended.append("stopped")
            raise

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        in_streams(work, 2, "cpu", lambda: signal.raise_signal(signal.SIGINT))  # the first one is noted alone
    assert ended == ["stopped", "stopped"] and signal.getsignal(signal.SIGINT) == before


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_recorded_steps_of_several_streams_equal_those_of_one(
    compiled: bool, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are recorded while other runs compute, and draw from generators of their own."""
    recorded, record = [], loop.Steps._whole
    monkeypatch.setattr(loop.Steps, "_whole", lambda self, batch: recorded.append(TURNS.get()) or record(self, batch))
    specs = [
        spec_of(name, seed=seed, **STEPS | {"budget.steps": 60}) for name in ("rtd", "bert-mlm") for seed in (0, 1)
    ]
    host = Host(device="cuda", compile=compiled, log_every=20, save_every=40)
    alone = carry_out(specs, prepared, tmp_path / "alone", 1, Suite(()), host)
    assert len(recorded) == 4 and not any(recorded), "all are recorded"
    together = carry_out(specs, prepared, tmp_path / "together", 4, Suite(()), host)
    assert len(recorded) == 8 and all(recorded[4:])
    for one, same in zip(alone, together, strict=True):
        assert same.trained and content(one) == content(same)
