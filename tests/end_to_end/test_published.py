"""`workbench evaluate NAME|DIR...` into a store: models as runs of their own kind, from the cache of the hub too."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.data import tokenizer

from .conftest import Command, environment

NAME = "google/electra-large-discriminator"
FAST = ("--set", "tasks.epochs=1", "--set", "tasks.seeds=1", "--set", "tasks.lr=0.001")


def electra(folder: Path, table: Path, seed: int = 0) -> Path:
    """Write a tiny ElectraForPreTraining with its head, as Hugging Face does, with a vocabulary of the table."""
    import torch
    from transformers import ElectraConfig, ElectraForPreTraining

    trained = tokenizer.train([table.read_text()], 200)
    sizes: dict[str, Any] = {"vocab_size": tokenizer.size(trained), "hidden_size": 32, "embedding_size": 16}
    config = ElectraConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ElectraForPreTraining(config).save_pretrained(folder)
    tokenizer.save(trained, folder, True)
    return folder


@pytest.fixture(scope="module")
def made(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return electra(tmp_path_factory.mktemp("published") / "some-model", table)


@pytest.fixture
def hub(made: Path, tmp_path: Path) -> Path:
    """Return the hub's cache with the model as a download leaves it: links in a snapshot to files under blobs."""
    repository, commit = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}", "a" * 40
    snapshot, blobs = repository / "snapshots" / commit, repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(made.iterdir())):
        shutil.copyfile(file, blobs / f"{number:040x}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number:040x}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return tmp_path / "hub"


def states(workbench: Command, place: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(workbench("status", "--json", cwd=place).stdout)
    return rows


def test_scores_are_kept_as_a_run_of_its_own_kind(made: Path, table: Path, workbench: Command, tmp_path: Path) -> None:
    words = ("evaluate", made, "--tasks", table, *FAST, "--flops", "2.5e17", "--json")
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert (row["model"], row["settings"], row["task"]) == (str(made), "nano", "animals")
    [state] = states(workbench, tmp_path)
    assert (state["state"], state["kind"]) == ("done", "published")
    assert state["run_id"].startswith("published-some-model-")
    [run] = json.loads(workbench("runs", "--json", "--columns", "all", cwd=tmp_path).stdout)
    assert (run["objective"], run["flops.paper"], run["spent.steps"]) == ("published", 2.5e17, 0)
    assert run["published.name"] == "some-model" and "encoder.hidden" not in run
    assert run["score.animals"] == row["value"]
    assert workbench("verify", "runs", cwd=tmp_path).returncode == 0

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.json")}
    again = workbench(*words, cwd=tmp_path)
    assert (
        json.loads(again.stdout)[0]["value"] == row["value"]
        and json.loads(again.stdout)[0]["seconds"] == row["seconds"]
    )
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.json")}

    other = workbench(*words[:-3], "--flops", "3e17", "--json", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    [run] = json.loads(workbench("runs", "--json", "--columns", "flops.paper", cwd=tmp_path).stdout)
    assert run["flops.paper"] == 3e17 and workbench("verify", "runs", cwd=tmp_path).returncode == 0


def test_a_changed_score_is_damage(made: Path, table: Path, workbench: Command, tmp_path: Path) -> None:
    assert workbench("evaluate", made, "--tasks", table, *FAST, cwd=tmp_path).returncode == 0
    [score] = (tmp_path / "runs").glob("published-*/scores/*.json")
    score.write_text(score.read_text().replace('"value":', '"value" :'))
    assert workbench("verify", "runs", cwd=tmp_path).returncode == 1
    done = workbench("evaluate", made, "--tasks", table, *FAST, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("move that folder away") == 1


def test_a_name_is_found_in_the_cache_of_the_hub_with_its_stated_flops(
    hub: Path, made: Path, table: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    """In a new process, as the hub's client reads the place of its cache when it is loaded."""
    words = [sys.executable, "-m", "workbench", "evaluate", NAME, str(made), "--tasks", str(table), *FAST, "--json"]
    paths = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, env=environment(cache) | paths, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)
    assert (one["model"], two["model"]) == (NAME, str(made)) and one["value"] == two["value"]
    runs = json.loads(workbench("runs", "--json", "--columns", "run_id,flops.paper", cwd=tmp_path).stdout)
    assert sorted((row["flops.paper"] or 0.0) for row in runs) == [0.0, 3.1e21]
    assert any(row["run_id"].startswith("published-google-electra-large-discriminator-") for row in runs)


REFUSED: dict[str, tuple[list[str], str]] = {
    "a name that is not there": (["someone/nothing"], "someone/nothing is no folder here"),
    "FLOPs of two models": (["a", "b", "--flops", "1e18"], "is stated of one model"),
    "FLOPs that are none": (["a", "--flops", "0"], "--flops"),
    "a store that is a file": (["a", "--runs", "file"], "is not a folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_measured_is_refused_in_one_sentence(
    case: str, table: Path, workbench: Command, tmp_path: Path
) -> None:
    words, told = REFUSED[case]
    (tmp_path / "file").touch()
    done = workbench("evaluate", *words, "--tasks", table, cwd=tmp_path, HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 2 and told in done.stderr and done.stdout == "", done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_minimal_pairs_are_refused_before_anything_is_measured(
    made: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "a.jsonl").write_text('{"sentence_good": "a cat", "sentence_bad": "cat a"}\n')
    done = workbench("evaluate", made, "--tasks", f"{table},pairs/", *FAST, cwd=tmp_path)
    assert done.returncode == 2 and "heads of pre-training" in done.stderr
    assert not list((tmp_path / "runs").glob("published-*/scores/*"))
