"""What must stand nowhere in the tree: code that runs data, and names of one person's machine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SKIPPED = {
    ".git",
    ".venv",
    ".ruff_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
}
OURS = sorted((ROOT / "workbench").rglob("*.py"))

CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load"}
CALLS |= {"os.system", "os.popen", "pandas.read_pickle", "pd.read_pickle", "numpy.load", "np.load"}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}


def wrong_calls(call: ast.Call, name: str) -> Iterator[str]:
    """What a call does that runs data; `name` is that of the file."""
    called = ast.unparse(call.func)
    flags = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}
    pickles = called.endswith(".load") and flags.get("allow_pickle") == "False"
    tensors = called == "torch.load" and flags.get("weights_only") == "True" and name == "model_files.py"
    if called in CALLS and not pickles and not tensors:
        yield called
    yield from (word for word in ("trust_remote_code", "shell") if flags.get(word) == "True")
    if flags.get("allow_pickle") == "True" or flags.get("weights_only") == "False":
        yield "unpickling"


def test_data_is_never_run() -> None:
    wrong = []
    for path in (*OURS, *(ROOT / "experiments").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                wrong += [f"{path}:{node.lineno}: {what}" for what in wrong_calls(node, path.name)]
            modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path}: {module}" for module in modules if module.split(".")[0] in MODULES]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    ["eval(x)", "torch.load(x)", "np.load(x)", "f(trust_remote_code=True)", "np.load(x, allow_pickle=True)",
     "torch.load(x, weights_only=True)", "f(weights_only=False)", "subprocess.run(x, shell=True)"],
)  # fmt: skip
def test_a_call_that_runs_data_is_found(line: str) -> None:
    (call,) = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)]
    assert list(wrong_calls(call, "other.py"))


def test_nothing_is_caught_unnamed_or_printed() -> None:
    """Results go through the command line's one printer, so that `--json` prints one document and nothing else."""
    wrong = []
    for path in OURS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            bare = isinstance(node, ast.ExceptHandler) and node.type is None
            if bare or (isinstance(node, ast.Call) and ast.unparse(node.func) == "print"):
                wrong.append(f"{path}:{node.lineno}: a bare except or print")
    assert not wrong, "\n".join(wrong)


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that a checkout has, ignored ones left out where git is there to tell."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 and listed.stdout else None
    paths = [ROOT / name for name in names if name] if names else [p for p in ROOT.rglob("*") if p.is_file()]
    for path in paths:
        if path.is_file() and not SKIPPED & set(path.relative_to(ROOT).parts):
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_path_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.$}~)-])/(?:home|work|root|Users|mnt|opt/wheels|opt/pypi)/\w[\w./-]*")
    wrong = [(str(path), found.group()) for path, text in texts() for found in pattern.finditer(text)]
    assert not [pair for pair in wrong if not pair[0].endswith("test_static.py")], wrong


def test_no_secret_looking_string() -> None:
    pattern = re.compile(
        r"\b(?:hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16})\b|-----BEGIN [A-Z ]*PRIVATE KEY"
    )
    assert not [path for path, text in texts() if pattern.search(text)]


def test_only_the_ci_script_is_executable() -> None:
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:
        pytest.skip("not a git checkout")
    executable = {line.split("\t")[1] for line in listed.stdout.splitlines() if line.startswith("100755")}
    assert executable == {".ci/run"}
    assert os.access(ROOT / ".ci/run", os.X_OK)
