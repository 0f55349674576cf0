"""Minimal pairs: which sentence wins, ties, refused input, and equality with scores from an independent reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from pair_runs import FACTS, SIZES, scored

from workbench import objectives
from workbench.data import tokenizer
from workbench.models.export import export, export_heads
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks import _preferences as preferences
from workbench.tasks import minimal_pairs
from workbench.tasks.common.sentence_scorers import load
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.loop import build


def test_pairs_are_plain_data_and_back(toy: PairSet) -> None:
    assert PairSet.from_json(json.loads(json.dumps(toy.shared()[1]))) == toy


# ---- what wins ----


@pytest.mark.parametrize(
    ("name", "scorer"),
    [("rtd", "originality"), ("electra-15", "originality"), ("replace-mlm", "one-pass"),
     ("all-tokens-mlm", "copy-mixture"), ("bert-mlm", "pll")],
)  # fmt: skip
def test_each_objective_names_its_scorer_and_its_generator_stands_beside(
    name: str, scorer: str, finished: Callable[..., RunDir], toy: PairSet
) -> None:
    score = scored(finished(name), toy)
    assert score.details["scorer"] == scorer and ("generator-pll" in score.values) == (name != "bert-mlm")
    other = scored(finished(name), toy, scorers="electric,pll-word-l2r,default")
    assert other.details["scorer"] == {"rtd": "electric", "electra-15": "electric", "bert-mlm": "pll-word-l2r"}.get(
        name, scorer
    )
    assert other.digest != score.digest


# ---- recomputed from the exported files alone ----


def test_an_independent_reading_of_the_files_gives_the_same_scores(
    finished: Callable[..., RunDir], toy: PairSet
) -> None:
    """By Hugging Face's encoder and tokenizer and a head from its five tensors, without code of ours."""
    from transformers import AutoModel, AutoTokenizer

    run = finished("bert-mlm")
    encoder, words = (
        AutoModel.from_pretrained(run.path / "encoder").eval(),
        AutoTokenizer.from_pretrained(run.path / "encoder"),
    )
    head = safetensors.torch.load_file(run.path / "heads" / "model.safetensors")
    table = encoder.get_input_embeddings().weight

    def pll(text: str) -> float:
        ids, total = words(text, truncation=True, max_length=16)["input_ids"], 0.0
        for place in range(1, len(ids) - 1):
            copy = torch.tensor([[*ids[:place], words.mask_token_id, *ids[place + 1 :]]])
            hidden = encoder(copy).last_hidden_state[0, place]
            hidden = torch.nn.functional.gelu(head["head.dense.weight"] @ hidden + head["head.dense.bias"])
            hidden = torch.nn.functional.layer_norm(
                hidden, hidden.shape, head["head.norm.weight"], head["head.norm.bias"], 1e-12
            )
            total += float((table @ hidden + head["head.bias"]).log_softmax(-1)[ids[place]])
        return total

    with torch.no_grad():
        wins = [float(pll(good) > pll(bad)) for good, bad in zip(toy.good, toy.bad, strict=True)]
    score = scored(run, toy)
    assert score.values["paradigm"] == {"a": 100 * sum(wins[:10]) / 10, "b": pytest.approx(100 * sum(wins[10:]) / 30)}


# ---- what cannot be scored ----


# ---- reading ----


def test_gpt2_scores_real_sentences_as_hugging_face_does(real_data: Path, tmp_path: Path) -> None:
    """Their model loads what is exported, and its log-probabilities, summed over the words, are the scores."""
    from transformers import AutoTokenizer, GPT2LMHeadModel

    texts = minimal_pairs.load_named("blimp-filtered", str(real_data / "blimp")).good[::600]
    trained = tokenizer.train(texts, 400)
    (words := tmp_path / "words").mkdir()
    tokenizer.save(trained, words, True)
    given = {"objective": "causal-lm", "encoder.family": "gpt2", "encoder.vocab": tokenizer.size(trained)} | SIZES
    given |= {"encoder.embedding": None, "encoder.positions": 64}
    given |= {f"data.special.{key}": value for key, value in tokenizer.special(words).model_dump().items()}
    spec = objectives.with_options(resolve("nano", given))
    model: Any = build(spec)
    run = RunStore(tmp_path / "runs").open(BoundRun(spec))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.1)
    with run.staged("encoder") as folder:
        export(model.encoder, words, folder, spec, FACTS)
    with run.staged("heads") as folder:
        export_heads(model, folder)
    run.finish(FACTS)

    ours = load(run.path / "encoder", ("default",), "cpu")
    theirs = GPT2LMHeadModel.from_pretrained(run.path / "encoder").eval()
    read = AutoTokenizer.from_pretrained(run.path / "encoder")
    tokenized = preferences.Tokenized(run.path / "encoder", texts, 64)
    assert ours.name == "causal"
    for numbers, batch in tokenized.batches(np.arange(len(texts)), "cpu"):
        for number, score in zip(numbers, ours.scorer(batch).tolist(), strict=True):
            ids = torch.tensor([read(texts[number])["input_ids"]])
            with torch.no_grad():
                log_p = theirs(ids).logits.double().log_softmax(-1)[0, :-1]
            each = log_p.gather(1, ids[0, 1:, None])[:-1]  # the last one is [SEP]
            assert score == pytest.approx(float(each.sum()), rel=1e-4)


# ---- made from held-out text ----
