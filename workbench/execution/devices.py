"""The processes that compute one run on several devices: started here, or by `torchrun` beside this one.

With --devices N, the process that carries out a run starts N - 1 others for its training. Under `torchrun` all N
processes are given the same command: the first one carries it out, and the others wait for its runs.
Both find each other through torch's store of keys, in which the first process announces each training, and each set of
minimal pairs that all of them score (`follow_all`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from workbench import objectives
from workbench.errors import DamagedRun, Diverged, InputError, Interrupted, LeaseLost, RankLost
from workbench.process import end_with_parent, heed
from workbench.spec.host import (
    PARENT,
    Host,
    launched,
    number_by_launcher,
    set_by_launcher,
    threads_for_each,
    visible_cards,
)
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks.common.contract import Measure, Model, take

if TYPE_CHECKING:
    from workbench.training.distributed import Ranks


log = logging.getLogger("workbench")
WAIT = 0.1  # seconds between looks for the next training, or at processes that start
TIMEOUT = "WORKBENCH_RANK_TIMEOUT"  # environment variable: the longest wait for another process, in seconds
OVER = "over"  # what the first process announces when its command ends
# Errors between two steps, after which the other processes wait for the next training.
ORDERLY = (Diverged, Interrupted, OSError, LeaseLost, DamagedRun)


@dataclass(frozen=True)
class Training:
    """What the first process announces: the folder of a run, the host of each process, and which announcement it is.

    With `scoring`, the run is trained, and its encoder in the folder of this name scores the `pairs` for `tasks`.
    """

    run: str
    host: Mapping[str, Any]
    number: int
    scoring: Mapping[str, Any] | None = None

    def write(self) -> str:
        """Return the announcement as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Training:
        """Return the announcement in a text of JSON. Raises InputError for any other text."""
        try:
            training = cls(**json.loads(text))
            Host(**training.host)
        except (TypeError, ValueError) as error:
            raise InputError(f"the first process announced {text[:80]!r}, which is no training: {error}") from None
        return training


def seconds() -> float:
    """Return the longest wait for another process. Raises InputError if the variable is not a number of seconds."""
    text = os.environ.get(TIMEOUT, "600")
    if not text.isdecimal() or not 1 <= int(text) <= 86_400:
        raise InputError(f"{TIMEOUT}={text!r} is not a whole number of seconds from 1 to 86400")
    return float(text)


def host_of_each(host: Host) -> Host:
    """Return the host of one of several processes: its share of the threads, and its own GPU under `torchrun`."""
    own_card = launched() > 1 and host.resolved_device().startswith("cuda")
    device = f"cuda:{number_by_launcher('LOCAL_RANK')}" if own_card else host.device
    return replace(host, threads=host.threads or threads_for_each(host.devices), device=device)


def check(host: Host) -> None:
    """Raise InputError if the machine has too few GPUs for the host, or `torchrun` started another number."""
    seconds()
    if host.shard and host.devices == 1:
        raise InputError(
            "--shard splits a model over several devices, and there is one; give --devices, or leave it out"
        )
    if host.shard and (host.compile or host.plain):
        other = "--compile" if host.compile else "--plain"
        raise InputError(
            f"--shard does not work with {other}, which reads weights before they are gathered; leave one out"
        )
    if launched() > 1:
        if host.devices != launched():
            raise InputError(
                f"--devices {host.devices} does not fit torchrun, which started {launched()} processes; leave it out"
            )
    elif host.devices > 1 and host.resolved_device().startswith("cuda"):
        cards = len(visible_cards())
        if cards < host.devices:
            raise InputError(f"--devices {host.devices}: this machine has {cards} GPUs; give at most that many")
        if ":" in host.device:
            raise InputError(
                f"--device {host.device} names one GPU and --devices {host.devices} needs several; "
                f"choose GPUs with CUDA_VISIBLE_DEVICES"
            )


def refuse(spec: RunSpec, host: Host) -> None:
    """Raise InputError for a run that several devices cannot compute; one device alone times a budget in seconds."""
    if host.devices > 1 and spec.budget.unit == "seconds":
        raise InputError("a budget in seconds is not timed over several devices; give --budget in steps or flops")
    if host.streams > 1 and host.devices > 1:
        raise InputError("--streams is for runs that one device each computes; leave it out, or --devices")
    if host.streams > 1 and spec.budget.unit == "seconds":
        raise InputError(
            "a budget in seconds is not timed beside other runs of --streams; give --budget in steps or flops"
        )
    if host.shard and spec.optim.kind != "adamw":
        raise InputError(
            f"--shard splits the weights, and optim.kind={spec.optim.kind} updates whole ones; set optim.kind=adamw"
        )


_announced: list[str] = []  # the runs that this process has announced under torchrun


@contextlib.contextmanager
def together(run: RunDir, host: Host, scoring: Mapping[str, Any] | None = None) -> Iterator[Ranks]:
    """Yield the several processes that compute this run; this one, with this host (`host_of_each`), is the first.

    With `scoring` (see `Training`) they score sentences, and do not train. Raises RankLost if another process ends or
    does not answer. Under `torchrun`, whose processes cannot be replaced one by one, the command is interrupted.
    """
    from workbench.training.distributed import group, part_of

    training = Training(str(run.path.resolve()), asdict(host), len(_announced) + 1, scoring)
    place = f"group/{training.number}"
    with (
        _announcing(training) if launched() > 1 else _starting(training, host) as store,
        group(part_of(store, place), 0, host.devices, host.resolved_device(), seconds(), host.shard) as ranks,
    ):
        yield ranks


@contextlib.contextmanager
def _announcing(training: Training) -> Iterator[Any]:
    store = rendezvous()
    _announced.append(training.run)
    store.set(f"training/{training.number}", training.write())
    try:
        yield store
    except ORDERLY:
        raise
    except BaseException as error:
        log.warning("%s was not finished, so this command ends: %s", Path(training.run).name, error)
        raise Interrupted(signal.SIGTERM) from error


def rendezvous() -> Any:
    """Return the store of keys of this attempt of `torchrun`. Raises InputError, or RankLost if it is not there."""
    from workbench.training.distributed import part_of

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    holds = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and number_by_launcher("RANK") == 0
    return part_of(_store_of_launcher(holds), f"workbench/{attempt}")


def _store_of_launcher(holds: bool) -> Any:
    """Return the store of keys at MASTER_ADDR and MASTER_PORT, which this process `holds` or another one."""
    from workbench.training.distributed import key_store, telling_of_loss

    address, port = set_by_launcher("MASTER_ADDR"), number_by_launcher("MASTER_PORT")
    with telling_of_loss():
        return key_store(address, port, holds, seconds())


@contextlib.contextmanager
def _starting(training: Training, host: Host) -> Iterator[Any]:
    """Start the other processes of a training, yield the store that connects them, and end them after the block."""
    from workbench.training.distributed import key_store

    store = key_store("127.0.0.1", 0, True, seconds())
    store.set(f"training/{training.number}", training.write())
    cards = visible_cards() if host.resolved_device().startswith("cuda") else []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        children = [_start(index, store.port, host.devices, cards, errors) for index in range(1, host.devices)]
        try:
            until = time.monotonic() + seconds()
            while not store.check([f"ready/{index}" for index in range(1, host.devices)]):
                heed()
                if any(child.poll() is not None for child in children) or time.monotonic() > until:
                    raise RankLost("a process for one of the devices did not start")
                time.sleep(WAIT)
            yield store
            store.set(f"training/{training.number + 1}", OVER)
            _wait_until_over(children)
        except RankLost as error:
            raise RankLost(f"{error}{_ends_of(children, errors, str(error))}") from error
        finally:
            for child in children:
                child.kill()
                child.wait()


def _start(index: int, port: int, count: int, cards: list[str], errors: IO[str]) -> subprocess.Popen[str]:
    """Start one of the other processes in a session of its own, since Ctrl-C is left to the first process."""
    variables = {
        "RANK": str(index), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        PARENT: str(os.getpid()),
    }  # fmt: skip
    if cards:
        variables["CUDA_VISIBLE_DEVICES"] = cards[index]
    return subprocess.Popen(
        [sys.executable, "-m", "workbench", "rank"], env=os.environ | variables, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
    )  # fmt: skip


def _wait_until_over(children: list[subprocess.Popen[str]]) -> None:
    until = time.monotonic() + 5
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))


def _ends_of(children: list[subprocess.Popen[str]], errors: IO[str], loss: str) -> str:
    """Return how the processes ended, and the last line they wrote that is not about the `loss` of another."""
    _wait_until_over(children)
    ends = []
    for index, child in enumerate(children, start=1):
        if code := child.poll():
            ends.append(f"; process {index} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}")
    errors.seek(0)
    lines = [f"; {line.strip()}" for line in errors if line.strip() and loss not in line]
    return "".join([*ends, *lines[-1:]])


def dismiss() -> None:
    """Tell the processes of `torchrun` that this command is over."""
    if launched() > 1:
        rendezvous().set(f"training/{len(_announced) + 1}", OVER)


# ---- the processes after the first ----


def follow_all() -> None:
    """Take part in every training that the first process announces. Raises InputError, or RankLost without it."""
    rank = number_by_launcher("RANK")
    if PARENT in os.environ:
        end_with_parent(number_by_launcher(PARENT))
    log.setLevel(logging.ERROR)  # the first process says everything once
    store, number = _store_of_launcher(False) if PARENT in os.environ else rendezvous(), 1
    store.set(f"ready/{rank}", "")
    while (text := _next(store, number)) is not None:
        _take_part(Training.read(text), store)
        number += 1


def _next(store: Any, number: int) -> str | None:
    """Wait for the announcement of a training; return None if the command is over, or its first process is gone."""
    key = f"training/{number}"
    try:
        while not store.check([key]):
            heed()
            time.sleep(WAIT)
        text = store.get(key).decode()
    except RuntimeError:  # the process that holds the store has ended
        return None
    return None if text == OVER else text


def _take_part(training: Training, store: Any) -> None:
    """Compute this process's part of a training or of a score.

    Text or pairs are opened before `group`, in which the processes wait for each other.
    """
    from workbench.data.corpus import corpus_of
    from workbench.data.prepare import prepare
    from workbench.tasks.minimal_pairs import PairSet
    from workbench.training import loop
    from workbench.training.distributed import group, part_of
    from workbench.training.plan import plan_of

    run, host = RunStore(Path(training.run).parent).get(Path(training.run).name), host_of_each(Host(**training.host))
    index, device, given = number_by_launcher("RANK"), host.resolved_device(), training.scoring
    if given is None:
        objectives.keep_sources(spec := run.spec().placed(host.places), run.path)
        corpus = corpus_of(prepare(spec), spec)
    else:
        pairs, tasks = PairSet(**given["pairs"]), TasksSpec(**given["tasks"])
    with group(part_of(store, f"group/{training.number}"), index, host.devices, device, seconds(), host.shard) as ranks:
        if given is None:
            loop.follow(spec, plan_of(run), corpus, host, ranks)
        else:
            with contextlib.suppress(InputError, Diverged):  # the first process raises and reports the same error
                take(pairs, Model(run.path / given["encoder"], tasks, ranks=ranks), host)


# ---- minimal pairs that all processes score ----

WORTH = 10_000  # pairs from which on it pays to start processes, which takes about as long as scoring these on a GPU


@contextlib.contextmanager
def scoring_together(run: RunDir, encoder: str, measure: Measure, tasks: TasksSpec, host: Host) -> Iterator[Ranks]:
    """Yield the processes that take a measure of an encoder in this run together; only minimal pairs are shared."""
    from workbench.training.distributed import ALONE

    shared = measure.shared() if host.devices > 1 else None
    if shared is None or not is_shared(shared[0], host):
        yield ALONE
        return
    error: Exception | None = None
    scoring = {"encoder": encoder, "pairs": shared[1], "tasks": tasks.model_dump(mode="json")}
    with together(run, host_of_each(host), scoring) as ranks:
        try:
            yield ranks
        except (InputError, Diverged) as raised:
            error = raised
    if error is not None:
        raise error


def is_shared(items: int, host: Host) -> bool:
    """Return whether to divide items among processes: if they run already, or on several GPUs if it saves time."""
    if host.devices == 1:
        return False  # processes on a CPU would share its cores, all of which the first one uses alone
    return launched() > 1 or (host.resolved_device().startswith("cuda") and items >= WORTH)
