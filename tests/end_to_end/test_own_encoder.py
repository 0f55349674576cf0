"""An encoder in a file of one's own, by the command line: trained, resumed, compared, measured, exported."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import workbench as wb
from workbench import cli, registry
from workbench.errors import InputError
from workbench.execution import plug_checks

SETTINGS = ("encoder.hidden=32", "encoder.vocab=200", "data.length=16", "batch.size=8")
SMALL = ["--corpus", "text.txt", "--threads", "1", "--device", "cpu", "--precision", "fp32"]
SMALL += [word for setting in SETTINGS for word in ("--set", setting)]
RUN = ["run", "ablation", "--objective", "bert-mlm", "--set", "encoder.family=./own.py", "--tasks", "none", *SMALL]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a text, and a file of an encoder as `workbench new` writes it."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n\n".join(" ".join(f"word{n * k % 97}" for n in range(60)) for k in range(1, 90)))
    plug_checks.new("encoder", "own")
    return tmp_path


def invoke(*words: str) -> Any:
    return CliRunner().invoke(cli.app, list(words))


def refused(*words: str) -> str:
    result = invoke(*words)
    assert isinstance(result.exception, InputError), (result.exception, result.stdout)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def curve(runs: str) -> list[tuple[int, float]]:
    (path,) = Path(runs).glob("bert-mlm-*/metrics.jsonl")
    return [(row["step"], row["loss"]) for row in map(json.loads, path.read_text().splitlines())]


def test_a_stopped_run_goes_on_with_the_same_bits_and_never_without_its_file(here: Path) -> None:
    options = [*RUN, "--budget", "steps=300", "--save-every", "10"]
    assert invoke(*options, "--runs", "whole", "--out", "o1").exit_code == 0
    command = [sys.executable, "-m", "workbench", *options, "--runs", "broken", "--out", "o2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(cli.__file__).parents[2]), *sys.path])}
    stopped = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while not list(Path("broken").glob("bert-mlm-*/checkpoints/step-*")) and time.monotonic() < deadline:
        assert stopped.poll() is None, stopped.stderr.read() if stopped.stderr else ""
        time.sleep(0.02)
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=120)
    assert stopped.returncode == 130 and len(curve("broken")) < 300, said

    Path("own.py").rename("renamed.py")
    text = refused(*options, "--runs", "broken", "--out", "o2")
    assert text == "--set encoder.family=./own.py: there is no such file"
    Path("renamed.py").rename("own.py")
    assert invoke(*options, "--runs", "broken", "--out", "o2").exit_code == 0
    assert curve("broken") == curve("whole")
    (run,) = Path("broken").glob("bert-mlm-*")
    assert (run / "encoder.py").read_text() == Path("own.py").read_text()
    assert invoke("verify", "broken").exit_code == 0

    name = run.name
    Path("own.py").write_text(Path("own.py").read_text() + "# edited\n")
    again = invoke(*options, "--runs", "broken", "--out", "o2", "--dry-run", "--json")
    assert name not in again.stdout, "an edited file makes other runs"


def test_families_are_compared_at_equal_compute_by_several_workers(here: Path) -> None:
    words = ["sweep", "--objective", "rtd", "--over", "encoder.family=electra,./own.py", "--tasks", "none",
             "--budget", "steps=6", "--workers", "2", *SMALL]  # fmt: skip
    done = invoke(*words, "--json")
    assert done.exit_code == 0, done.exception
    study = wb.Store("runs").study(json.loads(done.stdout)["record"])
    runs = study.runs()
    assert set(runs["arm"]) >= {"electra", "own"} and set(runs["state"]) == {"done"}
    spent = {run.spec.encoder.family: json.loads((run.path / "plan.json").read_text())["flops"]["matmul"]
             for run in map(wb.Store("runs").run, runs["run_id"])}  # fmt: skip
    assert spent["own"] == pytest.approx(spent["electra"], rel=0.2)
    Path("deep").mkdir()
    shutil.copy("own.py", "deep/own.py")
    assert "encoder.family names own twice" in refused(*words[:4], "encoder.family=./own.py,./deep/own.py", *words[5:])


def test_the_folder_of_an_encoder_is_measured_where_its_file_is_known(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke(*RUN, "--budget", "steps=2").exit_code == 0
    (folder,) = Path("runs").glob("bert-mlm-*/encoder")
    rows = "\n".join(json.dumps({"text": f"word{n} word{n % 7}", "label": "ab"[n % 2]}) for n in range(60))
    Path("own.jsonl").write_text(rows)
    measure = ["--tasks", "own.jsonl,linear:own.jsonl", "--set", "tasks.seeds=1", "--json"]
    beside = json.loads(invoke("evaluate", str(folder), *measure).stdout)
    model, _ = wb.Store("runs").run(folder.parent.name).encoder()
    assert sum(weight.numel() for weight in model.parameters()) > 0
    shutil.copytree(folder, "moved")
    text = "moved: its encoder is of the family 'own', which is defined in a file; name that file with --set"
    monkeypatch.setattr(registry, "_files", {})  # as in another process, where no run named the file
    assert text in refused("evaluate", "moved", *measure)
    Path("own.py").rename("other_name.py")
    named = invoke("evaluate", "moved", *measure, "--set", "encoder.family=./other_name.py")
    assert named.exit_code == 0, named.exception
    assert [row["value"] for row in json.loads(named.stdout)] == [row["value"] for row in beside]
    exported = refused("export", folder.parent.name, "--checkpoint", "out")
    assert re.search(r"encoder\.family=own: .*own\.py|encoder\.py defines no to_hub", exported)
    assert "has no format of Hugging Face" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("def build(", "def make(", r"own\.py has no build; an encoder needs build, cost"),
        ("def build(config", "def build((config", r"own\.py, line \d+: SyntaxError"),
        ("        return states\n", "        return states[:, :, 0]\n", r"own\.py: the encoder returns states of sh"),
        ("    initialise(model, config.init)", "    1 / 0", r"own\.py, line \d+: build raised ZeroDivisionError"),
        ("    return flops.transformer(", "    return flops.nothing(", r"own\.py, line \d+: cost raised Attrib"),
    ],
    ids=["no build", "syntax", "shape", "build", "cost"],
)  # fmt: skip
def test_a_broken_file_is_refused_before_anything_is_trained(before: str, after: str, message: str, here: Path) -> None:
    text = Path("own.py").read_text()
    assert before in text
    Path("own.py").write_text(text.replace(before, after))
    assert re.search(message, refused(*RUN, "--budget", "steps=2"))
    assert not list(Path("runs").glob("bert-mlm-*/metrics.jsonl"))


def test_options_and_sizes_that_a_family_does_not_have_are_refused(here: Path) -> None:
    gated = ["--set", "encoder.options.gate=true", "--budget", "steps=2"]
    assert "unknown key 'encoder.options.gate'; did you mean 'encoder.options.gated'?" in refused(*RUN, *gated)
    narrow = refused(*RUN, "--set", "encoder.embedding=16", "--budget", "steps=2")
    assert "encoder.embedding=16 must equal encoder.hidden=32 for encoder.family=own" in narrow
    text = Path("own.py").read_text()
    Path("own.py").write_text(text.replace('CAUSAL = "optional"', 'CAUSAL = "never"'))
    words = [word if word != "bert-mlm" else "causal-lm" for word in RUN]
    assert "encoder.family=own cannot be causal" in refused(*words, "--budget", "steps=2")
    assert "encoder.source: this value is read from the file" in refused(*RUN, "--set", "encoder.source=ab")
