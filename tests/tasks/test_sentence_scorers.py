"""Minimal pairs on models that others trained: equal to a plain loop over transformers' own model, or refused."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import squad_files
import torch
from pair_runs import CPU, scored
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from workbench import objectives
from workbench.data import tokenizer
from workbench.errors import Diverged, InputError
from workbench.models.encoder import Encoder
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.store.run_store import RunDir
from workbench.tasks import _pair_accuracy as pair_accuracy
from workbench.tasks import load as load_tasks
from workbench.tasks._pair_accuracy import Tokenized
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.sentence_scorers import check, of_folder
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.distributed import Ranks
from workbench.training.loop import build

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
    return PairSet("toy", "minimal-pairs", GOOD, BAD, {"paradigm": ["a"] * len(GOOD)})


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


NO_HEAD = r"holds no head that predicts or detects tokens \(.* is missing\)"


@pytest.mark.parametrize(
    ("kind", "sizes", "weights", "told"),
    [
        *((kind, SIZES, {}, NO_HEAD) for kind in ("ElectraModel", "BertModel", "ElectraForTokenClassification")),
        ("ElectraModel", {**SIZES, "is_decoder": True}, {}, NO_HEAD),
        ("XLNetLMHeadModel", {"d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 64}, {}, "by models of type xlnet"),
        ("BertForMaskedLM", SIZES, {"cls.predictions.bias": math.nan}, "holds weights that are NaN or infinite"),
        ("BertForMaskedLM", SIZES, {"cls.predictions.bias": [0.0] * 10},
         r"cls\.predictions\.bias has the shape \(10,\), and config.json describes "),
    ],
)  # fmt: skip
def test_a_folder_without_a_head_that_works_is_refused(
    kind: str, sizes: dict[str, Any], weights: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """No head is random without a word; messages name the weight, where transformers names a table of its own."""
    model = write(tmp_path / "model", kind, **sizes)
    state = model.state_dict()
    for name, value in weights.items():
        state[name] = torch.tensor(value) if isinstance(value, list) else torch.full_like(state[name], value)
    model.save_pretrained(tmp_path / "model", state_dict=state)
    with pytest.raises(InputError, match=told):
        take(pairs(), Model(tmp_path / "model", TasksSpec(), 0), CPU)


def test_scorers_are_chosen_by_name_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "model", "BertForMaskedLM", **SIZES)
    both = take(pairs(), Model(tmp_path / "model", TasksSpec(scorers=("default", "pll-word-l2r")), 0), CPU)
    assert {"pll-word-l2r"} <= both.values.keys()
    with pytest.raises(InputError, match=r"tasks.scorers=originality: .* has none of these; it has pll, pll-word-l2r"):
        take(pairs(), Model(tmp_path / "model", TasksSpec(scorers=("originality",)), 0), CPU)


def add_token(folder: Path, **special: str) -> int:
    """Add the token [NEW], for which the model has no embedding, to a tokenizer; return the number of embeddings."""
    words = tokenizer.load(folder)
    rows = len(words)
    words.add_tokens(["[NEW]"])
    words.add_special_tokens(special)
    words.save_pretrained(folder)
    return rows


@pytest.mark.parametrize("kind", ["ElectraForPreTraining", "BertForMaskedLM", "GPT2LMHeadModel"])
def test_a_token_without_an_embedding_is_refused_where_a_sentence_has_it(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, kind, **CLASSES[kind][0])
    before = take(pairs(), Model(folder, TasksSpec(), 0), CPU)
    rows = add_token(folder)
    assert take(pairs(), Model(folder, TasksSpec(), 0), CPU).values == before.values
    new = PairSet("new", "minimal-pairs", [*GOOD, "the [NEW] sat"], [*BAD, "sat [NEW] the"], {"paradigm": ["a"] * 4})
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
        squad_files.write(tmp_path, train=2, dev=2)
        for path in tmp_path.glob("*.json"):
            path.write_text(path.read_text().replace("loda", "[NEW]"))
    spec = TasksSpec(names=(name.format(tmp_path),), squad=str(tmp_path), squad_length=32, seeds=1)
    for task in load_tasks(spec, tmp_path / "cache").tasks:
        with pytest.raises(InputError, match=f"gives the id {rows}, and the encoder has ids 0 to {rows - 1}; tokeni"):
            take(task, Model(tmp_path / "model", spec, 0), CPU)


# ---- A run that is put together again to score sentences ----


@pytest.mark.parametrize(
    ("name", "tying"), [("rtd", "embeddings"), ("rtd", "gdes"), ("rtd", "none"), ("all-tokens-mlm", "tokens")]
)
def test_what_is_put_together_again_scores_as_the_model_did(
    name: str, tying: str, finished: Callable[..., RunDir], toy: PairSet
) -> None:
    run = finished(name, tying)
    again = of_folder(run.path / "encoder", ("default", "generator-pll"), "cpu")
    model: Any = build(run.spec()).eval()
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=numbers) * 0.3)
        texts = pair_accuracy.Tokenized(run.path / "encoder", toy.good, 16)
        for _, given in texts.batches(np.arange(3), "cpu"):
            own = next(iter(model.scorers().values()))(given)
            assert again.scorer(given).tolist() == pytest.approx(own.tolist(), rel=1e-5)
            own = model.scorers()["generator-pll"](given)
            assert again.beside["generator-pll"](given).tolist() == pytest.approx(own.tolist(), rel=1e-5)


def test_a_run_without_heads_says_so(finished: Callable[..., RunDir], toy: PairSet, tmp_path: Path) -> None:
    run = finished("rtd")
    encoder = tmp_path / run.run_id / "encoder"
    encoder.parent.mkdir()
    with pytest.raises(InputError, match="name the folder encoder of a run"):
        take(toy, Model(encoder, TasksSpec(), 0), CPU)
    (encoder.parent / "spec.json").write_bytes((run.path / "spec.json").read_bytes())
    with pytest.raises(InputError, match=r"has no folder heads, .* trained by an older version"):
        take(toy, Model(encoder, TasksSpec(), 0), CPU)


@pytest.mark.parametrize("name", objectives.names())
def test_a_scorer_that_an_objective_lacks_is_refused_before_training(name: str) -> None:
    spec = objectives.with_options(resolve("nano", {"objective": name, "tasks.scorers": ["nonsense"]}))
    with pytest.raises(InputError, match=f"tasks.scorers=nonsense: the objective {name} has none of these; it has "):
        check(spec)
    for asked in ("nonsense,default", next(iter(build(spec).scorers()))):  # type: ignore[operator]
        check(spec.replace(tasks=spec.tasks.model_copy(update={"scorers": tuple(asked.split(","))})))


# ---- Which tokens are of one word ----

TEXTS = ["It's naïve of the caterpillar,  is it?", "the\tcat overestimates a 🤗 there", "Caterpillars!", "the cat the"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MARK = normalizers.Replace(" ", "\u2581")
BLANKS: dict[str, tuple[Any, Any]] = {  # a normaliser and a pre-tokenizer, none of which splits words further
    "mark, nothing splits": (MARK, None),
    "mark, split at blanks of which none is left": (MARK, pre_tokenizers.Split(" ", "merged_with_previous")),
    "mark before the text too": (normalizers.Sequence([MARK, normalizers.Prepend("\u2581")]), None),
    "nothing": (None, None),
    "bytes that nothing splits": (None, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
    "bytes after a blank": (None, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False, trim_offsets=False)),
    "blanks at the end of words": (None, pre_tokenizers.Split(Regex(".+"), "isolated")),
    "metaspace": (None, pre_tokenizers.Metaspace()),
    "metaspace that splits nothing": (None, pre_tokenizers.Metaspace(split=False)),
}
OWN: dict[str, Any] = {  # with more words than those between blanks
    "bert": pre_tokenizers.BertPreTokenizer(),
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits()]),
}


def save(folder: Path, normalizer: Any, splitter: Any, texts: list[str] = TEXTS, size: int = 90) -> Path:
    """Write a byte-pair vocabulary of these texts, of which many words have several tokens."""
    words = Tokenizer(models.BPE(unk_token="[UNK]"))
    if normalizer is not None:
        words.normalizer = normalizer
    if splitter is not None:
        words.pre_tokenizer = splitter
    each = [f"{before}{word}" for text in texts for word in text.split() for before in ("", " ")]
    words.train_from_iterator(each, trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False))
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    words.decoder = decoders.Fuse()
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", BLANKS)
def test_words_are_between_blanks_where_the_tokenizer_splits_no_further(name: str, tmp_path: Path) -> None:
    found = Tokenized(save(tmp_path / "t", *BLANKS[name]), TEXTS, 60)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path / "t")
    for text, words, encoding in zip(TEXTS, found.words, loaded(TEXTS).encodings, strict=True):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        by_word: dict[int, set[int]] = {}
        for word, (start, end) in zip(words, encoding.offsets, strict=True):
            if word >= 0 and text[start:end].strip():
                first = start + len(text[start:end]) - len(text[start:end].lstrip())
                by_word.setdefault(word, set()).add(next(n for n, (a, b) in enumerate(spans) if a <= first < b))
        assert list(by_word.values()) == [{number} for number in range(len(spans))]
        assert [word < 0 for word in words] == [id in (2, 3) for id in encoding.ids]


@pytest.mark.parametrize("name", OWN)
def test_words_are_those_of_the_tokenizer_where_no_blank_is_within_one(name: str, tmp_path: Path) -> None:
    found = Tokenized(save(tmp_path / "t", None, OWN[name]), TEXTS, 60)
    encodings = PreTrainedTokenizerFast.from_pretrained(tmp_path / "t")(TEXTS).encodings
    assert found.words == [[-1 if word is None else word for word in each.word_ids] for each in encodings]


def test_a_mark_that_is_a_token_by_itself_begins_the_word_after_it(tmp_path: Path) -> None:
    """The tokens are those of a vocabulary of single characters."""
    words = Tokenizer(models.BPE({**{name: n for n, name in enumerate(SPECIAL)}, "\u2581": 5, "a": 6, "b": 7}, []))
    words.normalizer = MARK
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    assert Tokenized(tmp_path, ["ab ba a"], 60).words == [[0, 0, 1, 1, 1, 2, 2]]


CHINESE = ["我喜欢吃苹果和香蕉", "他昨天去了北京大学"]


@pytest.mark.parametrize("splitter", [None, pre_tokenizers.Metaspace(), pre_tokenizers.ByteLevel()])
def test_text_without_blanks_is_refused_unless_the_tokenizer_finds_words(splitter: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, "BertForMaskedLM", **SIZES)
    task = PairSet("toy", "minimal-pairs", CHINESE, CHINESE[::-1], {"paradigm": ["a"] * 2})
    by_word = TasksSpec(scorers=("pll-word-l2r",))
    assert take(task, Model(folder, by_word, 0), CPU).value == 50.0  # each character is a word of BERT's
    save(folder, None, splitter, GOOD, 34)
    with pytest.raises(
        InputError, match=r"tasks\.scorers=pll-word-l2r: the tokenizer of .* does not say where the wor"
    ):
        take(task, Model(folder, by_word, 0), CPU)
    assert take(task, Model(folder, TasksSpec(), 0), CPU).value == 50.0
    take(pairs(), Model(folder, by_word, 0), CPU)


def test_a_tie_counts_half_and_is_counted() -> None:
    good, bad = np.array([1.0, 0.0, -50.0, -50.0, 0.0]), np.array([0.0, 1.0, -50.00001, -50.001, 0.0])
    assert pair_accuracy.won(good, bad).tolist() == [1.0, 0.0, 0.5, 1.0, 0.5]


def test_a_scorer_that_knows_nothing_is_at_chance(finished: Callable[..., RunDir], toy: PairSet) -> None:
    same = PairSet("same", "minimal-pairs", toy.good, toy.good, {"paradigm": ["a"] * len(toy.good)})
    score = scored(finished("bert-mlm"), same)
    assert score.value == 50.0 and score.details["ties"] == score.details["pairs"] == 40


def test_the_headline_is_the_mean_over_groups(finished: Callable[..., RunDir], toy: PairSet) -> None:
    score = scored(finished("bert-mlm"), toy)
    groups = score.values["paradigm"]
    assert score.value == (groups["a"] + groups["b"]) / 2 == score.values["mean"]["accuracy"]
    assert score.baselines == {"chance": 50.0} and score.test_rows == 40 and score.seed == 0
    assert json.loads(json.dumps(score.to_json()))["scorer"] == "pll"


def test_bf16_decides_only_what_fp32_would_decide_alike(
    finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished("bert-mlm")
    exact = scored(run, toy)
    monkeypatch.setattr(pair_accuracy, "TRIED", 8)
    half = take(toy, Model(run.path / "encoder", TasksSpec(), 0), replace(CPU, precision="bf16"))
    assert half.values == exact.values and half.details["ties"] == exact.details["ties"]


def test_nan_names_the_run_and_the_pair(finished: Callable[..., RunDir], toy: PairSet, monkeypatch: Any) -> None:
    run = finished("bert-mlm")
    found = of_folder(run.path / "encoder", ("default",), "cpu")
    broken = replace(found, scorer=lambda given: torch.where(given.ids[:, 1] == given.ids[0, 1], torch.nan, 0.0))
    monkeypatch.setattr(pair_accuracy, "of_folder", lambda *_: broken)
    with pytest.raises(Diverged, match=rf"{run.run_id}: the score \(pll\) of a sentence of pair \d+ of toy is nan"):
        scored(run, toy)


@pytest.mark.parametrize("total", [torch.sum, partial(torch.sum, dim=0, keepdim=True)])
def test_one_number_for_a_whole_batch_is_no_score(
    total: Any, finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished("bert-mlm")
    found = of_folder(run.path / "encoder", ("default",), "cpu")
    broken = replace(found, scorer=lambda given: total(found.scorer(given)))
    monkeypatch.setattr(pair_accuracy, "of_folder", lambda *_: broken)
    with pytest.raises(InputError, match=rf"{run.run_id}: the score \(pll\) of \d+ sentences has the shape \(1?,?\), "):
        scored(run, toy)


class Side(Ranks):
    """One of several processes, here threads, which add up their arrays."""

    def __init__(self, index: int, count: int, met: threading.Barrier, given: list[Any]) -> None:
        super().__init__(index, count)
        object.__setattr__(self, "met", met)
        object.__setattr__(self, "given", given)

    def total(self, numbers: Any) -> Any:
        self.given[self.index] = numbers  # type: ignore[attr-defined]
        self.met.wait(60)  # type: ignore[attr-defined]
        summed = sum(self.given)  # type: ignore[attr-defined]
        self.met.wait(60)  # type: ignore[attr-defined]
        return summed


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("count", [2, 3])
def test_several_processes_score_each_sentence_once_and_have_the_score_of_one(
    count: int, precision: Any, finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_accuracy, "TOKENS", 20)  # few sentences a batch
    run, host, scored_by = finished("bert-mlm"), replace(CPU, precision=precision), dict[int, int]()
    alone = take(toy, Model(run.path / "encoder", TasksSpec(), 0), host)
    batches = pair_accuracy.Tokenized.batches

    def counted(texts: Any, chosen: Any, device: str, ranks: Ranks) -> Iterator[Any]:
        for part, sentences in batches(texts, chosen, device, ranks):
            scored_by[ranks.index] = scored_by.get(ranks.index, 0) + len(part)
            yield part, sentences

    monkeypatch.setattr(pair_accuracy.Tokenized, "batches", counted)
    met, given = threading.Barrier(count), [None] * count
    with ThreadPoolExecutor(count) as pool:
        sides = [Side(index, count, met, given) for index in range(count)]
        models = [Model(run.path / "encoder", TasksSpec(), ranks=side) for side in sides]
        scores = [job.result(60) for job in [pool.submit(take, toy, model, host) for model in models]]
    assert all(score.values == alone.values for score in scores)
    assert all(score.details == alone.details for score in scores)
    assert len(scored_by) == count
    if precision == "fp32":
        assert sum(scored_by.values()) == len({*toy.good, *toy.bad})


def test_electric_stands_beside_a_detector_and_shares_the_passes_of_its_generator(
    finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default; its value is the one it has alone, and no masked copy is computed twice."""
    run, rows = finished("rtd"), list[int]()
    beside = scored(run, toy)
    assert beside.details["scorer"] == "originality"
    alone = scored(run, toy, scorers=("electric",))
    assert beside.values["electric"] == {"accuracy": alone.value} and alone.details["scorer"] == "electric"
    states_at = Encoder.states_at

    def counted(self: Encoder, ids: Any, *rest: Any) -> Any:
        rows.append(len(ids))
        return states_at(self, ids, *rest)

    monkeypatch.setattr(Encoder, "states_at", counted)
    for scorers in (("default", "generator-pll"), ("generator-pll",)):
        rows.append(0)
        scored(run, toy, scorers=scorers)
    both, one = rows[1 : rows.index(0, 1)], rows[rows.index(0, 1) + 1 :]
    assert sum(both) == sum(one) > 0
