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
PYTHON = sorted(
    path for part in ("workbench", "experiments", "benchmarks") for path in (ROOT / part).rglob("*.py")
)  # fmt: skip

CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load"}
CALLS |= {"os.system", "os.popen", "pandas.read_pickle", "pd.read_pickle", "numpy.load", "np.load"}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_data_is_never_run(path: Path) -> None:
    wrong = []
    for node in nodes(path):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            flags = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg}
            pickles = called.endswith(".load") and flags.get("allow_pickle") == "False"
            tensors = called == "torch.load" and flags.get("weights_only") == "True" and path.name == "weights.py"
            if called in CALLS and not pickles and not tensors:
                wrong.append((node.lineno, called))
            wrong += [(node.lineno, word) for word in ("trust_remote_code", "shell") if flags.get(word) == "True"]
            if flags.get("allow_pickle") == "True" or flags.get("weights_only") == "False":
                wrong.append((node.lineno, "unpickling"))
        elif isinstance(node, ast.Import):
            wrong += [(node.lineno, name.name) for name in node.names if name.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            wrong.append((node.lineno, node.module or ""))
    assert not wrong, f"{path}: {wrong}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "workbench").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_nothing_is_caught_unnamed_or_printed(path: Path) -> None:
    """Results go through the command line's one printer, so that `--json` prints one document and nothing else."""
    bare = [node.lineno for node in nodes(path) if isinstance(node, ast.ExceptHandler) and node.type is None]
    assert not bare, f"{path}: bare except at {bare}"
    calls = [node for node in nodes(path) if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"]
    assert not calls, f"{path}: print at {[node.lineno for node in calls]}"


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
