"""An exported encoder agrees with its model card, and its tokenizer truncates texts to its number of positions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from workbench.data import tokenizer
from workbench.models.encoder import build_encoder
from workbench.models.export import card, export, limit_length
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
    from workbench.models.export import card

    text = card(tiny(), FACTS)
    facts = yaml.safe_load(text.split("---")[1])
    assert facts["pipeline_tag"] == "feature-extraction" and facts["tags"] == ["feature-extraction", "electra"]
    assert "fill-mask" not in text and "no head" in text
    assert "A text encoder of 1 layer x 16 (electra)" in text and "5 steps, 640 tokens, " in text
    assert "up to 20 tokens" in text and "positions from 16 on never occurred" in text
    assert "never occurred" not in card(tiny(positions=16), FACTS)


def test_a_card_has_no_markup_and_no_secret_of_a_name() -> None:
    """Runs of older versions may have such names of their text."""
    names = ("<img src=x onerror=y>", "[a](javascript:z)", "https://me:Pl4nted@h/x?sig=Pl4ntedS3cret", "b\n# c\x1b[2J")
    spec = tiny().changed({"data.corpus": names, "data.tokenizer": "<b>`w`"}).replace(objective="o`\n<script>")
    text = card(spec, FACTS)
    assert "<img" not in text and "&lt;img src=x onerror=y&gt;" in text and "\\[a\\](javascript:z)" in text
    assert "Pl4nted" not in text and "\n# c" not in text and "\x1b" not in text and "<b>" not in text
    assert "`o' <script>`" in text  # as code, in which nothing is interpreted
