"""The kernels of a compiled step on a GPU, counted without one, are the products and attention of the model."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from workbench import objectives
from workbench.spec.presets import resolve
from workbench.training.loop import build

SCRIPT = Path(__file__).parents[2] / "experiments" / "benchmarks" / "gpu_kernels.py"


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="the kernels are counted with a CPU build of torch")
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_products_and_attention_are_those_of_the_model(tmp_path: Path) -> None:
    layers = 2
    try:
        importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package triton is not installed, without which torch's compiler writes nothing for a GPU")
    out = tmp_path / "out.json"
    out.write_text('["before"]')
    command = [sys.executable, SCRIPT, out, "--label", "test", "--scale", "nano", "--set", f"encoder.layers={layers}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    before, found = json.loads(out.read_text())
    assert (before, found["label"]) == ("before", "test"), "counts are added to those before"
    [row] = found["rows"]

    spec = objectives.with_options(resolve("nano", {"budget.steps": 100, "encoder.layers": layers}))
    model = build(spec.replace(objective="rtd"))
    both = [name for name, _ in model.named_modules() if name.endswith("attention.self")]  # of generator and encoder
    linear = sum(isinstance(part, nn.Linear) for part in model.modules())
    forward, backward = row["forward"]["calls"], row["backward"]["calls"]
    assert forward["attention"] == backward["attention"] == len(both) > layers
    assert forward["products"] == linear - 2 * len(both) + 1, "query, key and value are one; the vocabulary is another"
    assert forward["products"] < backward["products"] <= 2 * forward["products"], "two gradients of most products"
    assert forward["products"] < forward["triton"] < 3 * forward["products"], "casts, norms and sums, several together"
    assert all(part["bytes"]["triton"] > part["bytes"]["products"] > 0 for part in (row["forward"], row["backward"]))
