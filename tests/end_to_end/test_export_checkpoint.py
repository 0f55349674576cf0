"""`workbench export RUN --checkpoint DIR`: models with their heads, with which transformers computes the same."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from workbench.tasks.common.sentence_scorers import put_together

from .conftest import SETS, Command


@pytest.fixture(scope="module")
def store(text: Path, table: Path, workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of RTD whose head is linear, one whose head is dense, BERT MLM and causal LM."""
    folder = tmp_path_factory.mktemp("export")
    words = ["run", "ablation", "--corpus", text, "--budget", "steps=4", *SETS]
    measured = ("--tasks", table, "--set", "tasks.seeds=2", "--set", "tasks.epochs=1")
    plain = ("--tasks", "none")
    for objective, sets in (("rtd", measured), ("electra-15", (*plain, "--set", "head=dense")), ("bert-mlm", plain)):
        done = workbench(*words, "--objective", objective, *sets, cwd=folder)
        assert done.returncode == 0, done.stderr
    done = workbench(*words, "--objective", "causal-lm", "--tasks", "none", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def only(store: Path, objective: str) -> Path:
    [run] = (store / "runs").glob(f"{objective}-*")
    return run


@pytest.mark.parametrize("objective", ["rtd", "electra-15"])
def test_discriminator_and_generator_compute_what_the_run_computes(
    objective: str, store: Path, workbench: Command, tmp_path: Path
) -> None:
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    run = only(store, objective)
    done = workbench("export", run.name, "--checkpoint", tmp_path / "out" / "models", cwd=store)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "out/models/discriminator"), str(tmp_path / "out/models/generator")]
    spec, model = put_together(run / "encoder", "cpu")
    objective_model: Any = model
    ids = torch.randint(5, spec.encoder.vocab, (3, 20), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        for name, kind, body, head in (
            ("discriminator", ElectraForPreTraining, objective_model.encoder, objective_model.head),
            ("generator", ElectraForMaskedLM, objective_model.generator.body, objective_model.generator.head),
        ):
            loaded: Any = kind
            loaded, report = loaded.from_pretrained(tmp_path / "out/models" / name, output_loading_info=True)
            assert not report["missing_keys"] and not report["unexpected_keys"], "a head would be random"
            assert torch.allclose(loaded.eval()(input_ids=ids).logits, head(body(ids)), atol=1e-4)


def test_the_generator_fills_masks_and_cards_have_text_compute_and_scores(
    store: Path, workbench: Command, tmp_path: Path
) -> None:
    from transformers import pipeline

    words = ("export", only(store, "rtd").name, "--checkpoint", tmp_path / "m", "--license", "mit", "--language", "en")
    assert workbench(*words, cwd=store).returncode == 0
    fill: Any = pipeline("fill-mask", model=str(tmp_path / "m" / "generator"))
    assert len(fill("the cat [MASK] a dog.")) == 5
    for name in ("discriminator", "generator"):
        card = (tmp_path / "m" / name / "README.md").read_text()
        assert "fingerprint" in card and "(matmul)" in card and "| animals | accuracy |" in card and "| 2 |" in card
        assert "- command: `" in card and "- versions: workbench " in card and "\n## Limits\n" in card
        data = ModelCard(card).data
        assert (data.get("license"), data.get("language")) == ("mit", ["en"])
        if name == "generator":
            assert data.get("eval_results") is None  # the scores are of the encoder
            continue
        [result] = data.get("eval_results")
        files = [json.loads(path.read_text()) for path in (only(store, "rtd") / "scores").glob("*.json")]
        assert result.metric_value == pytest.approx(statistics.fmean(file["value"] for file in files), abs=1e-4)
        assert (result.dataset_name, result.metric_type, result.metric_args["scores"]) == ("animals", "accuracy", 2)


def test_what_was_exported_can_be_gone_on_from(store: Path, text: Path, workbench: Command, tmp_path: Path) -> None:
    assert workbench("export", only(store, "rtd").name, "--checkpoint", tmp_path / "m", cwd=store).returncode == 0
    start = f"start.from={tmp_path / 'm/discriminator'},{tmp_path / 'm/generator'}"
    words = ["--objective", "rtd", "--corpus", text, "--tasks", "none", "--budget", "steps=2", "--set", start]
    done = workbench("run", "ablation", *words, "--set", "data.length=32", "--set", "batch.size=8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_bert_is_one_model(store: Path, workbench: Command, tmp_path: Path) -> None:
    done = workbench("export", only(store, "bert-mlm").name, "--checkpoint", tmp_path / "m", cwd=store)
    assert done.returncode == 0 and done.stdout.split() == [str(tmp_path / "m" / "masked-lm")]
    assert "Its run has no scores" in (tmp_path / "m/masked-lm/README.md").read_text()


REFUSED: dict[str, tuple[list[str], str]] = {
    "an objective without these heads": (["causal-lm"], "neither a head that detects"),
    "a run that is not there": (["nothing-like-it"], "no run 'nothing-like-it'"),
    "a table as well": (["rtd-", "--format", "latex"], "remove --out, --format"),
    "a folder with files": (["rtd-", "FULL"], "exists and is not an empty folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_refused_in_one_sentence(
    case: str, store: Path, workbench: Command, tmp_path: Path
) -> None:
    words, told = REFUSED[case]
    target = tmp_path / "m"
    if "FULL" in words:
        target.mkdir()
        (target / "mine").touch()
    words = [word for word in words if word != "FULL"]
    done = workbench("export", *words, "--checkpoint", target, cwd=store)
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == (["m"] if "FULL" in REFUSED[case][0] else [])
