"""An exported encoder agrees with its model card, and its tokenizer truncates texts to its number of positions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import EvalResult, ModelCard

from workbench.data import tokenizer
from workbench.errors import InputError
from workbench.models.encoder import build_encoder
from workbench.models.export import LANGUAGES, Terms, encoder_card, export, limit_length, page
from workbench.spec.run_spec import RunSpec, parse

FACTS = {"steps": 5, "tokens": 640, "flops": {"paper": 1e6}}


def tiny(positions: int = 20, family: str = "electra") -> RunSpec:
    sizes = {"family": family, "hidden": 16, "layers": 1, "heads": 2, "vocab": 60, "positions": positions}
    return parse(
        {"encoder": sizes, "data": {"length": 16, "special": {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}}}
    )


@pytest.mark.parametrize("family", ["electra", "roberta"])
def test_the_exported_tokenizer_cuts_to_the_positions_of_the_encoder(tmp_path: Path, family: str) -> None:
    from transformers import AutoModel, AutoTokenizer

    words, folder = tmp_path / "words", tmp_path / "encoder"
    words.mkdir()
    folder.mkdir()
    tokenizer.save(tokenizer.train(["red blue green"] * 20, 60), words, True)
    spec = tiny(family=family)
    export(build_encoder(spec), words, folder, spec, FACTS)
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded.model_max_length == 20
    inputs = loaded("red blue " * 50, truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape == (1, 20)
    model = AutoModel.from_pretrained(folder)
    if family == "roberta":  # RoBERTa has one segment only
        inputs.pop("token_type_ids", None)
    assert model(**inputs).last_hidden_state.shape == (1, 20, 16)


def test_a_shorter_limit_of_the_tokenizer_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    for given, expected in ((12, 12), (512, 20), (1e30, 20), (None, 20)):
        path.write_text(json.dumps({"model_max_length": given, "do_lower_case": True}))
        limit_length(path, 20)
        assert json.loads(path.read_text()) == {"model_max_length": expected, "do_lower_case": True}


def test_the_card_states_what_the_folder_contains(tmp_path: Path) -> None:
    text = encoder_card(tiny(), FACTS)
    assert ModelCard(text).data.to_dict() == {
        "language": ["en"], "license": "unknown", "library_name": "transformers", "pipeline_tag": "feature-extraction",
        "tags": ["feature-extraction", "electra"],
    }  # fmt: skip
    assert "fill-mask" not in text and "no head" in text
    assert "A text encoder of 1 layer x 16 (electra)" in text and "5 steps, 640 tokens, " in text
    assert "up to 20 tokens" in text and "positions from 16 on never occurred" in text
    assert "never occurred" not in encoder_card(tiny(positions=16), FACTS)


def test_a_card_has_no_markup_and_no_secret_of_a_name() -> None:
    """Runs of older versions may have such names of their text."""
    names = ("<img src=x onerror=y>", "[a](javascript:z)", "https://me:Pl4nted@h/x?sig=Pl4ntedS3cret", "b\n# c\x1b[2J")
    spec = tiny().changed({"data.corpus": names, "data.tokenizer": "<b>`w`"}).replace(objective="o`\n<script>")
    text = encoder_card(spec, FACTS)
    assert "<img" not in text and "&lt;img src=x onerror=y&gt;" in text and "\\[a\\](javascript:z)" in text
    assert "Pl4nted" not in text and "\n# c" not in text and "\x1b" not in text and "<b>" not in text
    assert "`o' <script>`" in text  # as code, in which nothing is interpreted
    assert ModelCard(text).data.get("datasets") is None


NAMES: dict[str, tuple[dict[str, object], str, list[str] | None, list[str] | None]] = {
    "nothing is known of a file": ({"data.corpus": ("my.txt",)}, "", None, None),
    "what a text was filtered for": ({"data.corpus": ("my.txt",), "data.language": "da"}, "", ["da"], None),
    "what its publisher states": ({"data.corpus": ("my.txt",), "data.language": "da"}, "nb,nn", ["nb", "nn"], None),
    "built-in text beside code": ({"data.corpus": ("docs", "python-code")}, "", [*LANGUAGES.values()], None),
    "built-in text beside a file": ({"data.corpus": ("docs", "my.txt")}, "", None, None),
    "data sets of the hub": (
        {"data.corpus": ("o/set:config", "hf://datasets/o/other/a/*.parquet", "o/set:two", "s3://b/c")}, "", None,
        ["o/set", "o/other"],
    ),
    "a folder of such a name": ({"data.corpus": ("own/folder",)}, "", None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMES)
def test_language_and_data_are_stated_where_they_are_known(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, stated, languages, sets = NAMES[case]
    (tmp_path / "own" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    terms = Terms("cc-by-4.0", tuple(stated.split(","))) if stated else None
    data = ModelCard(page(tiny().changed(changes), "# A model", "fill-mask", terms=terms)).data
    assert (data.get("language"), data.get("datasets")) == (languages, sets)
    assert data.get("license") == ("cc-by-4.0" if stated else "unknown")


def test_scores_and_what_training_went_on_from_survive_the_card() -> None:
    scores = [
        EvalResult("text-classification", "glue", name, "accuracy", 61.2345, dataset_config=name, metric_args={"n": 2})
        for name in ("CoLA", "a: [b] 'ø' | # x")
    ]
    card = ModelCard(page(tiny(), "# A\n---\ntext\n", "fill-mask", (), None, scores, "run: 1 #2", "owner/model"))
    assert card.data.get("eval_results") == scores and card.data.get("model_name") == "run: 1 #2"
    assert card.data.get("base_model") == "owner/model" and card.text == "# A\n---\ntext\n"


@pytest.mark.parametrize("terms", [("MIT License",), ("",), ("mit", ("English",)), ("mit", ("",)), ("mit", ("en de",))])
def test_terms_that_the_hub_does_not_take_are_refused(terms: tuple[str, tuple[str, ...]]) -> None:
    with pytest.raises(InputError, match=r"--(license|language) '.*' is not"):
        Terms(*terms)
