"""`workbench run` from text to report, and what it leaves behind."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .conftest import SETS, Command

FIVE = ("all-tokens-mlm", "bert-mlm", "electra-15", "replace-mlm", "rtd")


@pytest.fixture(scope="module")
def finished(workbench: Command, text: Path, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ablation of all five, two seeds each, run by two workers."""
    folder = tmp_path_factory.mktemp("ablation")
    words = ["run", "ablation", "--corpus", text, "--tasks", table, "--budget", "steps=30", "--seeds", 2, *SETS]
    words += ["--set", "tasks.seeds=2", "--set", "tasks.epochs=1", "--workers", 2, "--json"]
    done = workbench(*words, cwd=folder, ends=0)
    (folder / "answer.json").write_text(done.stdout)
    (folder / "stderr.txt").write_text(done.stderr)
    (folder / "words.json").write_text(json.dumps([str(word) for word in words]))
    return folder


def runs_of(folder: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in (folder / "runs").glob("*/done.json")}


def test_json_is_one_document_and_names_the_report(finished: Path) -> None:
    answer = json.loads((finished / "answer.json").read_text())
    assert {run["state"] for run in answer["runs"]} == {"done"}
    assert len(answer["runs"]) == 12  # five objectives and the untrained encoder, two seeds each
    assert (finished / answer["report"]).is_file()


def test_all_arms_of_a_seed_start_from_the_untrained_encoder(finished: Path) -> None:
    from safetensors.torch import load_file

    runs = runs_of(finished)
    first = [load_file(path / "encoder/model.safetensors") for name, path in runs.items() if "untrained" in name]
    names = sorted(first[0])
    assert len(first) == 2 and any(not first[0][name].equal(first[1][name]) for name in names)
    trained = next(path for name, path in runs.items() if name.startswith("rtd") and "-s0-" in name)
    assert any(not load_file(trained / "encoder/model.safetensors")[name].equal(first[0][name]) for name in names)


def test_every_step_is_logged_under_its_own_names(finished: Path) -> None:
    always = {"step", "tokens", "flops", "seconds", "loss", "learning_rate", "gradient_norm", "tokens_per_second",
              "device_memory_bytes", "mask_rate", "replaced_rate"}  # fmt: skip
    generator = {"generator_loss", "generator_accuracy"}
    detector = {f"discriminator_{name}" for name in ("loss", "accuracy", "precision", "recall", "auc")}
    own = {
        "bert-mlm": {"mlm_loss", "mlm_accuracy"},
        "replace-mlm": generator | {"mlm_loss", "mlm_accuracy"},
        "electra-15": generator | detector,
        "rtd": generator | detector,
        "all-tokens-mlm": generator | {"mlm_loss", "mlm_accuracy", "copy_accuracy", "copy_loss"},
    }
    for name, path in runs_of(finished).items():
        if name.startswith("untrained"):
            continue
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        plan = json.loads((path / "plan.json").read_text())
        assert [row["step"] for row in rows] == list(range(1, plan["steps"] + 1))
        objective = json.loads((path / "spec.json").read_text())["spec"]["objective"]
        assert always | own[objective] <= set(rows[0])
        assert rows[-1]["flops"] == pytest.approx(plan["flops"])
        assert rows[-1]["tokens"] == plan["tokens"] == plan["steps"] * 8 * 32
        assert all(row["mask_rate"] == pytest.approx(5 / 32) for row in rows)  # ceil(0.15 * 32) distinct picks


def test_losses_that_frequencies_alone_reach_are_said_by_run_status_and_report(
    finished: Path, workbench: Command
) -> None:
    """After 30 steps no generator knows more than how often words occur."""
    rtd, bert = (next(p for n, p in runs_of(finished).items() if n.startswith(f"{o}-")) for o in ("rtd", "bert-mlm"))
    done = json.loads((rtd / "done.json").read_text())
    assert done["floors"].keys() == {"generator_loss", "discriminator_loss", "discriminator_auc"}
    assert done["final"]["generator_loss"] > done["floors"]["generator_loss"]
    assert json.loads((bert / "done.json").read_text())["floors"].keys() == {"mlm_loss"}
    [warning] = [each for each in done["warnings"] if "generator" in each]
    assert "no better than" in warning and "token frequencies alone give" in warning

    [line] = [each for each in workbench("status", cwd=finished).stdout.splitlines() if rtd.name in each]
    assert line.startswith("done") and warning in line
    assert f"{rtd.name}: {done['warnings'][0]}" in (finished / "stderr.txt").read_text()
    answer = json.loads((finished / "answer.json").read_text())
    page = (finished / answer["report"]).read_text()
    assert re.search(r"RTD at \S+ FLOPs \(matmul\) is no better than token frequencies alone", page)


def test_a_workers_run_names_the_command_that_was_typed(finished: Path) -> None:
    typed = json.loads((finished / "words.json").read_text())
    for path in runs_of(finished).values():
        assert json.loads((path / "env.json").read_text())["command"][1:] == typed


def test_every_arm_gets_the_flops_that_the_first_spends_in_the_steps_given(finished: Path) -> None:
    spent: dict[str, list[tuple[int, float, float]]] = {}
    for path in runs_of(finished).values():
        plan, spec = (json.loads((path / name).read_text()) for name in ("plan.json", "spec.json"))
        if plan["steps"]:
            row = plan["steps"], plan["flops"]["matmul"], plan["flops_per_step"]["matmul"]
            spent.setdefault(spec["spec"]["objective"], []).append(row)
    (steps, budget, _), *_ = spent["bert-mlm"]
    assert steps == 30 and len({steps for rows in spent.values() for steps, _, _ in rows}) > 2
    assert all(budget - step < flops <= budget for rows in spent.values() for _, flops, step in rows)


def test_a_table_task_is_scored_for_every_run_and_seed(finished: Path) -> None:
    for path in runs_of(finished).values():
        scores = [json.loads(file.read_text()) for file in sorted((path / "scores").glob("*.json"))]
        assert [score["seed"] for score in scores] == [0, 1]
        assert all(score["suite"] == "table" and 0 <= score["value"] <= 100 for score in scores)


def test_typed_again_nothing_is_repeated(finished: Path, workbench: Command) -> None:
    before = {file: file.stat().st_mtime_ns for file in (finished / "runs").rglob("*") if file.suffix != ".json"}
    files = {file: file.read_bytes() for file in (finished / "runs").glob("*/scores/*.json")}
    again = workbench(*json.loads((finished / "words.json").read_text()), cwd=finished, ends=0)
    assert {run["state"] for run in json.loads(again.stdout)["runs"]} == {"done"}
    weights = [file for file in before if file.name == "model.safetensors"]
    assert weights and all(file.stat().st_mtime_ns == before[file] for file in weights)
    assert all(file.read_bytes() == content for file, content in files.items())


def test_the_report_can_be_written_again_and_its_table_is_right(finished: Path, workbench: Command) -> None:
    done = workbench("report", "ablation", "--out", finished / "again", cwd=finished, ends=0)
    assert Path(done.stdout.strip()).is_file()
    means: dict[tuple[str, int], float] = {}
    for path in runs_of(finished).values():
        spec = json.loads((path / "spec.json").read_text())["spec"]
        values = [json.loads(file.read_text())["value"] for file in (path / "scores").glob("*.json")]
        name = "untrained" if spec["budget"]["steps"] == 0 else spec["objective"]
        means[name, spec["seed"]] = sum(values) / len(values)
    with (finished / "again" / "table.csv").open(newline="") as lines:
        written = {row["arm"]: float(row["score"]) for row in csv.DictReader(lines)}
    assert set(FIVE) <= set(written)
    for objective in FIVE:
        expected = (means[objective, 0] + means[objective, 1]) / 2
        assert written[objective] == pytest.approx(expected, abs=1e-6)


def test_the_exported_encoder_needs_no_workbench(finished: Path) -> None:
    """Same hidden states from a fresh interpreter that cannot import workbench as from our own module."""
    import torch

    from workbench.models.encoder import Encoder
    from workbench.spec.run_spec import parse

    path = next(path for name, path in runs_of(finished).items() if name.startswith("all-tokens"))
    script = (
        "import sys; sys.modules['workbench'] = None\n"
        "from transformers import AutoModel, AutoTokenizer\n"
        "import torch\n"
        f"folder = {str(path / 'encoder')!r}\n"
        "model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)\n"
        "inputs = tokenizer(['The cat sees a dog.'], return_tensors='pt')\n"
        "hidden = model(**inputs).last_hidden_state[0]\n"
        "print(inputs['input_ids'].tolist()[0]); print(hidden.double().sum(-1).tolist())"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ids, sums = (json.loads(line) for line in done.stdout.strip().splitlines()[-2:])

    spec = parse(json.loads((path / "spec.json").read_text())["spec"])
    encoder = Encoder(spec.encoder, spec.data.special).eval()
    from safetensors.torch import load_file

    weights = load_file(path / "encoder/model.safetensors")
    encoder.model.load_state_dict(weights, strict=False)
    with torch.no_grad():
        ours = encoder(torch.tensor([ids]))[0].double().sum(-1)
    assert ids[0] == spec.data.special.cls and ids[-1] == spec.data.special.sep
    assert torch.allclose(ours, torch.tensor(sums, dtype=torch.float64), atol=1e-5)


def test_a_webhook_is_told_and_its_address_is_kept_nowhere(text: Path, workbench: Command, tmp_path: Path) -> None:
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://me:pass-word@127.0.0.1:{server.server_port}/T0/sEcReT"
        words = ["run", "ablation", "--objective", "rtd", "--seeds", 2, "--workers", 2, "--corpus", text]
        words += ["--tasks", "none"]
        done = workbench(*words, "--budget", "steps=2", "--notify", f"webhook={address}", *SETS, cwd=tmp_path)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    [message] = got
    assert (message["state"], message["done"], message["runs"]) == ("done", 2, 2)
    assert (tmp_path / "runs" / "experiments" / f"{message['study']}.json").is_file()
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"--notify" in path.read_bytes() for path in kept)  # the command is kept, with the kind alone
    assert not [path for path in kept if b"sEcReT" in path.read_bytes() or b"pass-word" in path.read_bytes()]
    assert "sEcReT" not in done.stdout + done.stderr
