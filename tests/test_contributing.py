"""What CONTRIBUTING.md tells a stranger to write works as it stands there."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from objective_oracle import build, synthetic, tiny_of_file
from torch.utils.flop_counter import FlopCounterMode

from workbench import objectives
from workbench.spec import experiment
from workbench.spec.presets import resolve

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
OBJECTIVE, EXPERIMENT = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "shuffled_tokens.py"
    path.write_text(OBJECTIVE, encoding="utf-8")
    return path


def test_the_objective_trains(written: Path) -> None:
    spec = tiny_of_file(written, {"options.weight": "2"})
    assert spec.name.startswith("shuffled-tokens-nano-s0-")
    model, batch = build(spec), synthetic(spec, rows=4)
    first = model(batch)
    assert first.total.item() == pytest.approx(2 * first.parts["discriminator_loss"].item())
    assert model(batch).total.item() == first.total.item()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        model(batch).total.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model(batch).total.item() < 0.5 * first.total.item()


@pytest.mark.parametrize("picks", ["distinct", "released"])
def test_the_objective_deals_out_the_words_of_the_row(written: Path, picks: str) -> None:
    spec = tiny_of_file(written, {"corruption.picks": picks, "corruption.rate": 0.5})
    model, batch = build(spec), synthetic(spec, rows=6, lengths=[15] * 6)
    seen: list[torch.Tensor] = []
    hook = model.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))  # type: ignore[union-attr,operator]
    model(batch)
    hook.remove()
    assert (seen[0] != batch.ids).any(1).all()
    assert torch.equal(seen[0][:, 15:], batch.ids[:, 15:])
    if picks == "distinct":
        assert torch.equal(seen[0].sort(1).values, batch.ids.sort(1).values)


def test_the_objective_needs_no_floors(written: Path) -> None:
    from workbench.data.corpus import Corpus
    from workbench.execution.one_run import floors

    assert floors(tiny_of_file(written), object.__new__(Corpus), {}) == {}  # whose words are not even counted


@pytest.mark.parametrize("values", ['{"loss": None}', "{3: 1.0}", '{"loss": "low"}'])
def test_floors_that_are_no_numbers_are_refused_before_training(values: str, written: Path, tmp_path: Path) -> None:
    from workbench.execution.one_run import floors

    path = tmp_path / "with_floors.py"
    path.write_text(f"{written.read_text()}\n\ndef floors(words):\n    return {values}\n")
    with pytest.raises(TypeError, match=r"^floors\(words\) of .*with_floors.py returns "):
        floors(tiny_of_file(path), SimpleNamespace(counts=lambda: np.ones(tiny_of_file(path).encoder.vocab)), {})  # type: ignore[arg-type]


def test_the_objective_costs_what_it_says(written: Path) -> None:
    spec = tiny_of_file(written, {"encoder.attention": "eager"})
    model, batch = build(spec), synthetic(spec, rows=4)
    with FlopCounterMode(display=False) as counter:
        model(batch).total.backward()
    assert counter.get_total_flops() == 4 * objectives.load(spec).cost(spec).train("matmul")


def test_the_experiment_becomes_runs(tmp_path: Path) -> None:
    path = tmp_path / "my_question.py"
    path.write_text(EXPERIMENT, encoding="utf-8")
    found = experiment.load(str(path))
    runs = list(found.runs(resolve("nano"), seeds=2))
    assert [run.generator.width for run in runs] == [0.125, 0.25, 0.5, 1.0] * 2
    assert len({run.name for run in runs}) == 8


@pytest.mark.slow
def test_a_stranger_trains_interrupts_resumes_and_reads_the_report(written: Path) -> None:
    """In a folder of their own, from the command line alone; the interrupted run ends as the other one does."""
    folder = written.parent
    words = " ".join(f"word{n * n % 97}" for n in range(40_000))
    (folder / "text.txt").write_text(words.replace("word7 ", "\n\n"), encoding="utf-8")
    sizes = ("encoder.hidden=32", "encoder.heads=2", "encoder.layers=1", "encoder.vocab=200", "data.length=16")
    given = "run ablation --objective ./shuffled_tokens.py --objective bert-mlm --corpus text.txt --tasks none"
    command = [sys.executable, "-m", "workbench", *given.split(), "--budget", "steps=400", "--save-every", "20"]
    command += [part for each in (*sizes, "batch.size=8") for part in ("--set", each)]

    def curve(runs: str) -> list[tuple[int, float, float]]:
        (path,) = (folder / runs).glob("shuffled-tokens-*/metrics.jsonl")
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(row["step"], row["loss"], row["discriminator_auc"]) for row in rows]

    whole = subprocess.run(
        [*command, "--runs", "whole", "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert whole.returncode == 0, whole.stderr
    outcome = json.loads(whole.stdout)
    page = (folder / outcome["report"]).read_text(encoding="utf-8")
    assert "shuffled-tokens" in page and "bert-mlm" in page

    broken = subprocess.Popen([*command, "--runs", "broken"], cwd=folder, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((folder / "broken").glob("shuffled-tokens-*/checkpoints/step-*")) and time.monotonic() < deadline:
        assert broken.poll() is None, "it ended before it could be interrupted"
        time.sleep(0.05)
    broken.send_signal(signal.SIGINT)
    _, said = broken.communicate(timeout=120)
    assert broken.returncode == 130, said
    assert 20 <= len(curve("broken")) < 400

    again = subprocess.run([*command, "--runs", "broken"], cwd=folder, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert curve("broken") == curve("whole")
    assert [step for step, _, _ in curve("broken")] == list(range(1, 401))
