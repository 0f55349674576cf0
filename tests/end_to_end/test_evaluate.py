"""`workbench evaluate`: models of runs, folders and the hub, their settings and scores; bad folders refused."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import squad_files

from workbench.data import tokenizer
from workbench.spec import presets

from .conftest import Command, environment


@pytest.fixture(scope="module")
def encoder(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 layers of 128: twice nano's depth and width."""
    from workbench.encoders.electra import Config, Electra, to_hub

    folder = tmp_path_factory.mktemp("encoder")
    trained = tokenizer.train([table.read_text()], 200)
    tokenizer.save(trained, folder, True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 24}))
    sizes: dict[str, Any] = {"vocab_size": tokenizer.size(trained), "hidden_size": 128, "embedding_size": 16}
    model = Electra(Config(**sizes, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64))
    to_hub(model, model.state_dict(), folder)
    return folder


def test_settings_follow_the_size_and_stand_with_the_scores(
    encoder: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["evaluate", encoder, "--tasks", table, "--set", "tasks.epochs=1"]
    done = workbench(*words, "--json", cwd=tmp_path, ends=0)
    rows = json.loads(done.stdout)
    assert [row["seed"] for row in rows] == [0, 1]
    for row in rows:
        assert (row["settings"], row["length"], row["read_at"]) == ("mini", 24, "first token")
        assert (row["finetune"]["lr"], row["finetune"]["layer_decay"], row["finetune"]["dropout"]) == (1e-3, 0.7, 0.0)
    assert (
        "with the settings of scale mini: learning rate 0.001, layer decay 0.7" in done.stderr
        and "24 tokens" in done.stderr
    )


@pytest.mark.parametrize("tasks", ["none", "none,none"])
def test_without_tasks_there_is_nothing_to_print(tasks: str, encoder: Path, workbench: Command, tmp_path: Path) -> None:
    done = workbench("evaluate", encoder, "--tasks", tasks, cwd=tmp_path)
    assert done.returncode == 2 and "--tasks none gives none" in done.stderr and done.stdout == "", done.stderr


def test_words_of_ones_own_win_and_the_table_names_the_settings(
    encoder: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["evaluate", encoder, "--tasks", table, "--set", "tasks.epochs=1", "--set", "tasks.seeds=1"]
    done = workbench(*words, "--scale", "nano", "--set", "tasks.lr=0.004", cwd=tmp_path, ends=0)
    header, _, row = done.stdout.splitlines()
    assert {"settings", "lr", "layer_decay", "epochs", "batch", "dropout", "length", "score"} <= set(header.split())
    assert "nano" in row and "0.004" in row and "0.6" in row


def test_several_labels_folds_and_a_headline_metric(encoder: Path, workbench: Command, tmp_path: Path) -> None:
    pets = [["cat"] * (i % 2) + ["dog"] * (i % 3 == 0) for i in range(40)]
    lines = [f"number {i} has {' and '.join(each)}\t{'|'.join(each)}" for i, each in enumerate(pets)]
    (tmp_path / "pets.tsv").write_text("\n".join(["text\tlabels", *lines]) + "\n")
    words = ["evaluate", encoder, "--tasks", "pets.tsv", "--set", "tasks.kind=multilabel", "--set", "tasks.folds=4"]
    words += ["--set", "tasks.metric=micro_f1", "--set", "tasks.epochs=1", "--set", "tasks.seeds=1", "--json"]
    done = workbench(*words, cwd=tmp_path, ends=0)
    (row,) = json.loads(done.stdout)
    assert (row["task"], row["metric"], row["folds"], row["test_rows"]) == ("pets", "micro_f1", 4, 40)
    assert set(row["values"]["out-of-fold"]) == {"average_precision", "macro_f1", "micro_f1"}
    assert row["value"] == row["values"]["out-of-fold"]["micro_f1"]
    assert set(row["baselines"]) == {"majority", "bag-of-words"}
    refused = workbench(*words, "--set", "tasks.folds=1", cwd=tmp_path)
    assert refused.returncode == 2 and "tasks.folds" in refused.stderr and refused.stderr.count("\n") == 1


def test_a_bad_folder_ends_with_2_and_one_sentence(
    encoder: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "pytorch_model.bin"}}))
    done = workbench("evaluate", folder, "--tasks", table, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert "pytorch_model.bin" in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_folder_whose_name_is_not_utf8_is_refused(
    encoder: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "caf\udce9"
    shutil.copytree(encoder, folder)
    done = workbench("evaluate", folder, "--tasks", table, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "is not UTF-8, so no record can contain this name; rename the folder" in done.stderr
    assert not list((tmp_path / "runs").glob("*-*"))


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
    done = workbench(*words, cwd=tmp_path, ends=0)
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

    workbench(*words[:-3], "--flops", "3e17", "--json", cwd=tmp_path, ends=0)
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
        workbench(*words, *more, "--runs", name, "--out", f"report-{name}", cwd=tmp_path, ends=0)
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
    done = workbench(*words, cwd=tmp_path, ends=0)
    [row] = json.loads(done.stdout)
    assert row["task"] == "order" and row["details"]["scorer"] == "originality" and row["details"]["pairs"] == 3
    [run] = json.loads(workbench("runs", "--json", "--columns", "all", cwd=tmp_path).stdout)
    assert run["objective"] == "published" and run["score.order"] == row["value"]


SIZES = (
    "encoder.layers=2", "encoder.vocab=300", "data.length=8", "data.held_out=0.2", "batch.size=8",
)  # fmt: skip
TASKS = ("mine.csv", "tag:words.conll", "linear:mine.csv", "similarity:alike.csv", "squad1", "pairs:exchange")


@pytest.fixture(scope="module")
def study(text: Path, workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that is measured on every kind of task, whose texts are longer than its rows."""
    folder, rng = tmp_path_factory.mktemp("study"), random.Random(3)
    nouns = ["the cat", "a dog", "one bird", "this fish"]

    def long(words: int) -> str:
        return " ".join(rng.choice(nouns) for _ in range(words))

    rows = [f"{long(8)} {('sees', 'likes')[n % 2]} {long(12)},{'xy'[n % 2]}" for n in range(60)]
    (folder / "mine.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    alike = [f"{long(15)},{long(15)},{n % 6}" for n in range(30)]
    (folder / "alike.csv").write_text("\n".join(["sentence1,sentence2,score", *alike]) + "\n")
    tagged = [
        "\n".join(f"{word} {'NOUN' if word in ('cat', 'dog') else 'OTHER'}" for word in long(20).split())
        for _ in range(40)
    ]
    (folder / "words.conll").write_text("\n\n".join(tagged) + "\n")
    squad_files.write(folder, train=4, dev=2)
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", ",".join(TASKS)]
    words += ["--budget", "steps=20", *(part for each in SIZES for part in ("--set", each))]
    words += ["--set", "tasks.epochs=1", "--set", "tasks.seeds=1", "--set", "tasks.squad=."]
    workbench(*words, cwd=folder, ends=0)
    return folder


def scores_of_run(study: Path) -> dict[str, Any]:
    """Value and every metric of each task, as the run's own files have them."""
    [run] = (study / "runs").glob("rtd-*")
    scores = [json.loads(path.read_text()) for path in (run / "scores").iterdir()]
    return {score["task"]: (score["value"], score["values"]) for score in scores}


def evaluated(
    folder: Path, tasks: tuple[str, ...], store: str, study: Path, text: Path, workbench: Command
) -> dict[str, Any]:
    words = ["evaluate", folder, "--tasks", ",".join(tasks), "--runs", store, "--json"]
    sets = ("tasks.squad=.", f"data.corpus={text}", "data.held_out=0.2", "encoder.vocab=300")
    done = workbench(*words, *(part for each in sets for part in ("--set", each)), cwd=study, ends=0)
    assert "with the settings of its run" in done.stderr
    return {row["task"]: (row["value"], row["values"]) for row in json.loads(done.stdout)}


def test_its_settings_would_be_others_by_its_size(study: Path) -> None:
    [run] = (study / "runs").glob("rtd-*")
    assert json.loads((run / "spec.json").read_text())["spec"]["scale"] == "nano"
    assert presets.scale_of_encoder(2, 64) == "micro"


@pytest.mark.parametrize("place", ["in the run", "copied", "exported"])
def test_the_scores_are_the_same(place: str, study: Path, text: Path, workbench: Command, tmp_path: Path) -> None:
    """Minimal pairs need the head of pre-training, which a copy of the encoder alone lacks."""
    [run] = (study / "runs").glob("rtd-*")
    folder, tasks = run / "encoder", TASKS
    if place == "copied":
        folder, tasks = shutil.copytree(folder, tmp_path / "mine"), TASKS[:-1]
    elif place == "exported":
        assert workbench("export", run.name, "--checkpoint", tmp_path / "m", cwd=study).returncode == 0
        folder = tmp_path / "m" / "discriminator"
    known = scores_of_run(study)
    if place == "exported":
        for scorer in ("generator-pll", "electric"):  # beside the score, and of the generator, which is exported apart
            known[TASKS[-1]][1].pop(scorer, None)
    assert len(known) == len(TASKS)
    found = evaluated(folder, tasks, place, study, text, workbench)
    assert found == {name: known[name] for name in found} and len(found) == len(tasks)
    assert (study / place).exists() is (place != "in the run"), "a store is made only where scores are kept"


def test_options_take_precedence_and_a_foreign_entry_is_refused(
    study: Path, workbench: Command, tmp_path: Path
) -> None:
    [run] = (study / "runs").glob("rtd-*")
    folder = Path(shutil.copytree(run / "encoder", tmp_path / "mine"))
    words = ["evaluate", folder, "--tasks", study / "mine.csv", "--runs", tmp_path / "others", "--json"]
    for more, settings in ((("--set", "tasks.lr=0.004"), (0.004, 0.6, 32)), (("--scale", "micro"), (1e-3, 0.7, 64))):
        done = workbench(*words, *more, "--set", "tasks.epochs=1", "--set", "tasks.seeds=1", cwd=study)
        [row] = json.loads(done.stdout)
        assert tuple(row["finetune"][key] for key in ("lr", "layer_decay", "length")) == settings
    config = folder / "config.json"
    facts = json.loads(config.read_text())
    for wrong in ({"row_length": 0}, {"row_length": "x"}, {"tasks": {"lr": -1}}, {"tasks": {"names": ["a"]}}):
        config.write_text(json.dumps(facts | {"workbench": facts["workbench"] | wrong}))
        done = workbench(*words, cwd=study)
        assert done.returncode == 2 and "the entry 'workbench' of config.json" in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
