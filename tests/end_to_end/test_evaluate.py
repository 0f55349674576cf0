"""`workbench evaluate DIR`: settings by the encoder's size, said and kept with each score; bad folders refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.data import tokenizer

from .conftest import Command


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
    done = workbench(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
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
    done = workbench(*words, "--scale", "nano", "--set", "tasks.lr=0.004", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    header, _, row = done.stdout.splitlines()
    assert {"settings", "lr", "layer_decay", "epochs", "batch", "dropout", "length", "score"} <= set(header.split())
    assert "nano" in row and "0.004" in row and "0.6" in row


def test_several_labels_folds_and_a_headline_metric(encoder: Path, workbench: Command, tmp_path: Path) -> None:
    pets = [["cat"] * (i % 2) + ["dog"] * (i % 3 == 0) for i in range(40)]
    lines = [f"number {i} has {' and '.join(each)}\t{'|'.join(each)}" for i, each in enumerate(pets)]
    (tmp_path / "pets.tsv").write_text("\n".join(["text\tlabels", *lines]) + "\n")
    words = ["evaluate", encoder, "--tasks", "pets.tsv", "--set", "tasks.kind=multilabel", "--set", "tasks.folds=4"]
    words += ["--set", "tasks.metric=micro_f1", "--set", "tasks.epochs=1", "--set", "tasks.seeds=1", "--json"]
    done = workbench(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["task"], row["metric"], row["folds"], row["test_rows"]) == ("pets", "micro_f1", 4, 40)
    assert set(row["values"]["out-of-fold"]) == {"average_precision", "macro_f1", "micro_f1"}
    assert row["value"] == row["values"]["out-of-fold"]["micro_f1"]
    assert set(row["baselines"]) == {"majority", "bag-of-words"}
    refused = workbench(*words, "--set", "tasks.folds=1", cwd=tmp_path)
    assert refused.returncode == 2 and "tasks.folds" in refused.stderr and refused.stderr.count("\n") == 1


def _named(name: str, **changes: Any) -> Callable[[Path], None]:
    return lambda folder: (
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes)) and None
    )


def _pipe(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "pytorch_model.bin"}}))


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pipe as weights": (_pipe, "not a regular file"),
    "an index that names a pickle": (_pickled, "pytorch_model.bin"),
    "a kernel of the hub": (_named("config.json", _attn_implementation="owner/kernel"), "owner/kernel"),
    "10^9 layers": (_named("config.json", num_hidden_layers=10**9), "num_hidden_layers"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_folder_ends_with_2_and_one_sentence(
    case: str, encoder: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    change, told = BAD[case]
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    change(folder)
    done = workbench("evaluate", folder, "--tasks", table, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert told in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_folder_whose_name_is_not_utf8_is_refused(
    encoder: Path, table: Path, workbench: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "caf\udce9"
    shutil.copytree(encoder, folder)
    done = workbench("evaluate", folder, "--tasks", table, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "is not UTF-8, so no record can contain this name; rename the folder" in done.stderr
    assert not list((tmp_path / "runs").glob("*-*"))
