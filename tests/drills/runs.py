"""Drills on whole commands: killed, stopped by signals, out of disk, out of numbers, without a network."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.spec import presets
from workbench.spec.parts import COUNTS
from workbench.spec.run_spec import RunSpec, known_keys
from workbench.spec.stages import BoundRun
from workbench.store.owner import process
from workbench.store.run_store import RunStore

from .small import (
    SETS,
    STEPS,
    carry_out,
    curve,
    done,
    environment,
    fork,
    limit,
    rows_of,
    run_words,
    scores_of,
    weights,
    write_table,
    write_text,
)

OBJECTIVES = ("rtd", "all-tokens-mlm", "bert-mlm", "replace-mlm", "electra-15")


def killed_and_resumed(folder: Path, count: int) -> str:
    """Goal 1: SIGKILL at random instants; curve and weights end as if nothing had happened.

    The first kill of every run, and every other one after it, falls where a checkpoint stands and steps are missing,
    so that the next command has to go on from there; the others fall anywhere between start and end.
    """
    text, cache, draw = write_text(folder / "small.txt"), folder / "cache", random.Random(count)
    share, kills = max(1, count // len(OBJECTIVES)), 0
    for objective in OBJECTIVES[: -(-count // share)]:
        whole, killed = folder / f"{objective}-whole", folder / f"{objective}-killed"
        length = carry_out(run_words(text, objective, whole), folder, cache)
        for number in range(share):
            words = run_words(text, objective, killed)
            if number % 2 == 0:
                killed_midway(words, killed, folder, cache, draw)
            else:
                child = fork(words, folder, cache)
                time.sleep(draw.uniform(0, 0.9) * length)
                child.kill(signal.SIGKILL)
                if child.wait() == 0:  # it was faster: once more from the start
                    shutil.rmtree(killed)
            kills += 1
        carry_out(run_words(text, objective, killed), folder, cache)
        assert curve(killed) == curve(whole), f"{objective}: another curve"
        assert weights(killed) == weights(whole), f"{objective}: other weights"
    return f"{kills} kills, {share} a run; curves and weights bit-identical in all"


def killed_midway(words: list[str], runs: Path, folder: Path, cache: Path, draw: random.Random) -> None:
    """Kill the command after a random one of its checkpoints and before the last; begin anew where that is missed."""
    for _ in range(20):
        before = newest(runs)
        child, wanted = fork(words, folder, cache), before + 7 * draw.randint(1, max(1, (42 - before) // 7))
        while newest(runs) < wanted and not child.ended():
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.005))
        child.kill(signal.SIGKILL)
        child.wait()
        if 0 < newest(runs) < STEPS:
            return
        shutil.rmtree(runs)  # it was faster: once more from the start
    raise AssertionError("no kill fell between the first checkpoint and the last")


def newest(runs: Path) -> int:
    """The step of the newest checkpoint of the one run in `runs`; 0 without one."""
    return max((int(path.name.removeprefix("step-")) for path in runs.glob("*/checkpoints/step-*")), default=0)


def stopped_by_signals(folder: Path, count: int) -> str:
    """Goal 17: SIGINT, SIGTERM and SIGUSR1 at random instants of preparing, training and fine-tuning."""
    text, table, draw = write_text(folder / "small.txt"), write_table(folder / "animals.csv"), random.Random(count)
    words = run_words(text, "rtd", folder / "runs", steps=40, tasks=table)
    length, slowest, late = carry_out(words, folder, folder / "cache"), 0.0, 0
    for number in range(count):
        kind = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)[number % 3]
        shutil.rmtree(folder / "runs", ignore_errors=True)
        cache = folder / ("cache" if number % 4 else f"cache-{number}")  # a new one has its text to prepare
        child = fork(words, folder, cache)
        time.sleep(0.05 + draw.uniform(0, 0.9) * length)
        asked = time.monotonic()
        child.kill(kind)
        code = child.wait(limit(60))
        slowest = max(slowest, time.monotonic() - asked)
        if code == 0:
            late += 1
            continue
        assert code == (130 if kind == signal.SIGINT else 143), (kind, code, child.text)
        assert "the same command goes on" in child.text and "Traceback" not in child.text, child.text
        left = [path for path in [*cache.rglob(".*~*"), *(folder / "runs").rglob("lease")] if path.exists()]
        assert not left, left
        assert not children(child.pid), "children are left"
        for draft in (folder / "runs").glob("*/.tmp-*"):
            raise AssertionError(f"{draft} was left half-written")
    assert slowest < limit(10), f"{slowest:.1f} s"
    return f"{count - late} of {count - late} stopped with code and sentence, the slowest after {slowest:.1f} s"


def hung_up(folder: Path, count: int) -> str:
    """Goal 17: SIGHUP ends a command like SIGTERM, SIGQUIT at once, while it prepares, trains or scores; the same

    command then ends with the curve, weights and scores of an undisturbed one.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored, which child processes inherit
    text, table, draw = write_text(folder / "small.txt"), write_table(folder / "animals.csv"), random.Random(count)

    def words(runs: Path) -> list[str]:
        return run_words(text, "rtd", runs, tasks=table)

    whole, broken, hits, length = folder / "whole", folder / "broken", 0, 0.0
    for turn in ("first", "second"):  # the first command also compiles
        shutil.rmtree(whole, ignore_errors=True)
        length = carry_out(words(whole), folder, folder / turn)
    for number in range(2 * count):  # more than `count` only where a command ended before its signal came
        if hits == count:
            break
        kind, cache = (signal.SIGHUP, signal.SIGQUIT)[number % 2], folder / f"cache-{number}"
        shutil.rmtree(broken, ignore_errors=True)
        share, begun = draw.uniform(0.02, 0.7), time.monotonic()
        child = fork(words(broken), folder, cache)
        while not child.ended() and time.monotonic() < begun + share * length:
            time.sleep(0.01)
        length = time.monotonic() - begun if child.ended() else length  # it was longer while the machine was busy
        child.kill(kind)
        code = child.wait(limit(60))
        hits += code != 0
        if kind == signal.SIGHUP and code:
            assert code == 143 and "the same command goes on" in child.text, (code, child.text)
            left = [*cache.rglob(".*~*"), *broken.rglob("lease"), *broken.glob("*/.tmp-*")]
            assert not left, f"{left} are left"
        else:
            assert code in (0, -signal.SIGQUIT), (code, child.text)
        carry_out(words(broken), folder, cache)
        assert curve(broken) == curve(whole) and weights(broken) == weights(whole), f"{kind.name}: another result"
        assert scores_of(broken) == scores_of(whole), f"{kind.name}: other scores"
        assert not list(broken.glob("*/unfinished/*")), "the state of a fine-tuning is left"
    assert 2 * hits >= count, f"only {hits} of {count} were stopped"
    return f"{hits} of {count} stopped while preparing, training or scoring; all ended as undisturbed"


def workers_killed(folder: Path, count: int) -> str:
    """Goal 1: two workers with dropout, killed with their command at random instants; every run ends as undisturbed."""
    text, cache, draw = write_text(folder / "small.txt"), folder / "cache", random.Random(count)
    whole, killed = folder / "whole", folder / "killed"

    def words(runs: Path) -> list[str]:
        return [*run_words(text, "rtd", runs), "--objective", "bert-mlm", "--workers", "2", "--seeds", "2"]

    length = carry_out(words(whole), folder, cache)
    for _ in range(count):
        child = fork(words(killed), folder, cache)
        time.sleep(draw.uniform(0.2, 0.9) * length)
        workers = children(child.pid)
        for pid in (child.pid, *workers):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()
    carry_out(words(killed), folder, cache)
    for run in sorted(whole.glob("*-s?-*/metrics.jsonl")):
        other = killed / run.parent.name
        assert rows_of(run.parent) == rows_of(other), f"{run.parent.name}: another curve"
        ours, theirs = (each / "encoder/model.safetensors" for each in (run.parent, other))
        assert ours.read_bytes() == theirs.read_bytes(), f"{run.parent.name}: other weights"
    return f"{count} kills of a command and its two workers: every run ended as undisturbed"


def scoring_stopped(folder: Path, count: int) -> str:
    """Goal 17: signals during fine-tuning; the same command goes on to the scores of an undisturbed one."""
    text, table, cache = write_text(folder / "small.txt"), write_table(folder / "animals.csv"), folder / "cache"
    draw, trained = random.Random(count), folder / "trained"
    carry_out(run_words(text, "rtd", trained, steps=7), folder, cache)

    def words(runs: Path) -> list[str]:
        given = run_words(text, "rtd", runs, steps=7, tasks=table)
        return [*given, "--set", "tasks.epochs=20", "--set", "tasks.seeds=3", "--out", str(folder / "report")]

    kinds = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGQUIT)
    whole, stopped, hits = folder / "whole", folder / "stopped", 0
    shutil.copytree(trained, whole)
    length = carry_out(words(whole), folder, cache)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        shutil.rmtree(stopped, ignore_errors=True)
        shutil.copytree(trained, stopped)
        child = fork(words(stopped), folder, cache)
        time.sleep(draw.uniform(0.1, 0.8) * length)
        child.kill(kind)
        code = child.wait(limit(60))
        assert code in (0, -signal.SIGKILL, -signal.SIGQUIT, 130, 143), (kind, code, child.text)
        hits += code != 0
        carry_out(words(stopped), folder, cache)
        assert scores_of(stopped) == scores_of(whole), f"{kind}: other scores"
    return f"{hits} of {count} stopped while fine-tuning or around it: the scores of an undisturbed command"


def workers_end(folder: Path, count: int) -> str:
    """Goal 17: whatever ends a command that shares its work, SIGKILL included, its workers save and end as well."""
    text, slowest = write_text(folder / "small.txt"), 0.0
    for number in range(count):
        kind = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number % 3]
        runs = folder / f"runs-{number}"
        words = run_words(text, "rtd", runs, steps=100_000)
        words += ["--workers", "2", "--seeds", "2"]
        child = fork(words, folder, folder / "cache")
        while len({path.parent for path in runs.glob("*/checkpoints/step-*")}) < 2:
            time.sleep(0.05)
        workers = children(child.pid)
        assert len(workers) == 2, workers
        asked = time.monotonic()
        child.kill(kind)
        code = child.wait(limit(60))
        assert code == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[kind], (kind, code, child.text)
        while any(process(pid) for pid in workers):
            assert time.monotonic() - asked < limit(30), "workers are left"
            time.sleep(0.05)
        slowest = max(slowest, time.monotonic() - asked)
        for lease in runs.glob("*/lease"):
            raise AssertionError(f"after {kind!r} a worker left {lease.read_text()}\n{child.text}")
        for run in runs.glob("rtd-*"):
            last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
            assert (run / "checkpoints" / f"step-{last:08d}").is_dir(), "what was trained is not saved"
    assert slowest < limit(10), f"{slowest:.1f} s"
    return f"{count} of {count}: all workers saved and ended, the slowest after {slowest:.1f} s"


def children(pid: int) -> list[int]:
    """Processes whose session or parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX" and pid in (int(fields[1]), int(fields[3])):
            found.append(int(stat.parent.name))
    return found


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A tmpfs; raises PermissionError where this user may mount none."""
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        raise PermissionError("no small disk can be mounted by this user")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def leave(disk: Path, room: int) -> None:
    """Fill the disk until `room` bytes are free; a process told to stop may take some of them before it does."""
    with open(disk / "filler", "wb", buffering=0) as filler:
        with suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        filler.truncate(max(0, filler.tell() - room))


def full_while_saving(folder: Path, count: int) -> str:
    """Goal 3: the last good checkpoint stays, 74 and a sentence, and after making room the run ends as undisturbed."""
    text, cache, slowest = write_text(folder / "small.txt"), folder / "cache", 0.0
    carry_out(run_words(text, "rtd", folder / "whole"), folder, cache)
    for number in range(count):
        with small_disk(folder, "24m") as disk:
            words = run_words(text, "rtd", disk / "runs")
            child = fork(words, folder, cache)
            while not list(disk.glob("runs/*/checkpoints/step-*")):
                time.sleep(0.002)
            child.kill(signal.SIGSTOP)
            leave(disk, 4096 * (number * 7 % 100))
            child.kill(signal.SIGCONT)
            begun = time.monotonic()
            code, said = child.wait(limit(60)), child.text
            slowest = max(slowest, time.monotonic() - begun)
            assert code == 74, (code, said)
            assert re.search(r"\d+ bytes are needed and \d+ are free", said), said
            assert str(disk) in said and "Traceback" not in said, said
            assert list(disk.glob("runs/*/checkpoints/step-*")), "no checkpoint is left"
            (disk / "filler").unlink()
            carry_out(words, folder, cache)
            assert curve(disk / "runs") == curve(folder / "whole"), "another curve"
            assert weights(disk / "runs") == weights(folder / "whole"), "other weights"
    assert slowest < limit(10), f"{slowest:.1f} s"
    return f"{count} of {count} ended with 74 and a sentence, {slowest:.1f} s at most, and resumed identically"


def full_while_logging(folder: Path, count: int) -> str:
    """Goal 4: a command whose rows do not fit never exits with 0, and what it acknowledged is there."""
    text, cache = write_text(folder / "small.txt"), folder / "cache"
    for number in range(count):
        with small_disk(folder, "16m") as disk:
            words = run_words(text, "bert-mlm", disk / "runs", steps=400)
            words[words.index("--save-every") + 1] = "100000"
            child = fork(words, folder, cache)
            while not any(log.stat().st_size for log in disk.glob("runs/*/metrics.jsonl")):  # the room was seen to
                time.sleep(0.002)
            child.kill(signal.SIGSTOP)
            leave(disk, 4096 * number)
            child.kill(signal.SIGCONT)
            code, said = child.wait(120), child.text
            assert code == 74 and "metrics.jsonl" in said and "Traceback" not in said, (code, said)
            assert not list(disk.glob("runs/*/done.json"))
            steps = [row["step"] for row in curve(disk / "runs")]
            assert steps == list(range(1, len(steps) + 1)), steps
    return f"{count} of {count} ended with 74; no row was missing from what is there"


NAN = '''"""RTD whose loss is not finite at one step."""

from workbench.objectives import rtd
from workbench.objectives.rtd import Options, cost
from workbench.tensors import StepLoss


class Objective(rtd.Objective):
    steps = 0

    def forward(self, batch):
        loss = super().forward(batch)
        self.steps += 1
        return StepLoss(loss.total * float("{kind}"), loss.parts, loss.metrics) if self.steps == {micro} else loss
'''


def diverged(folder: Path, count: int) -> str:
    """Goal 15: NaN or inf at a random step: diverged, its step and rows named, and the next run still done."""
    text, cache, draw = write_text(folder / "small.txt"), folder / "cache", random.Random(count)
    for number in range(count):
        here = folder / str(number)
        here.mkdir()
        step = draw.randint(1, 30)
        kind = ("nan", "inf", "-inf")[number % 3]
        (here / "broken.py").write_text(NAN.format(kind=kind, micro=2 * step - number % 2))
        words = run_words(text, here / "broken.py", here / "runs", steps=30)
        words[2:2] = ["--objective", "bert-mlm"]
        code, said = done(words, here, cache)
        run = next((here / "runs").glob("broken-*"))
        error = json.loads((run / "error.json").read_text())
        assert code == 1 and error["kind"] == "diverged" and error["step"] == step, (code, step, error)
        assert f"rows {8 * (step - 1)} to {8 * step - 1}" in error["message"], error
        saved = sorted(int(path.name[5:]) for path in run.glob("checkpoints/step-*"))
        assert f"the last checkpoint is of step {saved[-1] if saved else 0}" in error["message"], error
        assert all(each < step for each in saved), "the weights changed after the bad step"
        assert next((here / "runs").glob("bert-mlm-*/done.json")), said
    return f"{count} of {count} stopped before the weights changed; the other run of each was done"


def offline(folder: Path, count: int) -> str:
    """Goal 24: all objectives in an empty network namespace, without a flag; strace sees no attempt to connect."""
    text, table = write_text(folder / "small.txt"), write_table(folder / "animals.csv")
    words = ["run", "ablation", "--corpus", text, "--tasks", table, "--budget", "steps=4", "--threads", 1, *SETS]
    words += [part for name in OBJECTIVES[:count] for part in ("--objective", name)]
    variables = {k: v for k, v in environment(folder / "cache").items() if not k.startswith("HF_")}
    command = [sys.executable, "-m", "workbench", *map(str, words)]
    if shutil.which("strace"):
        command = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", str(folder / "calls"), *command]
    if shutil.which("unshare"):
        command = ["unshare", "-n", *command]
    found = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=600)
    assert found.returncode == 0, found.stderr
    calls = (folder / "calls").read_text() if (folder / "calls").is_file() else ""
    assert "AF_INET" not in calls, calls
    begun = time.monotonic()
    missing = [sys.executable, "-m", "workbench", "run", "ablation", "--corpus", "someone/something", "--tasks", "none"]
    if shutil.which("unshare"):
        missing = ["unshare", "-n", *missing]
    variables["HF_HUB_OFFLINE"] = "1"
    found = subprocess.run(missing, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 2 and "someone/something" in found.stderr and found.stderr.count("\n") == 1
    named = time.monotonic() - begun
    return f"{count} objectives trained and measured, no attempt to connect; missing data named in {named:.1f} s"


def secrets(folder: Path, count: int) -> str:
    """Goal 25: tokens planted in variables, netrc and addresses are in no file of the run, the store or the report."""
    text, table = write_text(folder / "small.txt"), write_table(folder / "animals.csv")
    planted = [f"planted{number}-{random.Random(number).getrandbits(64):016x}" for number in range(count)]
    names = ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "OPENAI_API_KEY")
    variables = dict(zip(names, planted, strict=False)) | {"NETRC": str(folder / "netrc")}
    (folder / "netrc").write_text(f"machine example.org login me password {planted[-1]}\n")
    (folder / "netrc").chmod(0o600)
    idea = folder / "idea.py"
    fault = f'raise RuntimeError("https://me:{planted[-2]}@example.org/x?api_key={planted[0]}")'
    idea.write_text(NAN.format(kind="1", micro=-1).replace("self.steps += 1", fault))
    words = run_words(text, "rtd", folder / "runs", steps=4, tasks=table)
    words[2:2] = ["--objective", str(idea)]
    words[words.index("steps=4")] = "tokens=2e3"
    words += ["--out", str(folder / "report")]
    code, said = done(words, folder, folder / "cache", **variables)
    assert code == 1 and (folder / "report" / "index.html").is_file(), said
    files = [path for part in ("runs", "report") for path in (folder / part).rglob("*") if path.is_file()]
    assert files
    for path in [*files, folder / "said.txt"]:
        content = path.read_bytes()
        if path.name != "objective.py":  # the person's own source, kept as it is
            assert not [word for word in planted if word.encode() in content], path
    record = next((folder / "runs/experiments").glob("*.json")).read_text()
    assert "tokens=2e3" in record, "a budget is no secret"
    return f"{len(planted)} planted, in 0 of {len(files)} files"


def changed_settings(folder: Path, count: int) -> str:
    """Goal 14: every key that decides a run gives it another folder, and a folder of another run is refused."""
    store = RunStore(folder / "runs")
    base = presets.resolve("nano", {"corruption.generator_mask": 0.5})  # leaves room for random words
    run = store.open(BoundRun(base))
    wanted, keys = run.path / "spec.json", [key for key in known_keys() if key not in NOT_THE_RUN]
    tried = 0
    for key in (keys * count)[: max(count, len(keys))]:
        needed = {"schedule.kind": "cosine"} if key == "schedule.floor" else {}  # without which only 0 is allowed
        for value in _others(base, key):
            try:
                other = base.changed({**needed, key: value})
            except InputError:
                continue
            assert other.name != base.name, f"{key}={value} would go on silently"
            place = store.root / other.name
            shutil.copytree(run.path, place, dirs_exist_ok=True)  # as if someone had renamed the folder
            record = json.loads(wanted.read_text()) | {"run_id": other.name}
            (place / "spec.json").write_text(json.dumps(record))
            try:
                store.open(BoundRun(other))
            except InputError as error:
                assert key.partition(".")[0] in str(error) or "hash" in str(error), error
            else:
                raise AssertionError(f"{key}={value} went on silently")
            shutil.rmtree(place)
            tried += 1
            break
        else:
            raise AssertionError(f"no other value of {key} was found")
    return f"{tried} of {tried} changed keys refused by name"


# Fine-tuning, parents (there is none), labels, options of plug-ins, and budgets beside the one there is.
NOT_THE_RUN = {key for key in known_keys() if key.startswith(("tasks.", "start."))}
NOT_THE_RUN |= {"scale", "options", "encoder.options", *COUNTS}
NOT_THE_RUN |= {"budget.steps", "budget.tokens", "budget.words", "budget.seconds"}


def _others(base: RunSpec, key: str) -> list[Any]:
    now: Any = base.model_dump()
    for part in key.split("."):
        now = now.get(part) if now is not None else None  # a hash of a file is left out where there is none
    words = "none all tokens eager next wsd dense released uniform normal paper bert lamb abc"
    numbers = [now * 2, now + 1, now / 2] if isinstance(now, (int, float)) and not isinstance(now, bool) else []
    return (
        [not now]
        if isinstance(now, bool)
        else [each for each in [*numbers, 7, 0.5, *words.split(), True] if each != now]
    )


def made_at_once(folder: Path, count: int) -> str:
    """Goal 26: two processes make a run at the same instant: one folder for equal specs, two for others, all whole."""
    store = RunStore(folder / "runs")
    for number in range(count):
        first = RunSpec(seed=number)
        specs = [first, first.replace(budget={"steps": 7}) if number % 2 else first]
        reader, writer = os.pipe()
        pids = []
        for spec in specs:
            pids.append(os.fork())
            if not pids[-1]:
                os.close(writer)
                os.read(reader, 1)  # both go on when the pipe is closed
                try:
                    os._exit(0 if store.open(BoundRun(spec)).spec() == spec else 2)
                except BaseException:
                    os._exit(1)
        os.close(writer)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        os.close(reader)
        assert codes == [0, 0], codes
    found = store.runs()
    assert len(found) == count + count // 2 and all(run.damage is None for run in found), len(found)
    return f"{count} pairs: {len(found)} folders, as many as different specs, all whole"
