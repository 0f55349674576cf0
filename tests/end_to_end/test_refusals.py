"""Bad input: one sentence on stderr that names the thing, exit code 2, and nothing left on disk."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench import __version__
from workbench.store.atomic import sealed

from .conftest import SETS, Command

CASES: dict[str, tuple[list[str], str]] = {
    "objective": (["run", "ablation", "--objective", "rtdd"], "did you mean 'rtd'"),
    "experiment": (["run", "ablatoin"], "did you mean 'ablation'"),
    "plan of a parent that ended": (
        ["encode-slices", "nowhere.json", "--parent", "2_000"],
        "no plan of a text's slices",
    ),
    "setting that no task reads": (["run", "ablation", "--set", "tasks.folds=5", "--dry-run"], "no effect on --tasks"),
    "table of a dry run": (
        ["run", "ablation", "--tasks", "nowhere.csv", "--dry-run"],
        "--tasks nowhere.csv: there is no",
    ),
    "scale": (["run", "ablation", "--scale", "smal"], "did you mean 'small'"),
    "task": (["run", "ablation", "--tasks", "CoLAA"], "did you mean 'CoLA'"),
    "key": (["run", "ablation", "--set", "encoder.hiden=3"], "did you mean 'encoder.hidden'"),
    "value": (["run", "ablation", "--set", "optim.lr=fast"], "optim.lr"),
    "option": (["run", "ablation", "--set", "options.copy_los=1"], "options.copy_loss"),
    "budget": (["run", "ablation", "--budget", "tokens=lots"], "lots"),
    "small budget": (["run", "ablation", "--budget", "tokens=10"], "less than one step"),
    "huge budget": (["run", "ablation", "--budget", "steps=1e300"], "steps"),
    "huge vocabulary": (["run", "ablation", "--set", "encoder.vocab=1e12"], "encoder.vocab"),
    "huge width": (["sweep", "--over", f"encoder.hidden=64,{10**30}", "--dry-run"], f"encoder.hidden={10**30}"),
    "many layers": (["run", "ablation", "--set", f"encoder.layers={10**9}", "--dry-run"], "encoder.layers"),
    "tiny vocabulary": (["run", "ablation", "--set", "encoder.vocab=5", "--dry-run"], "encoder.vocab"),
    "no corpus": (["run", "ablation", "--set", "data.corpus=", "--dry-run"], "data.corpus"),
    "many seeds": (["run", "ablation", "--seeds", "1000000000"], "--seeds"),
    "many fine-tunings": (["run", "ablation", "--set", "tasks.seeds=1000000000"], "tasks.seeds"),
    "many threads": (["run", "ablation", "--threads", "1000000000"], "--threads"),
    "chart place": (
        ["bench", "--objective", "rtd", "--scale", "nano", "--out", "/dev/null"],
        "give --out a folder that can be made",
    ),
    "many runs": (
        [
            "sweep",
            "--over",
            "optim.lr=" + ",".join(f"{n}e-9" for n in range(1, 1000)),
            "--over",
            "batch.size=" + ",".join(map(str, range(1, 201))),
        ],
        "199,800 runs",
    ),
    "an option as a value": (["run", "ablation", "--runs", "--dry-run"], "--runs is followed by --dry-run"),
    "an option as a repeated value": (["run", "ablation", "--set", "--plain"], "--set is followed by --plain"),
    "plain and compiled": (["run", "ablation", "--plain", "--compile", "--dry-run"], "contradict each other"),
    "a sampler without a search": (["sweep", "generator-size", "--sampler", "qmc", "--dry-run"], "give --trials N"),
    "a storage without a search": (["sweep", "generator-size", "--storage", "sqlite:///x.db"], "give --trials N"),
    "micro-batch": (["run", "ablation", "--micro-batch", "5"], "--micro-batch 5 does not divide batch.size=32"),
    "micro-batch of two workers": (["run", "ablation", "--micro-batch", "5", "--workers", "2"], "--micro-batch 5"),
    "seeds as an axis": (["sweep", "--over", "seed=1,2"], "--seeds N"),
    "home of nobody as text": (["run", "ablation", "--corpus", "~nobodyx/x", "--tasks", "none"], "~nobodyx"),
    "a line end in a name": (["status", "--runs", "no\nruns"], "no\\nruns"),
    "home of nobody as runs": (["status", "--runs", "~nobodyx/x"], "~nobodyx"),
    "home of nobody as table": (["run", "ablation", "--tasks", "~nobodyx/x.csv"], "~nobodyx"),
    "home of nobody as objective": (["run", "ablation", "--objective", "~nobodyx/x.py"], "~nobodyx"),
    "report to a file": (["run", "ablation", "--out", "/dev/null/x"], "/dev/null/x"),
    "long folder": (["evaluate", "x" * 3000], "File name too long"),
    "long name": (["run", "a" * 5000], "unknown experiment"),
    "corpus": (["run", "ablation", "--corpus", "/no/such/file.txt", "--tasks", "none"], "/no/such/file.txt"),
    "tying": (["run", "ablation", "--set", "tying=all", "--set", "generator.width=0.5"], "generator.width"),
    "device": (["run", "ablation", "--device", "cuda"], "CUDA"),
    "precision": (["run", "ablation", "--precision", "fp8"], "fp8"),
    "warm-up": (["run", "ablation", "--budget", "steps=10", "--set", "schedule.warmup=20"], "schedule.warmup"),
    "glue": (["run", "ablation", "--tasks", "CoLA", "--set", "tasks.glue=/no/such/folder"], "/no/such/folder"),
    "list": (["list", "objektives"], "objectives"),
    "an empty word": (["run", "ablation", "--runs", ""], "nothing is written after --runs"),
    "an empty value": (["run", "ablation", "--tasks="], "nothing is written after --tasks="),
    "no task": (["run", "ablation", "--tasks", ","], "--tasks names no task"),
    "report in the store": (
        ["run", "ablation", "--runs", "here", "--out", "here/x"],
        "here/x lies in the store",
    ),
    "report in the store by default": (["run", "ablation", "--runs", "."], "--out"),
    "report of old in the store": (["report", "ablation", "--runs", "here", "--out", "here/../here"], "lies in the"),
    "folder that takes no files": (["run", "ablation", "--runs", "/proc"], "/proc"),
    "command": (["rnu"], "rnu"),
    "flag": (["run", "ablation", "--seed", "3"], "--seed"),
    "report": (["report", "ablation", "--runs", "no-runs-here"], "no-runs-here"),
    "evaluate": (["evaluate", "no-encoder-here"], "no-encoder-here"),
    "a word that is not UTF-8": (["run", "ablation", "--set", "data.column=caf\udce9"], "is not valid UTF-8"),
    "a store thousands of folders deep": (["run", "ablation", "--runs", "a/" * 1500 + "b"], "--runs"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_nothing_written(case: str, workbench: Command, tmp_path: Path) -> None:
    words, named = CASES[case]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert named in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_hostile_names_in_messages_results_and_warnings(workbench: Command, tmp_path: Path) -> None:
    """The names come from the command line, from a folder and from a task's column."""
    name = "x\x1b[31m\x07y\nz"
    for words in (
        ["list", name], ["flops", "--objective", name], ["data", "prepare", "--corpus", name], [name],
        ["status", "--runs", name], ["flops", "--set", f"{name}=1"], ["run", "ablation", "--tasks", name, "--dry-run"],
    ):  # fmt: skip
        done = workbench(*words, cwd=tmp_path)
        both = done.stdout + done.stderr
        assert done.returncode == 2 and done.stderr.count("\n") == 1, both
        assert "\x1b" not in both and "\x07" not in both and "31m" in both


def test_a_text_that_is_not_utf8_is_named_with_its_offset(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good text here\n\nmore \xff text\n" * 50)
    done = workbench("run", "ablation", "--corpus", "bad.txt", "--tasks", "none", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and "bad.txt" in done.stderr and "21" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("workbench: ")


def test_a_corpus_too_small_for_a_batch(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("only a few words\n")
    done = workbench("run", "ablation", "--corpus", "few.txt", "--tasks", "none", *SETS, cwd=tmp_path)
    assert done.returncode == 2 and "too small" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_is_a_disk_error(workbench: Command, text: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    done = workbench("run", "ablation", "--corpus", text, "--runs", tmp_path / "closed/runs", *SETS, cwd=tmp_path)
    assert done.returncode == 74


def test_an_objective_file_with_a_mistake(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "idea.py").write_text("def cost(spec):\n    return 0\n")
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and "Options" in done.stderr and "Objective" in done.stderr
    (tmp_path / "idea.py").write_text("raise SystemExit(3)\n")
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and "idea.py, line 1: SystemExit" in done.stderr
    (tmp_path / "idea.py").write_text("class Odd(BaseException): pass\nraise Odd('two\\nlines')\n")
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert (
        done.returncode == 2
        and done.stderr.endswith("idea.py, line 2: Odd: two lines\n")
        and done.stderr.count("\n") == 1
    )
    (tmp_path / "idea.py").write_text("def cost(spec)\n")
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and "idea.py, line 1" in done.stderr and "Traceback" not in done.stderr


def test_a_setting_that_an_axis_overrules_is_said(workbench: Command, tmp_path: Path) -> None:
    words = ["sweep", "weight-tying", "--set", "generator.width=0.5", "--tasks", "none", "--dry-run"]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0 and "--set generator.width=0.5 has no effect on weight-tying" in done.stderr
    done = workbench(*words, "--over", "generator.width=0.5", "--set", "tying=tokens", cwd=tmp_path)
    assert "generator.width=0.5 has no effect" not in done.stderr and "--set tying=tokens has no effect" in done.stderr


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_scorer_that_an_arm_lacks_is_refused_before_training(
    more: list[str], workbench: Command, text: Path, tmp_path: Path
) -> None:
    words = ["run", "ablation", "--corpus", text, "--tasks", "pairs", "--set", "tasks.scorers=originality", *SETS]
    done = workbench(*words, "--budget", "steps=2", *more, cwd=tmp_path)
    assert done.returncode == 2 and "the objective bert-mlm has none of these; it has pll" in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_of_many_values_of_an_axis_ten_are_said(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('QUESTION = "Which?"\nAXES = {"optim.lr": tuple(range(1, 301))}\n')
    words = ["sweep", "./mine.py", "--set", "optim.lr=1", "--tasks", "none", "--budget", "tokens=10"]
    done = workbench(*words, cwd=tmp_path)
    assert "whose runs have optim.lr=1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 290 others; leave" in done.stderr, done.stderr


def test_a_setting_of_kernels_that_is_not_known_leaves_no_store(workbench: Command, text: Path, tmp_path: Path) -> None:
    words = ["run", "ablation", "--corpus", text, "--tasks", "none", "--budget", "steps=2", *SETS]
    done = workbench(*words, cwd=tmp_path, WORKBENCH_CPU_KERNELS="sometimes")
    assert done.returncode == 2 and "WORKBENCH_CPU_KERNELS='sometimes'" in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", [".", "/dev/full", "there.txt/x.csv", "/proc/x", "y" * 300 + "/x.csv"])
def test_nothing_is_exported_to_what_is_no_file(out: str, finished: Path, workbench: Command) -> None:
    (finished / "there.txt").write_text("mine")
    done = workbench("export", "ablation", "--out", out, cwd=finished)
    assert done.returncode == 2 and "out" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert (finished / "there.txt").read_text() == "mine"


@pytest.fixture(scope="module")
def finished(workbench: Command, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", "none", "--budget", "steps=2", *SETS]
    assert workbench(*words, cwd=folder).returncode == 0
    return folder


@pytest.mark.parametrize(
    ("name", "folder"), [("WORKBENCH_CACHE", "~nobodyx/x"), ("WORKBENCH_CACHE", "/proc/x"), ("HOME", "/proc")]
)
def test_a_cache_that_cannot_be_made(name: str, folder: str, workbench: Command, text: Path, tmp_path: Path) -> None:
    unset = {"WORKBENCH_CACHE": ""} if name == "HOME" else {}
    words = ["run", "ablation", "--corpus", text, "--tasks", "none", "--budget", "steps=2", *SETS]
    done = workbench(*words, cwd=tmp_path, **unset, **{name: folder})
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "WORKBENCH_CACHE" in done.stderr, done.stderr


def test_a_loop_of_links_is_no_store(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for words in (["status", "--runs", "a"], ["run", "ablation", "--runs", "a/x"]):
        done = workbench(*words, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "loop" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('QUESTION = "Which?"\nAXES = {3: (1, 2)}\n', "the key 3 must be text"),
        ("raise SystemExit(0)\n", "mine.py, line 1: SystemExit: 0"),
        ("raise GeneratorExit\n", "mine.py, line 1: GeneratorExit"),
        ('QUESTION = "\\ud800?"\nAXES = {"optim.lr": (1e-3,)}\n', "QUESTION"),
        ('QUESTION = "Which \\x1b[31m?"\nAXES = {"optim.lr": (1e-3,)}\n', "QUESTION contains control characters"),
        ('QUESTION = " "\nAXES = {"optim.lr": (1e-3,)}\n', "needs QUESTION, a sentence"),
        ('QUESTION = "Which?"\nAXES = {"data.column": ("\\ud800",)}\n', "AXES contains half of a surrogate pair"),
        ('QUESTION = "Which?"\nAXES = {"optim.lr": b"ab"}\n', "must be a list of values"),
        ('QUESTION = "Which?"\nAXES = {"optim.lr": (1e-3, 2e-3, 0.001)}\n', "must list different values"),
        (
            'QUESTION = "Which?"\nAXES = {"budget.share": ([],)}\n',
            "no run with budget.share=(), objective=rtd can be made",
        ),
        (
            'QUESTION = "Which?"\nAXES = {key: range(9999) for key in ("optim.lr", "batch.size", "encoder.hidden")}\n',
            "999,700,029,999 runs",
        ),
        ('QUESTION = "Which?"\nAXES = {"optim.lr": range(10**12)}\n', "a list has 1,000,000,000,000 values"),
        (
            'QUESTION = "Which?"\nclass Odd(dict):\n    def __getitem__(self, key):\n        raise SystemExit(0)\n'
            'AXES = Odd({"optim.lr": (1e-3,)})\n',
            "mine.py, line 4: SystemExit: 0",
        ),
        ('QUESTION = "Which?"\nAXES = {"seed": (1, 2)}\n', "--seeds N"),
    ],
)
def test_an_experiment_file_with_a_mistake(text: str, named: str, workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    done = workbench("run", "./mine.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and named in done.stderr, done.stderr
    assert not (tmp_path / "runs").exists()


OBJECTIVE = """
from workbench.models.flops import Flops
from workbench.objectives.bert_mlm import Objective, Options, cost as price

def cost(spec):
    {cost}
"""


IS_NONE = "must be a torch module that keeps the encoder"


@pytest.mark.parametrize(
    ("cost", "code", "named"),
    [
        ("return None", "", "returns None, not a workbench.models.flops.Flops"),
        ("return Flops(float('nan'), 1, 1)", "", "nan, not a number"),
        ("return Flops(1, -1, 1)", "", "-1, not a number"),
        ("return 1 / 0", "", "idea.py, line 6: cost(spec) raised ZeroDivisionError"),
        ("raise SystemExit(0)", "", "SystemExit"),
        ("return Flops(10**400, 1, 1)", "", "not a number of operations"),
        ("return price(spec)", "class Objective:\n    def __init__(self, *given): pass\n", IS_NONE),
        ("return price(spec)", "def Objective(*given): return None\n", IS_NONE),
        ("return price(spec)", "from torch import nn\nclass Objective(nn.Module):\n    def __init__(self, *given):\n"
         "        super().__init__()\n", IS_NONE),
        ("return price(spec)", "from workbench.spec.parts import Part\nclass Options(Part):\n"
         "    odd: object = object()\n", "Options raised"),
    ],
)  # fmt: skip
def test_an_objective_that_gives_no_price_or_is_something_else(
    cost: str, code: str, named: str, workbench: Command, tmp_path: Path
) -> None:
    (tmp_path / "idea.py").write_text(OBJECTIVE.format(cost=cost) + code)
    done = workbench("run", "ablation", "--objective", "./idea.py", "--tasks", "none", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and named in done.stderr, done.stderr


UNPRINTABLE = "type('Mine', (Exception,), {'__str__': lambda error: 1 / 0})()"  # its own message raises an error


@pytest.mark.parametrize("raised", ["ValueError('no')", "SystemExit(0)", "KeyError('x')", UNPRINTABLE])
def test_an_objective_that_cannot_be_built(raised: str, workbench: Command, tmp_path: Path) -> None:
    text = OBJECTIVE.format(cost="return price(spec)")
    text += f"\nclass Objective(Objective):\n    def __init__(self, *given):\n        raise {raised}\n"
    (tmp_path / "idea.py").write_text(text)
    words = ["run", "ablation", "--objective", "./idea.py", "--tasks", "none"]
    for more in ([], ["--dry-run"]):
        done = workbench(*words, *more, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "idea.py, line 10" in done.stderr, done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("raised", ["SystemExit(0)", "GeneratorExit('no')", "FileNotFoundError('mine')"])
def test_an_objective_that_fails_in_training_ends_its_own_runs_only(
    raised: str, workbench: Command, text: Path, tmp_path: Path
) -> None:
    code = OBJECTIVE.format(cost="return price(spec)")
    code += f"\nclass Objective(Objective):\n    def forward(self, batch):\n        raise {raised}\n"
    (tmp_path / "idea.py").write_text(code)
    words = ["run", "ablation", "--objective", "./idea.py", "--objective", "bert-mlm", "--corpus", text]
    done = workbench(*words, "--tasks", "none", "--budget", "steps=2", *SETS, cwd=tmp_path)
    kind = raised.partition("(")[0]
    assert done.returncode == 1 and f"failed: {kind}" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "1 of 2 runs are done" in done.stdout
    assert json.loads(next((tmp_path / "runs").glob("idea-*/error.json")).read_text())["kind"] == "failed"


NO_PLAN, NO_ASSIGNMENT = "is no plan of a text's slices", "cannot be read as the assignment of a worker"


def given(value: object) -> bytes:
    return sealed({"name": "given.json", "value": value})


WRONG_PLAN = {"key": "x", "data": {}, "vocabulary": 3, "slices": [[{"kind": "none"}]]}
FOLLOWER = {"WORKBENCH_RANK_PARENT": str(os.getpid()), "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
BY_HAND: dict[str, tuple[list[str], bytes | None, dict[str, str], str]] = {
    "rank": (["rank"], None, {}, "RANK is not set"),
    "rank of a word": (["rank"], None, FOLLOWER | {"RANK": "one"}, "RANK='one' is not a whole number"),
    "rank without an address": (["rank"], None, {"RANK": "1"}, "MASTER_ADDR is not set"),
    "rank without a port": (["rank"], None, {"RANK": "1", "MASTER_ADDR": "::1"}, "MASTER_PORT is not set"),
    "rank at a port of words": (
        ["rank"], None, {"RANK": "1", "MASTER_ADDR": "::1", "MASTER_PORT": "http"}, "MASTER_PORT='http' is not a whole",
    ),
    "rank of a parent of words": (["rank"], None, FOLLOWER | {"WORKBENCH_RANK_PARENT": "-1"}, "PARENT='-1' is not"),
    "run in a world of words": (
        ["run", "ablation"], None, {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "two"}, "WORLD_SIZE='two' is not",
    ),
    "run without its rank": (
        ["run", "ablation"], None, {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"}, "RANK is not set",
    ),
    "worker of nothing": (["worker", "nowhere.json"], None, {}, NO_ASSIGNMENT),
    "worker of no JSON": (["worker", "given.json"], b"\xff{", {}, NO_ASSIGNMENT),
    "worker of other JSON": (["worker", "given.json"], sealed({"store": 3}), {}, NO_ASSIGNMENT),
    "slices of nothing": (["encode-slices", "nowhere.json"], None, {}, NO_PLAN),
    "slices of a folder": (["encode-slices", "/"], None, {}, NO_PLAN),
    "slices of no JSON": (["encode-slices", "given.json"], b"\xff{", {}, NO_PLAN),
    "slices of other JSON": (["encode-slices", "given.json"], given({"a": 1}), {}, NO_PLAN),
    "slices of wrong types": (["encode-slices", "given.json"], given(WRONG_PLAN), {}, NO_PLAN),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_HAND)
def test_a_command_of_the_package_itself_that_is_typed_by_hand(case: str, workbench: Command, tmp_path: Path) -> None:
    words, content, variables, named = BY_HAND[case]
    if content is not None:
        (tmp_path / "given.json").write_bytes(content)
    done = workbench(*words, cwd=tmp_path, **variables)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and named in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("parts", "metrics", "given", "named", "advice"),
    [
        ("{'focal': loss, 'seconds': loss}", "{}", [], "'seconds', which is a column of every row", "rename"),
        ("{'focal': loss}", "{'run_id': (loss, loss)}", [], "'run_id', which is a column of every row", "rename"),
        ("{'focal': loss}", "{'focal': (loss, loss)}", [], "both a loss and a metric named 'focal'", "rename"),
        ("{'focal': loss * loss}", "{}", ["--micro-batch", 2], "the loss 'focal'", "weighted_mean(values, weights)"),
        ("{'focal': loss.detach()}", "{}", ["--devices", 2], "the loss 'focal'", "weighted_mean(values, weights)"),
    ],
)
def test_an_objective_whose_losses_cannot_be_logged_is_refused_before_training(
    parts: str, metrics: str, given: list[object], named: str, advice: str, workbench: Command, text: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    code = (
        OBJECTIVE.format(cost="return price(spec)")
        + f"""
from workbench.tensors import StepLoss

class Objective(Objective):
    def forward(self, batch):
        loss = super().forward(batch).total
        return StepLoss(loss, {parts}, {metrics})
"""
    )
    (tmp_path / "idea.py").write_text(code)
    words = ["run", "ablation", "--objective", "bert-mlm", "--objective", "./idea.py", "--corpus", text]
    words += ["--tasks", "none", "--budget", "steps=2", *SETS, *given]
    for more in ([], ["--dry-run"]):
        done = workbench(*words, *more, cwd=tmp_path)
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 2 and named in last and "idea.py" in last and advice in last, done.stderr
        assert "Traceback" not in done.stderr and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", [b"PAR1" + b"\x15\x04" * 60 + b"\x10\x00\x00\x00PAR1", b"PAR1"])
def test_a_parquet_file_with_a_broken_footer(content: bytes, workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(content)
    done = workbench("run", "ablation", "--tasks", "rows.parquet", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "rows.parquet" in done.stderr, done.stderr


@pytest.mark.parametrize("where", ["seed<abc", "seed<<3", "seed==1", "seed>=x"])
def test_a_condition_that_no_run_can_meet(where: str, finished: Path, workbench: Command) -> None:
    done = workbench("runs", "--where", where, cwd=finished)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and where in done.stderr, done.stderr


@pytest.mark.parametrize("gigabytes", [0.36, 0.5, 0.62, 0.85])
def test_a_report_in_too_few_addresses_is_refused(gigabytes: float, finished: Path) -> None:
    """scipy's OpenBLAS would ask for its buffers for ever, deaf to signals."""
    limit = int(gigabytes * 1e9)
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "report", "ablation"], capture_output=True, text=True, check=False,
        cwd=finished, timeout=100, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 2 and "ulimit -v" in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv, of util-linux, takes root's rights away")
@pytest.mark.parametrize("words", [["--corpus", "closed.txt", "--tasks", "none"], ["--tasks", "closed.csv"]])
def test_a_file_that_may_not_be_read_is_bad_input(words: list[str], tmp_path: Path) -> None:
    for name in ("closed.txt", "closed.csv"):
        (tmp_path / name).write_text("text,label\nsome words,1\n")
        (tmp_path / name).chmod(0)
    root = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*root, sys.executable, "-m", "workbench", "run", "ablation", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "closed" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("gigabytes", "words"),
    [(0.3, ["run", "ablation", "--tasks", "none"]), (0.8, ["run", "ablation", "--tasks", "none"])]
    + [(size, ["data", "prepare"]) for size in (0.3, 0.5)],
)
def test_too_few_addresses_are_said(gigabytes: float, words: list[str], text: Path, tmp_path: Path) -> None:
    limit = int(gigabytes * 1e9)
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *words, "--corpus", str(text), *SETS],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "ulimit -v" in done.stderr, done.stderr


@pytest.mark.parametrize("named", ["caf\udce9", "a/" * 1500])
def test_a_cache_that_libraries_cannot_use(named: str, workbench: Command, tmp_path: Path) -> None:
    done = workbench("run", "ablation", "--tasks", "none", cwd=tmp_path, WORKBENCH_CACHE=named)
    assert done.returncode == 2 and "WORKBENCH_CACHE" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_no_store_is_left_of_a_table_that_cannot_be_used(workbench: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\na,1\n")
    done = workbench("run", "ablation", "--tasks", "t.csv", cwd=tmp_path)
    assert done.returncode == 2 and "t.csv" in done.stderr and not (tmp_path / "runs").exists(), done.stderr
    (tmp_path / "file").touch()
    done = workbench("run", "ablation", "--tasks", "t.csv", "--runs", "file/runs", cwd=tmp_path)
    assert done.returncode == 2 and "file/runs" in done.stderr and "t.csv" not in done.stderr, done.stderr
    assert "--runs" in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words", [["sweep", "--help"], ["list", "scales"]])
def test_a_reader_that_closes_the_pipe_ends_the_command_silently(words: list[str]) -> None:
    """As `workbench sweep --help | head -1` does."""
    command = [sys.executable, "-m", "workbench", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == "" and process.wait(60) == 0


@pytest.mark.parametrize("words", [[], ["data"]])
def test_no_words_give_the_whole_help(words: list[str], workbench: Command, tmp_path: Path) -> None:
    done, asked = workbench(*words, cwd=tmp_path), workbench(*words, "--help", cwd=tmp_path)
    assert (done.returncode, asked.returncode) == (2, 0)
    assert ("Commands:" if words else "Train and measure:") in done.stderr
    assert (
        done.stderr.split() == asked.stdout.split()
        and done.stderr.count("\n") > 7
        and "...\n" not in asked.stdout.partition("\n")[2]
    )


def test_the_version_is_that_of_the_package(workbench: Command, tmp_path: Path) -> None:
    done = workbench("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"workbench {__version__}\n", "")
