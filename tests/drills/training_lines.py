"""Command lines that really train, search, measure or prepare, with hostile values in one or two places.

`grammar.command_lines` asks for plans; here a line that is valid is carried out, with a budget of a few steps. One that
asks for more is told to stop after a while, and must then end as any stopped command does.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from workbench.spec.run_spec import known_keys

from .fuzz import ODD, as_typed, judge
from .grammar import USUAL, begin, commands, try_lines
from .small import SETS, Forked, fork, limit, preload, write_table, write_text

SECONDS, ENDING, MEMORY = 20.0, 60.0, 3 << 30  # until a line is told to stop, from then to its end, and bytes at most
GIVEN = [*SETS, "--corpus", "small.txt", "--threads", "1", "--save-every", "2", "--budget", "steps=4"]
SHORT = ["--tasks", "animals.csv", "--set", "tasks.epochs=1", "--set", "tasks.seeds=1"]
RTD, MLM = ["--objective", "rtd"], ["--objective", "bert-mlm"]
LINES = {  # valid lines, which take a second or two
    "run": [
        ["run", "ablation", *RTD, "--tasks", "none", *GIVEN],
        ["run", "ablation", *MLM, *SHORT, *GIVEN],
        ["run", "ablation", *RTD, "--tasks", "none", *GIVEN, "--seeds", "2"],
    ],
    "sweep": [
        ["sweep", "--over", "optim.lr=1e-3,2e-3", *RTD, "--tasks", "none", *GIVEN],
        ["sweep", "weight-tying", *RTD, "--tasks", "none", *GIVEN],
        ["sweep", "tune", "--over", "optim.lr=1e-4..1e-3:log", "--trials", "2", *MLM, *SHORT, *GIVEN],
    ],
    "evaluate": [["evaluate", "encoder", *SHORT]],
    "data prepare": [["data", "prepare", *SETS, "--corpus", "small.txt"]],
}
SHARES = ("run", "run", "run", "sweep", "sweep", "sweep", "evaluate", "data prepare")
OFTEN = ("set_", "set_", "set_", "budget", "over", "tasks", "corpus")
NEAR = {  # values that an option nearly takes, or takes and has to work with, beside `grammar.USUAL`
    "budget": "steps=0 steps=1 tokens=1 tokens=300 tokens=1e308 flops=1 flops=1e8 flops=inf words=1 words=300 "
    "words=nan seconds=1 seconds=0 seconds=inf steps= steps=3,4",
    "match": "flops tokens words steps seconds none flop steps=3",
    "seeds": "0 2 auto 1e1 1001 1.0 -0",
    "most_seeds": "1 2 1001 3.0",
    "most_compute": "flops=1 flops=1e9 seconds=1 seconds=nan steps=3 flops=-1 flops=1e308",
    "most_epochs": "1e-9 0.01 1e9 1e308 1",
    "evaluate_at": "auto log:1 log:2 log:0 log:-1 log:1e9 log: log:nan words none",
    "device": "cpu cuda cuda:7 mps meta cpu:1 xla cuda:-1",
    "devices": "1 0 1025 2.0",
    "streams": "1 0 17 2",
    "precision": "fp32 bf16 fp16 float64",
    "micro_batch": "1 3 8 9 2147483648 2147483649",
    "threads": "1 4096 4097 2",
    "workers": "1 2 1024 1025",
    "save_every": "1 2147483648 2147483649",
    "track": "wandb none tensorboard",
    "scale": "nano huge bert-small",
    "trials": "1 0 100001 3",
    "sampler": "random qmc grid",
    "tuning_seeds": "2 0 1001",
    "storage": "pipe folder nowhere/x.log sqlite:///x.db sqlite:////dev/full x.log redis://[::1 mysql:// "
    "postgresql://u:p@127.0.0.1:1/x sqlite:///folder small.txt /dev/zero",
    "over": "seed=1,2 batch.size=4,8 tying=none,all, optim.lr=1e-400..1 optim.lr=1..1e400 lr=1,2 encoder.layers=1..2 "
    "encoder.layers=1.5..2 options.weight=1,50 objective=rtd,bert-mlm scale=nano,micro budget.share=0.5,1 "
    "budget.share=0,1 encoder.family=bert,electra data.length=16,32 seed=1..9 optim.lr=-1e308..1e308",
    "corpus": "pipe folder empty.txt folder/* bad.txt words.csv small.txt.gz /dev/fd/0 small.txt,small.txt docs",
    "tasks": "pairs pairs:replace linear probes pipe folder empty.txt pairs: glue blimp similarity:animals.csv "
    "choice:animals.csv retrieval:folder squad1 animals.csv,pairs:replace similarity:pipe choice:pipe tag:pipe",
    "objective": "bert-mlm all-tokens-mlm pipe folder ./folder ./pipe permutation-lm albert bert",
    "runs": "pipe folder small.txt/x /dev/full link fresh/a/b",
    "out": "pipe folder /dev/null/x link fresh/r small.txt",
    "experiment": "generator-size lambda mask-rate pipe ./pipe ./folder efficiency training-algorithm",
    "axis": "generator-size weight-tying tune pipe ./pipe biphasic",
    "encoder": "pipe folder empty.txt encoder/config.json runs google/electra-small-discriminator",
    "flops": "1e17 1e31 0",
    "launcher": "local slurm",
    "set_": "start.from=encoder start.from=pipe start.parent=bert-mlm data.tokenizer=pipe data.held_out=0.5 "
    "data.near_duplicates=0.8 data.tokenizer=encoder data.min_words=3 data.language=en data.column=text "
    "tasks.squad=pipe tasks.glue=pipe tasks.blimp=folder",
}
NUMBERS = [
    *("0", "1", "2", "3", "4", "-1", "0.5", "1e6", "2147483648", "9" * 25, "1e308", "1e-308", "1e-45", "nan", "inf"),
    *("-inf", "true", "none", "unset", "all", "bpe", "", "\u00fcn\u00ef", "\ud800"),
]


def training_lines(folder: Path, count: int) -> str:
    """Lines of `run`, `sweep`, `evaluate` and `data prepare` with one or two words changed, each carried out."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's library is imported; it tries again for a minute otherwise
    preload()
    options = {name: params for name, params in commands() if name in LINES}
    furnish(folder)
    begin(folder)
    told = try_lines(count, lambda draw: line(name := draw.choice(SHARES), options[name], draw), attempt, folder)
    return f"{count} lines of {len(options)} commands that train, measure or prepare: {told}; nothing half-written"


def furnish(folder: Path) -> None:
    """What the lines name: a text, a table, and things in the place of files."""
    write_text(folder / "small.txt")
    write_table(folder / "animals.csv")
    (folder / "empty.txt").touch()
    (folder / "bad.txt").write_bytes(bytes(range(256)) * 40)
    (folder / "small.txt.gz").write_bytes(b"\x1f\x8b\x08\x00cut")
    (folder / "words.csv").write_text("text\n" + "a word\n" * 500)
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("nowhere")


def line(name: str, params: list[Any], draw: random.Random) -> list[str]:
    """A valid line of this command with one or two hostile words: in place of an argument, or added as an option."""
    words = list(draw.choice(LINES[name]))
    place = len(name.split())
    for _ in range(draw.choice((1, 1, 2))):
        telling = [each for each in params if not getattr(each, "is_flag", False) or draw.random() < 0.1]
        often = [each for key in OFTEN for each in params if each.name == key]
        param = draw.choice(often if draw.random() < 0.5 else telling)
        value = as_typed(value_for(str(param.name), draw)).replace("\0", "")
        if param.param_type_name == "argument":
            if not words[place].startswith("--"):
                words[place] = value
        else:
            words = without(words, value) if param.name == "set_" else words
            words += [draw.choice(param.opts)] + ([] if getattr(param, "is_flag", False) else [value])
    return words


def without(words: list[str], setting: str) -> list[str]:
    """The words without an earlier value of the key that is set, which would be refused as given twice."""
    start = setting.partition("=")[0] + "="
    gone = [at for at, word in enumerate(words) if word.startswith(start) and words[at - 1] == "--set"]
    return [word for at, word in enumerate(words) if at not in gone and at + 1 not in gone]


def value_for(name: str, draw: random.Random) -> str:
    """A value that the option nearly takes, more often than one that no option takes."""
    if name == "set_" and draw.random() < 0.8:
        return f"{draw.choice([*known_keys(), 'options.weight'])}={draw.choice(NUMBERS)}"
    near = (NEAR.get(name, "") + " " + USUAL.get(name, "")).split()
    return draw.choice(near) if near and draw.random() < 0.8 else draw.choice(ODD)


def attempt(words: list[str], folder: Path) -> int:
    """The exit code of one line, 143 if it was told to stop. Raises AssertionError if it does not end as it should."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    child = fork(words, folder, folder / "cache", out=folder / "out.txt", BROWSER="true")
    code = ended(child)
    if code == 143:
        assert "the same command goes on" in child.text, child.text
    else:
        judge(words, 0 if code in (0, 1, 74) else code, child.text, 0.0)
        assert code == 0 or child.text.strip(), f"ended with {code} and without a word"
    left = [path for pattern in (".tmp-*", ".trash-*", "lease", ".*~*") for path in (folder / "runs").rglob(pattern)]
    left += [path for path in (folder / "cache").rglob(".*~*")]
    assert not left, f"{left} are left; {child.text}"
    return code


def ended(child: Forked) -> int:
    """The exit code of a child that is told to stop after a while. Raises AssertionError for too much memory."""
    end = time.monotonic() + SECONDS
    while not child.ended() and time.monotonic() < end:
        if (used := memory(child.pid)) > MEMORY:
            child.kill(signal.SIGKILL)
            child.wait()
            raise AssertionError(f"{used >> 20} MiB of memory: {child.text}")
        time.sleep(0.05)
    if not child.ended():
        child.kill(signal.SIGTERM)
    return child.wait(limit(ENDING))


def memory(pid: int) -> int:
    """Bytes of memory that a process and all below it have of their own."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = [int(row.split()[1]) << 10 for row in status.splitlines() if row.startswith("RssAnon:")]
    return sum(own) + sum(memory(int(each)) for each in below)
