"""Data sets of the hub by its own client, which reads its own cache here and never the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.data.hugging_face.hub import fetch, model_folder
from workbench.errors import InputError

FOLDER = "the folder that holds größe"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the client's cache, which is all that there is."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keep(cache: Path, kind: str, name: str) -> Path:
    """Lay a repository out as a download leaves it."""
    repository, commit = cache / f"{kind}s--{name.replace('/', '--')}", "0" * 40
    (repository / "snapshots" / commit / "cola").mkdir(parents=True)
    (repository / "snapshots" / commit / "cola" / "train.parquet").write_bytes(b"x")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return repository / "snapshots" / commit


@pytest.mark.parametrize("name", ["someone/texts-2.0_x", "texts"])
def test_a_data_set_that_was_downloaded_is_found_again(cache: Path, name: str) -> None:
    kept = keep(cache, "dataset", name)
    found = fetch(name, ["cola/*.parquet"], "--set tasks.glue", FOLDER)
    assert isinstance(found, Path) and found.samefile(kept) and (found / "cola" / "train.parquet").is_file()


def test_one_that_was_not_is_a_sentence_with_name_and_option(cache: Path) -> None:
    keep(cache, "model", "someone/texts")  # a model of that name is no data set
    told = fetch("someone/texts", ["*.jsonl"], "--set tasks.glue", FOLDER)
    assert isinstance(told, str) and "\n" not in told
    assert "tasks.glue='someone/texts'" in told and "--set tasks.glue=DIR" in told


@pytest.mark.parametrize("name", ["some--one/texts", "some..one", "x" * 200, "texts.git"])
def test_names_that_only_the_client_refuses_are_told_in_a_sentence_too(name: str) -> None:
    told = fetch(name, ["*"], "--set tasks.blimp", FOLDER)
    assert isinstance(told, str) and f"tasks.blimp={name!r}" in told


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "no such folder",
        "./data",
        "../data",
        "/data",
        "~/data",
        "a/b/c",
        "a/",
        "/a",
        "-a",
        "a/-b",
        "a\n",
        "a:b",
    ],
)
def test_what_is_neither_folder_nor_name_is_refused_at_once(name: str) -> None:
    with pytest.raises(InputError) as caught:
        fetch(name, ["*"], "--set tasks.glue", FOLDER)
    assert f"tasks.glue={name!r}" in str(caught.value) and FOLDER in str(caught.value)
    assert "--set tasks.glue=" not in str(caught.value).partition(";")[0], "it is a value here and no option"


def test_a_model_of_nobody_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="model ~nobodyx/a: ~nobodyx has no home folder; give the full path"):
        model_folder("~nobodyx/a")
