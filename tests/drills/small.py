"""A small model, a small text, and the real command on them: in a process of its own, or forked from this one.

A fork has torch and transformers loaded already, so a drill can start, stop and kill a command hundreds of times.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TINY = (
    "encoder.hidden=32", "encoder.layers=2", "encoder.heads=2", "encoder.vocab=300", "encoder.positions=32",
    "data.length=32", "batch.size=8", "generator.width=0.5", "optim.lr=1e-3", "corruption.rate=0.15",
)  # fmt: skip
SETS = [part for setting in TINY for part in ("--set", setting)]
STEPS = 60  # of a run, unless a drill wants others
NOISY = ("seconds", "tokens_per_second", "saving_share")  # measured, not computed


def limit(seconds: float) -> float:
    """What a goal allows on a machine of its own; ten times that among other tests, where seconds say little."""
    return 10 * seconds if "PYTEST_CURRENT_TEST" in os.environ else seconds


def environment(cache: Path) -> dict[str, str]:
    """The variables of commands whose cache is `cache`; among tests, kernels and the built-in corpus are made once."""
    for name in ("docs", "kernels"):
        shared = Path(os.environ.get("WORKBENCH_CACHE", "")) / name
        if shared.is_symlink() and not (cache / name).exists():
            cache.mkdir(parents=True, exist_ok=True)
            (cache / name).symlink_to(shared.resolve())
    kept = {"WORKBENCH_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return {**os.environ, **kept}


def write_text(path: Path) -> Path:
    """A corpus of 300 short documents with enough order in it that a model can learn some."""
    rng = random.Random(0)
    names, verbs = ["the cat", "a dog", "one bird", "this fish", "my horse"], ["sees", "likes", "finds", "leaves"]
    places = ["in the garden", "near the river", "on a hill", "under the bridge", "by the old house"]
    documents = [
        "\n".join(
            f"{rng.choice(names)} {rng.choice(verbs)} {rng.choice(names)} {rng.choice(places)}."
            for _ in range(rng.randint(3, 9))
        )
        for _ in range(300)
    ]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def write_table(path: Path) -> Path:
    """A classification that one word decides: 60 rows to learn from, 40 to test on."""
    rng = random.Random(1)
    rows = ["text,label,split"]
    for index in range(100):
        word = rng.choice(["cat", "dog"])
        place = rng.choice(["in the garden", "near the river", "on a hill"])
        rows.append(f"the {word} number {index} is {place},{word},{'train' if index < 60 else 'test'}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def run_words(
    text: Path, objective: str | Path, runs: Path, steps: int = STEPS, tasks: str | Path = "none"
) -> list[str]:
    """A run with accumulation, dropout and over epoch borders, saved every seven steps."""
    given = ["run", "ablation", "--objective", objective, "--corpus", text, "--tasks", tasks]
    given += ["--budget", f"steps={steps}", "--threads", 1, "--micro-batch", 4, "--save-every", 7, "--runs", runs]
    given += ["--out", runs.parent / f"report-{runs.name}"]
    given += [*SETS, "--set", "encoder.dropout=0.1"]
    return [str(word) for word in given]


def rows_of(run: Path) -> list[dict[str, Any]]:
    """The rows of a run's log, without what is measured."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in NOISY} for row in rows]


def curve(runs: Path) -> list[dict[str, Any]]:
    """The rows of the one trained run in `runs`."""
    return rows_of(next(runs.glob("*/metrics.jsonl")).parent)


def scores_of(runs: Path) -> dict[str, float]:
    """Every score by run and file."""
    return {
        f"{path.parent.parent.name}/{path.name}": json.loads(path.read_text())["value"]
        for path in sorted(runs.glob("*/scores/*.json"))
    }


def weights(runs: Path) -> bytes:
    return next(runs.glob("[!u]*/encoder/model.safetensors")).read_bytes()


@dataclass(frozen=True)
class Forked:
    """A command that runs in a fork of this process."""

    pid: int
    said: Path

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 900.0) -> int:
        """Its exit code, minus the signal if that ended it. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        os.kill(self.pid, signal.SIGKILL)
        _, _, used = os.wait4(self.pid, 0)
        busy = used.ru_utime + used.ru_stime
        raise TimeoutError(f"still running after {seconds:g} s, {busy:.1f} s of processor time: {self.text}")

    def ended(self) -> bool:
        """Whether it ended by itself; `wait` still tells how."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def text(self) -> str:
        return self.said.read_text(errors="backslashreplace")


def preload() -> None:
    """What every command would spend seconds on."""
    import transformers.models.auto.modeling_auto
    import transformers.models.electra.modeling_electra  # noqa: F401

    import workbench.cli
    import workbench.execution.study_runner
    import workbench.models.export
    import workbench.report
    import workbench.tasks.common.classification
    import workbench.training.loop  # noqa: F401
    from workbench import objectives
    from workbench.spec.run_spec import RunSpec

    for name in objectives.names():
        objectives.load(RunSpec(objective=name))


def fork(
    words: list[str], folder: Path, cache: Path, out: Path | None = None, before: Callable[[], None] = lambda: None,
    **variables: str,
) -> Forked:  # fmt: skip
    """Begin `workbench WORDS` in `folder`, with `before` in the fork. What it prints goes to a file, or to `out`."""
    said = out.with_suffix(".err") if out else folder / "said.txt"
    pid = os.fork()
    if pid:
        return Forked(pid, said)
    try:
        os.environ.update(environment(cache) | variables)
        os.chdir(folder)
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(said, new), 2)
        os.dup2(os.open(out, new) if out else 2, 1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["workbench", *words]
        from workbench.cli import main

        before()
        main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))
    finally:
        os._exit(99)


def serve() -> None:
    """Carry out commands, one JSON line [words, folder, cache, out, variables] each, and answer with exit codes."""
    preload()
    for line in sys.stdin:
        words, folder, cache, out, variables = json.loads(line)
        sys.stdout.write(f"{fork(words, Path(folder), Path(cache), Path(out), **variables).wait()}\n")
        sys.stdout.flush()


Command = Callable[..., subprocess.CompletedProcess[str]]


@contextlib.contextmanager
def server(cache: Path, home: Path) -> Iterator[Command]:
    """Give a function that carries out `workbench WORDS` and returns its exit code and output.

    Each command is forked from one process that has torch and transformers loaded, as loading them takes longer than
    what most of these commands do. `cwd` is `home`, without reports of earlier commands, unless given; `ends` is the
    exit code that the command must have; other keywords are environment variables.
    """
    tests = Path(__file__).parents[1]
    paths = {"PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}  # this checkout's code, also in workers
    ask = [sys.executable, "-c", "from drills.small import serve; serve()"]
    said, numbers = home / "said", itertools.count()
    said.mkdir()
    with subprocess.Popen(
        ask, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(cache) | paths
    ) as process:
        assert process.stdin and process.stdout
        into, answers = process.stdin, process.stdout

        def command(
            *words: object, cwd: Path | None = None, ends: int | None = None, **more: str
        ) -> subprocess.CompletedProcess[str]:
            given, out = [str(word) for word in words], said / f"{next(numbers)}.out"
            if cwd is None:  # a report on another store would not be replaced
                shutil.rmtree(home / "reports", ignore_errors=True)
            into.write(json.dumps([given, str(cwd or home), str(cache), str(out), more]) + "\n")
            into.flush()
            code, errors = int(answers.readline()), out.with_suffix(".err").read_text()
            assert ends in (None, code), errors
            return subprocess.CompletedProcess(given, code, out.read_text(), errors)

        yield command
        into.close()


def done(words: list[str], folder: Path, cache: Path, **variables: str) -> tuple[int, str]:
    """Exit code and output of a command that is left to end."""
    child = fork(words, folder, cache, **variables)
    return child.wait(), child.text


def carry_out(words: list[str], folder: Path, cache: Path) -> float:
    """Seconds that a command takes. Raises AssertionError unless it ends with 0 and without a traceback."""
    begun = time.monotonic()
    code, told = done(words, folder, cache)
    assert code == 0 and "Traceback" not in told, (words, told)
    return time.monotonic() - begun
