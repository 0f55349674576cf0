"""What is written down about the machine and the command: enough to repeat a run, nothing private."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.store import environment as module
from workbench.store.atomic import dumps
from workbench.store.environment import environment


def test_only_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "MY_PASSWORD", "HARMLESS"):
        monkeypatch.setenv(name, f"planted-{name}-value")
    found = environment(["workbench", "run", "ablation", "--set", "optim.lr=5e-4"], device="cpu", precision="fp32")
    assert "planted" not in dumps(found)
    assert set(found) == {
        "python", "workbench", "versions", "git", "machine", "threads", "device", "precision", "command", "started",
    }  # fmt: skip
    assert found["versions"]["torch"] and found["workbench"] == workbench.__version__
    assert found["machine"]["cores"] >= 1 and found["machine"]["gpu"] is None and found["machine"]["memory_bytes"] > 0
    assert found["command"] == ["workbench", "run", "ablation", "--set", "optim.lr=5e-4"]
    assert found["started"].endswith("+00:00")


def commit_of(package: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    monkeypatch.setattr(workbench, "__file__", str(package / "__init__.py"))
    return module.code_version.__wrapped__()  # without the cache


def test_the_commit_is_that_of_our_checkout_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run([*git, "init", "-q"], check=True)
    package = tmp_path / "workbench"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert commit_of(package, monkeypatch) is None  # nothing committed
    (tmp_path / "other").write_text("")
    subprocess.run([*git, "add", "other"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    assert commit_of(package, monkeypatch) is None  # someone else's repository, which happens to hold our environment
    subprocess.run([*git, "add", "workbench"], check=True)
    subprocess.run([*git, "commit", "-qm", "y"], check=True)
    clean = commit_of(package, monkeypatch)
    assert clean is not None and len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "other").write_text("changed")
    assert commit_of(package, monkeypatch) == clean
    (package / "__init__.py").write_text("changed")
    assert commit_of(package, monkeypatch) == clean | {"dirty": True}
    module.code_version.cache_clear()
    begun = module.code_version()
    subprocess.run([*git, "commit", "-qam", "z"], check=True)
    assert module.code_version() == begun, "a command names the code that it began with"
    module.code_version.cache_clear()


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module.code_version.__wrapped__() is None


def test_importing_it_is_light() -> None:
    code = "import sys, workbench.store.environment, workbench.trackers, workbench.store.checkpoint, json\n"
    code += "print(json.dumps(sorted({'torch','numpy','pandas','wandb','safetensors'} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert json.loads(done.stdout) == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system can't tie a process to some cores")
def test_the_cores_of_a_process_are_those_it_may_use():
    """A cluster's scheduler gives four of 64 cores; threads for all 64 would stand in each other's way."""
    ask = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    ask += "; from workbench.spec.host import cores; print(cores())"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


XEON = {"machine": {"cpu": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "gpu": None}}
EPYC = {"machine": {"cpu": "AMD EPYC 9B45", "gpu": None}}


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (XEON | {"precision": "bf16", "kernels": "tiles"}, "bf16 / amx / Intel"),
        (EPYC | {"precision": "bf16", "kernels": "avx512", "plain": False}, "bf16 / avx512-bf16 / AMD"),
        (EPYC | {"precision": "fp32", "kernels": "compiled"}, "fp32 / compiled / AMD"),
        (XEON | {"precision": "fp32", "kernels": "torch", "plain": True}, "fp32 / plain / Intel"),
        (XEON | {"precision": "bf16", "kernels": "torch", "compile": True}, "bf16 / torch.compile / Intel"),
        ({"precision": "bf16", "kernels": "torch", "machine": {"cpu": "AMD EPYC", "gpu": {"name": "NVIDIA H100 PCIe"}}},
         "bf16 / torch / NVIDIA H100 PCIe"),
        ({"precision": "fp32", "machine": {"cpu": "Neoverse-V2"}}, "fp32 / Neoverse-V2"),
        ({}, ""),
    ],
)  # fmt: skip
def test_the_kind_of_arithmetic_is_precision_kernels_and_processor(facts: dict[str, Any], kind: str) -> None:
    assert module.arithmetic(facts) == kind and module.kinds_of_arithmetic(facts) == [kind]


def test_a_continued_run_has_the_kinds_that_its_changes_lead_back_to() -> None:
    first = XEON | {"precision": "bf16", "kernels": "tiles", "threads": 1}
    second = first | {"threads": 2}
    third = EPYC | {"precision": "bf16", "kernels": "avx512", "threads": 2}
    fourth = third | {"precision": "fp32", "kernels": "compiled"}
    recorded: list[dict[str, Any]] = []
    for at, (one, other) in enumerate(pairwise((first, second, third, fourth))):
        recorded += [each | {"at": str(at)} for each in module.changes(one, other)]
    expected = ["bf16 / amx / Intel", "bf16 / avx512-bf16 / AMD", "fp32 / compiled / AMD"]
    assert module.kinds_of_arithmetic(fourth | {"changes": recorded}) == expected
