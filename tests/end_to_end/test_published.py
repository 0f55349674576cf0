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
    assert "some-model" not in state["run_id"], "the name would depend on where the folder lies"
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
    assert done.returncode == 1 and done.stderr.count("move that folder away") == 1


def test_a_name_is_found_in_the_cache_of_the_hub_with_its_stated_flops(
    hub: Path, made: Path, table: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    """In a new process, as the hub's client reads the place of its cache when it is loaded."""
    words = [sys.executable, "-m", "workbench", "evaluate", str(made), NAME, "--tasks", str(table), *FAST, "--json"]
    paths = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, env=environment(cache) | paths, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)
    assert (one["model"], two["model"]) == (str(made), NAME) and one["value"] == two["value"]
    [run] = json.loads(workbench("runs", "--json", "--columns", "published.name,flops.paper", cwd=tmp_path).stdout)
    assert run == {"published.name": made.name, "flops.paper": 3.1e21}, "a folder and a name on the hub are one model"


REFUSED: dict[str, tuple[list[str], str]] = {
    "a name that is not there": (["someone/nothing"], "someone/nothing is not a folder here"),
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


def test_a_tokenizer_that_keeps_capitals_beside_a_vocabulary_of_small_letters_is_named(
    made: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    shutil.copytree(made, tmp_path / "other")
    words = json.loads((tmp_path / "other" / "tokenizer.json").read_text())
    words["normalizer"]["lowercase"] = False
    (tmp_path / "other" / "tokenizer.json").write_text(json.dumps(words))
    done = workbench("evaluate", "other", made, "--tasks", table, *FAST, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.count("capital letters") == 1, done.stderr
    assert "other: texts keep capital letters, and no token of the vocabulary has one" in done.stderr


def test_a_model_without_a_head_is_refused_before_anything_is_measured(
    made: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    from transformers import ElectraModel

    ElectraModel.from_pretrained(made).save_pretrained(tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(made / name, tmp_path / "bare" / name)
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "a.jsonl").write_text('{"sentence_good": "a cat", "sentence_bad": "cat a"}\n')
    done = workbench("evaluate", "bare", "--tasks", f"{table},pairs/", *FAST, cwd=tmp_path)
    assert done.returncode == 2 and "holds no head that predicts or detects tokens" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.glob("runs/*/scores/*"))


def test_a_run_goes_on_from_a_pair_and_states_what_was_spent_before(
    text: Path, workbench: Command, tmp_path: Path
) -> None:
    """Its first losses lie far below those of an untrained model with the same vocabulary."""
    from models.test_published_pair import make_pair

    make_pair(tmp_path / "pair", text.read_text())
    _learn(tmp_path / "pair", text)
    sets = ("data.length=32", "batch.size=8", "corruption.generator_mask=1", "corruption.generator_random=0")
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", "none", "--budget", "steps=3"]
    words += [part for each in sets for part in ("--set", each)]
    start = ("--set", f"start.from={tmp_path / 'pair/d'},{tmp_path / 'pair/g'}")
    for name, more in (("gone-on", start), ("new", ())):
        done = workbench(*words, *more, "--runs", name, "--out", f"report-{name}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    losses = {
        name: json.loads(next((tmp_path / name).glob("rtd-*/metrics.jsonl")).read_text().splitlines()[0])
        for name in ("gone-on", "new")
    }
    assert losses["gone-on"]["generator_loss"] < 0.75 * losses["new"]["generator_loss"]
    assert "unknown FLOPs were spent before" in (tmp_path / "report-gone-on/index.html").read_text()
    [card] = (tmp_path / "gone-on").glob("rtd-*/encoder/README.md")
    assert "went on from" in card.read_text() and "unknown amount" in card.read_text()
    assert workbench("verify", "gone-on", cwd=tmp_path).returncode == 0


def _learn(pair: Path, text: Path) -> None:
    """Train the generator of a pair for a while, as others did before, and keep the embeddings of both equal."""
    import torch
    from models.test_published_pair import tie
    from transformers import AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

    main: Any = ElectraForPreTraining.from_pretrained(pair / "d")
    small: Any = ElectraForMaskedLM.from_pretrained(pair / "g").train()
    tie(main, small)
    ids = AutoTokenizer.from_pretrained(pair / "g")(text.read_text().replace("\n", " "), return_tensors="pt").input_ids
    rows = ids[0, : 128 * 32].view(128, 32)
    optimizer = torch.optim.AdamW(small.parameters(), lr=5e-3)
    random = torch.Generator().manual_seed(0)
    for _ in range(60):
        batch = rows[torch.randperm(128, generator=random)[:16]]
        hidden = torch.rand(batch.shape, generator=random) < 0.3
        labels = batch.masked_fill(~hidden, -100)
        small(input_ids=batch.masked_fill(hidden, 4), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    main.save_pretrained(pair / "d")
    small.save_pretrained(pair / "g")


def test_minimal_pairs_are_scored_by_the_head_of_the_file(made: Path, workbench: Command, tmp_path: Path) -> None:
    rows = [{"sentence_good": f"the {one} runs", "sentence_bad": f"runs the {one}"} for one in ("cat", "dog", "cow")]
    (tmp_path / "order.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("evaluate", made, "--tasks", "order.jsonl", "--json")
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert row["task"] == "order" and row["details"]["scorer"] == "originality" and row["details"]["pairs"] == 3
    [run] = json.loads(workbench("runs", "--json", "--columns", "all", cwd=tmp_path).stdout)
    assert run["objective"] == "published" and run["score.order"] == row["value"]
