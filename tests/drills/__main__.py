"""`python -m tests.drills [--quick] [GOAL ...]` runs the drills and prints a table of goals, figures and results.

Goals are those of the reliability table of the project. Some are held by tests of their own, which are run from here
by name. Each goal has a folder and a process of its own, so that none can spoil another. Exit code 1 if one fails.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "hypothesis")


@dataclass(frozen=True)
class Goal:
    """`drill` is "module.function" of this package, run with `full` or `quick` as its count, or else `tests` are run:

    words for pytest. Neither means that the goal needs what this machine may not have; `figure` then says what.
    """

    number: int
    figure: str
    drill: str = ""
    full: int = 1
    quick: int = 1
    tests: tuple[str, ...] = ()


PAGE, STORE = "tests/report/test_report_page.py", "tests/store/test_run_store.py"
VALIDATION, WANDB = "tests/store/test_validation.py", "tests/trackers/test_mirror.py"
# fmt: off
GOALS = (
    Goal(1, "SIGKILL at 50 instants: curve and weights bit-identical, all five objectives", "runs.killed_and_resumed",
         50, 1),
    Goal(1, "SIGKILL to a command and its two workers, with dropout: every run bit-identical", "runs.workers_killed",
         20, 1),
    Goal(1, "SIGKILL at the N-th rename, fsync, unlink and write of preparing, training, scoring, reporting",
         "injected.killed_at_calls", 8, 1),
    Goal(2, "200 SIGKILLs while saving and pruning: 0 acknowledged lost, 0 broken", "disk.killed_while_saving", 200,
         15),
    Goal(3, "disk full while saving, 20 times: 74 within 10 s, resumed identically", "runs.full_while_saving", 20, 1),
    Goal(4, "disk full while logging, 20 times: never 0 with rows missing", "runs.full_while_logging", 20, 1),
    Goal(5, "300 flipped bits and truncations: all seen, the one before taken", "disk.flipped_and_cut", 300, 80),
    Goal(5, "every file of the cache, damaged in 6 ways: told, made anew, never used", "damage.cache_files", 1000,
         18),
    Goal(6, "200 SIGKILLs at 100 Hz logging: at most the row in writing lost", "disk.killed_while_logging", 200, 20),
    Goal(7, "8 workers, 80 cells, 20 times: each exactly once", "cells.exactly_once", 20, 1),
    Goal(8, "8 workers, two kills a cell: all finished, none recorded twice", "cells.killed_workers", 80, 15),
    Goal(9, "owner stopped past its lease, 20 times: no late write", "cells.paused_owners", 20, 3),
    Goal(10, "clocks up to an hour off, 20 sweeps: no lease stolen", "cells.wrong_clocks", 20, 2),
    Goal(10, "the same, with leases seen late, as through a network disk, and kills", "cells.late_caches", 20, 1),
    Goal(11, "every POSIX lock refused: 80 of 80 cells once", "cells.without_locks", 80, 20),
    Goal(12, "wandb unreachable, silent or dying: the run goes on, closing gives up after 4 s", tests=(WANDB, "-k",
         "server or killed_midway or stands_still or nobody")),
    Goal(13, "data order after a resume: a pure function of the place", tests=("tests/data/test_corpus.py",)),
    Goal(14, "a changed setting never goes on silently: 50 keys", "runs.changed_settings", 50, 50),
    Goal(15, "NaN or inf at a random step, 20 times: diverged, the weights unchanged, the others done",
         "runs.diverged", 20, 1),
    Goal(16, "out of memory: effective batch kept, loss within 1e-5, retries recorded",
         tests=("tests/end_to_end/test_resume.py", "-k", "micro_batch or single_row")),
    Goal(17, "SIGINT, SIGTERM, SIGUSR1 at 50 instants: exit within 10 s, no child left", "runs.stopped_by_signals",
         50, 3),
    Goal(17, "SIGKILL, SIGTERM, SIGINT to a command with workers: they save and end", "runs.workers_end", 6, 2),
    Goal(17, "SIGHUP and SIGQUIT in preparing, training, scoring: resumed bit-identically", "runs.hung_up", 20, 2),
    Goal(17, "signals while fine-tuning, 20 times: the same scores afterwards", "runs.scoring_stopped", 20, 2),
    Goal(18, "1,000 random configurations: no traceback, no hang, the key named", "fuzz.configurations", 1000, 60),
    Goal(18, "1,000 random command lines: the same", "fuzz.command_lines", 1000, 20),
    Goal(18, "2,000 command lines by the grammar of the real options: the same", "grammar.command_lines", 2000, 30),
    Goal(18, "400 command lines that train, search, measure or prepare: the same, and nothing half-written",
         "training_lines.training_lines", 400, 12),
    Goal(19, "damaged run folders are named, the others stay readable", tests=(STORE, PAGE, VALIDATION,
         "tests/store/test_verify.py", "-k", "damage or ruins or listed")),
    Goal(19, "caches shared by namespaces of equal host names: no live folder is removed",
         tests=("tests/store/test_cache.py", "-k", "namespace or staging or elsewhere")),
    Goal(20, "hostile names in the report: nothing live, nothing loaded", tests=(PAGE, "-k", "hostile or alone")),
    Goal(21, "hostile names as paths: nothing outside the store", tests=(STORE, "tests/store/test_run_directory.py",
         "tests/store/test_atomic.py", "-k", "hostile or links or plain_name")),
    Goal(22, "30 malicious checkpoints, models, tokenizers, data sets: refused, not run", "hostile.pickles", 36, 18),
    Goal(22, "90 damaged or hostile encoder folders: refused in a sentence, before anything is built",
         tests=("tests/data/test_hugging_face_folders.py",)),
    Goal(22, "no pickle, eval, yaml.load or torch.load in the tree", tests=("tests/test_static.py",)),
    Goal(23, "40 YAML, deep, huge or endless files: refused at once within 200 MB", "hostile.endless", 44, 11),
    Goal(24, "offline, no flag set: all objectives, no attempt to connect", "runs.offline", 5, 1),
    Goal(25, "planted secrets are in no file of the store or the report", "runs.secrets", 6, 6),
    Goal(26, "200 pairs of equal or like-named runs at once: none overwritten", "runs.made_at_once", 200, 20),
    Goal(27, "a store of today's format opens, reports and resumes; others are refused by name",
         tests=("tests/store/test_old_stores.py", STORE, VALIDATION, "-k", "old or format or another_store")),
    Goal(28, "95 % intervals cover 93 % or more, false claims stay within 5 %",
         tests=("tests/report/statistics/test_paired_comparison.py", "tests/report/statistics/test_rule.py", "-k",
         "cover or false_claims", "-m", "not slow")),
    Goal(29, "one of the processes of a run killed, stopped, out of memory, 20 times: a sentence, and resumed",
         "lost_ranks.lost", 20, 3),
)
# fmt: on


def drill(name: str) -> Callable[[Path, int], str]:
    """A function of this package by name. It returns what it found, or raises AssertionError."""
    from importlib import import_module

    module, function = name.split(".")
    if module in ("runs", "lost_ranks") and function != "changed_settings":  # which begins no command
        import_module(f"{__package__}.small").preload()
    found: Callable[[Path, int], str] = getattr(import_module(f"{__package__}.{module}"), function)
    return found


def apart(goal: Goal, quick: bool) -> tuple[str, str]:
    """("met", "not met" or "not run", what was found) of a goal, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if goal.tests:
        words = ["-m", "pytest", "-p", "no:cacheprovider", *goal.tests]
    else:
        words = ["-m", "tests.drills", "--alone", goal.drill, str(goal.quick if quick else goal.full)]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=3000
    )
    last = [line for line in (done.stdout.strip() or done.stderr.strip()).splitlines() if line.strip()]
    if done.returncode == 3:
        return "not run", last[-1]
    if done.returncode:
        sys.stderr.write(f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}\n")
        return "not met", (done.stderr.strip().splitlines() or last)[-1][:200]
    return "met", last[-1].strip("= ") if not goal.tests else f"tests: {last[-1].partition(' in ')[0].strip('= ')}"


def alone(name: str, count: int) -> None:
    """Run one drill in this process. Exit code 3 where the machine lacks what it needs."""
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        try:
            sys.stdout.write(drill(name)(Path(folder), count) + "\n")
        except PermissionError as error:
            sys.stdout.write(f"{error}\n")
            sys.exit(3)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description=__doc__)
    parser.add_argument("goals", nargs="*", type=int, help="numbers of goals; all if none is given")
    parser.add_argument("--quick", action="store_true", help="reduced counts: minutes")
    parser.add_argument("--alone", nargs=2, metavar=("DRILL", "COUNT"), help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.alone:
        alone(asked.alone[0], int(asked.alone[1]))
        return 0
    chosen = [goal for goal in GOALS if not asked.goals or goal.number in asked.goals]
    facts = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    print(f"Python {platform.python_version()}, {', '.join(facts)}; {platform.system()} {platform.machine()}, "
          f"{os.cpu_count()} cores{'; reduced counts' if asked.quick else ''}\n")  # fmt: skip
    print("| # | goal | result | found | s |\n|---|---|---|---|---|", flush=True)
    failed = 0
    for goal in chosen:
        begun = time.monotonic()
        result, found = apart(goal, asked.quick)
        failed += result == "not met"
        line = found.replace("|", "/")
        print(f"| {goal.number} | {goal.figure} | {result} | {line} | {time.monotonic() - begun:.0f} |", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
