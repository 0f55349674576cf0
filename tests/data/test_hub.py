"""Data sets of the hub from its client's cache, and the table of published checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import objectives
from workbench.data.hugging_face import PUBLISHED, fetch, known_model, model_folder
from workbench.errors import InputError
from workbench.spec.presets import resolve

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
    ["", " ", "no such folder", "../data", "/data", "~/data", "a/b/c", "a/", "/a", "-a", "a/-b", "a\n", "a:b"],
)
def test_what_is_neither_folder_nor_name_is_refused_at_once(name: str) -> None:
    with pytest.raises(InputError) as caught:
        fetch(name, ["*"], "--set tasks.glue", FOLDER)
    assert f"tasks.glue={name!r}" in str(caught.value) and FOLDER in str(caught.value)
    assert "--set tasks.glue=" not in str(caught.value).partition(";")[0], "it is a value here and no option"


def test_a_model_of_nobody_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="model ~nobodyx/a: ~nobodyx has no home folder; give the full path"):
        model_folder("~nobodyx/a")


# ---- published checkpoints ----


SIZES = {
    "small": {"encoder.layers": 12, "encoder.hidden": 256, "encoder.embedding": 128, "encoder.heads": 4},
    "base": {"encoder.layers": 12, "encoder.hidden": 768, "encoder.embedding": 768, "encoder.heads": 12},
    "large": {"encoder.layers": 24, "encoder.hidden": 1024, "encoder.embedding": 1024, "encoder.heads": 16},
}
TRAINED = {  # objective, size, vocabulary, generator, length and batch, from the models' pages and table 6
    "Maltehb/aelaectra-danish-electra-small-cased": ("rtd", "small", 32_000, 0.25, 128, 128),
    "izumi-lab/electra-base-japanese-discriminator": ("rtd", "base", 32_768, 1 / 3, 512, 256),
    "izumi-lab/bert-small-japanese": ("bert-mlm", "small", 32_768, None, 128, 128),
    "google/electra-large-discriminator": ("rtd", "large", 30_522, 0.25, 512, 2048),
}


@pytest.mark.parametrize("name", TRAINED)
def test_stated_flops_follow_from_the_stated_training(name: str) -> None:
    model = known_model(name)
    assert model is not None and model.steps is not None and model.flops is not None
    objective, size, vocab, generator, length, batch = TRAINED[name]
    changes = SIZES[size] | {"encoder.vocab": vocab, "data.length": length, "encoder.positions": 512}
    changes |= {"objective": objective, "budget.steps": 1, "generator.width": generator or 1.0}
    if name == "izumi-lab/bert-small-japanese":
        changes["encoder.embedding"] = 256
    spec = objectives.with_options(resolve("small", changes))
    flops = float(objectives.load(spec).cost(spec).train("paper")) * batch * model.steps
    assert flops == pytest.approx(model.flops, rel=0.02)
    assert (model.batch or batch, model.length or length) == (batch, length)


def test_every_row_has_a_source_and_flops_have_their_own() -> None:
    names = [model.name for model in PUBLISHED]
    assert len(names) == len({name.lower() for name in names}) == 16
    for model in PUBLISHED:
        assert model.source and model.tokenizer and model.parameters, model.name
        assert (model.flops is None) <= (model.steps is None or model.length is None), model.name
        assert model.flops is None or model.flops_source, model.name


def test_names_are_found_whatever_their_case() -> None:
    found = known_model("seznam/Small-E-Czech")
    assert found is not None and found.name == "Seznam/small-e-czech"
    assert known_model("seznam/other") is None and known_model(str(Path("a/b"))) is None
