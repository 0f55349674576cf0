"""Minimal pairs on models that others trained: equal to a plain loop over transformers' own model, or refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import squad_made
import torch
from pair_runs import CPU

from workbench.data import tokenizer
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import load as load_tasks
from workbench.tasks._preferences import Tokenized
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.sentence_scorers import of_folder
from workbench.tasks.minimal_pairs import PairSet, pair_set

GOOD = ["the cat sat on the mat", "a dog ran", "the dog sat on a cat"]
BAD = ["the mat sat on cat the", "dog a ran", "the dog on sat a cat"]
SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
                         "max_position_embeddings": 48, "initializer_range": 0.4}  # fmt: skip
GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48, "initializer_range": 0.4,
                        "bos_token_id": 2, "eos_token_id": 3}  # fmt: skip


def write(folder: Path, kind: str, **sizes: Any) -> Any:
    """Write a model of a transformers class with a vocabulary of these sentences, and return it."""
    import transformers

    trained = tokenizer.train([*GOOD, *BAD] * 3, 60)
    model_class = getattr(transformers, kind)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(model_class.config_class(vocab_size=tokenizer.size(trained), pad_token_id=0, **sizes))
    model.eval().save_pretrained(folder)
    tokenizer.save(trained, folder, True)
    return model


def pairs() -> PairSet:
    return pair_set("toy", "minimal-pairs", GOOD, BAD, {"paradigm": ["a"] * len(GOOD)})


def by_hand(kind: str, model: Any, folder: Path, text: str) -> float:
    """Return the score of a sentence by a loop over its tokens."""
    ids = tokenizer.load(folder)(text)["input_ids"]
    total = 0.0
    with torch.no_grad():
        for place in range(1, len(ids) - 1):
            given = torch.tensor([ids])
            if kind.endswith("PreTraining"):
                total += math.log(1 - torch.sigmoid(model(given).logits[0, place]).item())
                continue
            if kind.endswith("MaskedLM"):
                given[0, place] = 4
                logits = model(given).logits[0, place]
            else:
                logits = model(given[:, :place]).logits[0, -1]
            total += logits.log_softmax(-1)[ids[place]].item()
    return total


CLASSES = {
    "ElectraForPreTraining": (SIZES, "originality"), "ElectraForMaskedLM": (SIZES, "pll"),
    "BertForMaskedLM": (SIZES, "pll"), "GPT2LMHeadModel": (GPT2, "causal"),
    "ElectraForCausalLM": ({**SIZES, "is_decoder": True}, "causal"), "GPT2Model": (GPT2, "causal"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
def test_scores_are_those_of_a_loop_over_the_authors_model(kind: str, tmp_path: Path) -> None:
    """GPT-2's own files hold no head, since it is the table of tokens."""
    sizes, name = CLASSES[kind]
    model = write(tmp_path / "model", kind, **sizes)
    if kind == "GPT2Model":
        from transformers import GPT2LMHeadModel

        model, body = GPT2LMHeadModel(model.config).eval(), model
        model.transformer.load_state_dict(body.state_dict())
    expected = [by_hand(kind, model, tmp_path / "model", text) for text in (*GOOD, *BAD)]
    score = take(pairs(), Model(tmp_path / "model", TasksSpec(), 0), CPU)
    wins = [good > bad for good, bad in zip(expected[:3], expected[3:], strict=True)]
    assert score.value == pytest.approx(100 * sum(wins) / 3) and score.details["scorer"] == name

    scoring = of_folder(tmp_path / "model", ("default",), "cpu")
    texts = Tokenized(tmp_path / "model", [*GOOD, *BAD], scoring.length)
    found = {}
    with torch.inference_mode():
        for rows, sentences in texts.batches(np.arange(6), "cpu"):
            found |= dict(zip(rows.tolist(), scoring.scorer(sentences).tolist(), strict=True))
    assert [found[i] for i in range(6)] == pytest.approx(expected, rel=1e-4)


def test_a_causal_model_whose_tokenizer_puts_nothing_before_a_text_scores_the_first_token_too(tmp_path: Path) -> None:
    from tokenizers import processors

    from workbench.tasks.common.sentence_scorers import left_to_right, special_of

    model = write(tmp_path / "model", "GPT2LMHeadModel", **GPT2)
    words = tokenizer.load(tmp_path / "model")
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    words.bos_token = "[CLS]"
    ids = torch.tensor([words(GOOD[1])["input_ids"]])
    assert ids[0, 0] != 2
    whole = torch.cat([torch.tensor([[2]]), ids], 1)
    with torch.no_grad():
        logits = model(whole).logits.log_softmax(-1)
        expected = sum(logits[0, i, whole[0, i + 1]].item() for i in range(whole.shape[1] - 1))
        special = special_of(words)
        assert left_to_right(model, ids, special, 2).item() == pytest.approx(expected, rel=1e-5)
        without = left_to_right(model, ids, special, None).item()
    inner = model(ids).logits.log_softmax(-1)
    assert without == pytest.approx(sum(inner[0, i, ids[0, i + 1]].item() for i in range(ids.shape[1] - 1)), rel=1e-5)


@pytest.mark.parametrize("kind", ["ElectraModel", "BertModel", "ElectraForTokenClassification", "ElectraModel decoder"])
def test_no_head_is_random_without_a_word(kind: str, tmp_path: Path) -> None:
    decoder = {"is_decoder": True} if kind.endswith("decoder") else {}
    write(tmp_path / "model", kind.split()[0], **SIZES, **decoder)
    with pytest.raises(InputError, match=r"holds no head that predicts or detects tokens \(.* is missing\)"):
        take(pairs(), Model(tmp_path / "model", TasksSpec(), 0), CPU)


def test_a_family_without_such_a_head_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "model", "XLNetLMHeadModel", d_model=32, n_layer=1, n_head=2, d_inner=64)
    with pytest.raises(InputError, match="sentences cannot be scored by models of type xlnet"):
        take(pairs(), Model(tmp_path / "model", TasksSpec(), 0), CPU)


def test_scorers_are_chosen_by_name_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "model", "BertForMaskedLM", **SIZES)
    both = take(pairs(), Model(tmp_path / "model", TasksSpec(scorers=("default", "pll-word-l2r")), 0), CPU)
    assert {"pll-word-l2r"} <= both.values.keys()
    with pytest.raises(InputError, match=r"tasks.scorers=originality: .* has none of these; it has pll, pll-word-l2r"):
        take(pairs(), Model(tmp_path / "model", TasksSpec(scorers=("originality",)), 0), CPU)


def test_a_head_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    model = write(tmp_path / "model", "BertForMaskedLM", **SIZES)
    with torch.no_grad():
        model.cls.predictions.bias[3] = math.nan
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=r"holds weights that are NaN or infinite"):
        take(pairs(), Model(tmp_path / "model", TasksSpec(), 0), CPU)


def test_a_head_for_another_vocabulary_is_refused_by_its_name_and_shapes(tmp_path: Path) -> None:
    """The message of transformers itself refers to a table that users of the command do not see."""
    model = write(tmp_path / "model", "BertForMaskedLM", **SIZES)
    weights = model.state_dict() | {"cls.predictions.bias": torch.zeros(10)}
    model.save_pretrained(tmp_path / "model", state_dict=weights)
    with pytest.raises(InputError, match=r"cls\.predictions\.bias has the shape \(10,\), and config.json describes "):
        take(pairs(), Model(tmp_path / "model", TasksSpec(), 0), CPU)


def add_token(folder: Path, **special: str) -> int:
    """Add the token [NEW], for which the model has no embedding, to a tokenizer; return the number of embeddings."""
    words = tokenizer.load(folder)
    rows = len(words)
    words.add_tokens(["[NEW]"])
    words.add_special_tokens(special)
    words.save_pretrained(folder)
    return rows


@pytest.mark.parametrize("kind", CLASSES)
def test_a_token_without_an_embedding_is_refused_where_a_sentence_has_it(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, kind, **CLASSES[kind][0])
    before = take(pairs(), Model(folder, TasksSpec(), 0), CPU)
    rows = add_token(folder)
    assert take(pairs(), Model(folder, TasksSpec(), 0), CPU).values == before.values
    new = pair_set("new", "minimal-pairs", [*GOOD, "the [NEW] sat"], [*BAD, "sat [NEW] the"], {"paradigm": ["a"] * 4})
    with pytest.raises(InputError, match=f"the tokenizer gives the id {rows}, and the encoder has ids 0 to {rows - 1}"):
        take(new, Model(folder, TasksSpec(), 0), CPU)


def test_a_mask_without_an_embedding_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "model", "BertForMaskedLM", **SIZES)
    rows = add_token(tmp_path / "model", mask_token="[M]")
    with pytest.raises(InputError, match=f"gives the id {rows + 1}, and the encoder has ids 0 to {rows - 1}"):
        take(pairs(), Model(tmp_path / "model", TasksSpec(), 0), CPU)


TABLE = "text,pair,label,split\n" + "".join(
    f"the cat,a [NEW] sat {n},{n % 2},{'test' if n > 5 else 'train'}\n" for n in range(9)
)
TAGGED = "".join(f"[NEW] O\ndog B-X\ncat{n} O\n\n" for n in range(30))


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("{}/t.csv", "t.csv", TABLE), ("linear:{}/t.csv", "t.csv", TABLE), ("similarity:{}/t.csv", "t.csv", TABLE),
        ("tag:{}/t.conll", "t.conll", TAGGED), ("linear:{}/t.conll", "t.conll", TAGGED), ("squad1", "", ""),
        ("{}/p.jsonl", "p.jsonl", '{"sentence_good": "the [NEW]", "sentence_bad": "[NEW] the"}\n'),
    ],
)  # fmt: skip
def test_a_token_without_an_embedding_is_refused_by_every_kind_of_task(
    name: str, file: str, content: str, tmp_path: Path
) -> None:
    write(tmp_path / "model", "BertForMaskedLM", **SIZES)
    rows = add_token(tmp_path / "model")
    if file:
        (tmp_path / file).write_text(content)
    else:
        squad_made.write(tmp_path, train=2, dev=2)
        for path in tmp_path.glob("*.json"):
            path.write_text(path.read_text().replace("loda", "[NEW]"))
    spec = TasksSpec(names=(name.format(tmp_path),), squad=str(tmp_path), squad_length=32, seeds=1)
    for task in load_tasks(spec, tmp_path / "cache").tasks:
        with pytest.raises(InputError, match=f"gives the id {rows}, and the encoder has ids 0 to {rows - 1}; tokeni"):
            take(task, Model(tmp_path / "model", spec, 0), CPU)
