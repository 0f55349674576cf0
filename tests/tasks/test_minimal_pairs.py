"""Files of minimal pairs: BLiMP's sets, folders of one's own, and what is refused."""

from __future__ import annotations

import functools
import gzip
import json
import lzma
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from pair_runs import scored

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import DataSpec, TasksSpec
from workbench.store.run_store import RunDir
from workbench.tasks import _pair_accuracy as pair_accuracy
from workbench.tasks import held_out_pairs, minimal_pairs
from workbench.tasks.common.sentence_scorers import of_folder
from workbench.tasks.minimal_pairs import PairSet


def write_pairs(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_folder_of_json_lines_is_a_task_and_its_files_are_paradigms(tmp_path: Path) -> None:
    folder = tmp_path / "zorro"
    folder.mkdir()
    for name in ("b", "a"):
        write_pairs(folder / f"{name}.jsonl", [{"sentence_good": f"Good {name}.", "sentence_bad": "Bad."}])
    (folder / "c.jsonl.xz").write_bytes(lzma.compress(b'{"sentence_good": "Good c.", "sentence_bad": "Bad."}\n'))
    task = minimal_pairs.load_path(str(folder))
    assert (task.name, task.suite, task.groups) == ("zorro", "minimal-pairs", {"paradigm": ["a", "b", "c"]})
    assert minimal_pairs.holds_pairs(str(folder / "a.jsonl"))
    assert minimal_pairs.load_path(str(folder / "a.jsonl")).good == ["Good a."]
    assert not minimal_pairs.holds_pairs(str(write_pairs(tmp_path / "t.jsonl", [{"text": "x", "label": 1}])))


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = {"sentence_good": "Good.", "sentence_bad": "Bad."}
    write_pairs(tmp_path / "A.JSONL", [row])
    (tmp_path / "more").mkdir()
    for name in ("._A.jsonl", "b.json", "more/c.jsonl", "readme"):
        write_pairs(tmp_path / name, [row])
    assert minimal_pairs.load_path(str(tmp_path)).good == ["Good."]
    assert f"minimal pairs in {tmp_path}: ._A.jsonl, b.json, more, readme are not read: neither .jsonl" in caplog.text
    (tmp_path / "x-00000-of-00002.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"x-00001-of-00002.parquet is missing"):
        minimal_pairs.load_path(str(tmp_path))


def test_a_task_of_glue_is_meant_by_its_name_whatever_folders_lie_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CoLA", "zorro"):
        (tmp_path / name).mkdir()
        write_pairs(tmp_path / name / "a.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}])
    with pytest.raises(InputError, match="task CoLA is not available: no train"):
        tasks.load(TasksSpec(names="CoLA", glue=str(tmp_path)))
    assert [task.name for task in tasks.load(TasksSpec(names="./CoLA,zorro")).tasks] == ["CoLA", "zorro"]
    with pytest.raises(
        InputError, match="a search cannot choose settings by the pairs that a report shows; use --tasks pairs"
    ):
        tasks.load(TasksSpec(names="zorro", held_out=0.2))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there are no JSON lines of minimal pairs in this folder"):
        tasks.load(TasksSpec(names="empty"))


def test_files_that_are_absent_are_named_before_pairs_are_made_of_a_text(
    tmp_path: Path, toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out_pairs, "of_text", lambda name, *_, tuning: replace(toy, name=name))
    write_pairs(tmp_path / "blimp_fast.jsonl", [{"sentence_good": "A.", "sentence_bad": "B.", "UID": "u"}])
    asked = TasksSpec(names=("pairs:replace", "blimp-fast"), blimp=str(tmp_path))
    made: list[str] = []

    def text() -> tuple[DataSpec, Path]:
        made.append("text")
        return DataSpec(corpus="docs"), tmp_path

    assert [task.name for task in tasks.read(asked, text).tasks] == ["pairs:replace", "blimp-fast"] and made
    made.clear()
    with pytest.raises(InputError, match="is not a file or folder here"):
        tasks.read(asked.model_copy(update={"blimp": str(tmp_path / "gone")}), text)
    assert not made


def test_blimp_s_three_sets_lie_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    row = {"sentence_good": "A.", "sentence_bad": "B.", "UID": "u", "linguistics_term": "t", "field": "f"}
    write_pairs(tmp_path / "data" / "u.jsonl", [row])
    write_pairs(tmp_path / "blimp_filtered.jsonl", [row, row | {"UID": "v"}])
    assert minimal_pairs.load_named("blimp", str(tmp_path)).groups == {
        "paradigm": ["u"], "phenomenon": ["t"], "field": ["f"],
    }  # fmt: skip
    assert minimal_pairs.load_named("blimp-filtered", str(tmp_path)).groups["paradigm"] == ["u", "v"]
    with pytest.raises(InputError, match="task blimp-fast is not available: there are no JSON lines in"):
        minimal_pairs.load_named("blimp-fast", str(tmp_path))


def test_babylm_s_sets_are_found_where_its_pipeline_has_them(tmp_path: Path) -> None:
    for name, place in (("blimp-filtered", "full_eval/blimp_filtered"), ("blimp-fast", "fast_eval/blimp_fast")):
        (tmp_path / place).mkdir(parents=True)
        write_pairs(tmp_path / place / "u.jsonl", [{"sentence_good": f"{name}.", "sentence_bad": "B."}])
        for where in (tmp_path, tmp_path / place.partition("/")[0]):
            found = minimal_pairs.load_named(name, str(where))
            assert (found.name, found.good, found.groups["paradigm"]) == (name, [f"{name}."], ["u"])


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    with pytest.raises(InputError, match=rf"^--tasks {lost}: there is no such file or folder$"):
        tasks.load(TasksSpec(names=str(lost)))
    with pytest.raises(InputError, match=rf"^tasks.blimp={lost} is not a file or folder here; give the folder"):
        minimal_pairs.load_named("blimp-fast", str(lost))
    with pytest.raises(InputError, match=r"^task blimp-fast is not on the hub; give the folder"):
        minimal_pairs.load_named("blimp-fast", None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is not a JSON object"),
        ('{"sentence_good": "a"}', "line 2: 'sentence_bad' holds no text"),
        ('{"sentence_good": "a", "sentence_bad": " "}', "line 2: 'sentence_bad' holds no text"),
        ('{"sentence_good": 1, "sentence_bad": "a"}', "line 2: 'sentence_good' holds no text"),
        ('{"sentence_good": "\\ud800", "sentence_bad": "a"}', "half of a surrogate pair"),
        ('{"sentence_good": "a\\u0000", "sentence_bad": "a"}', "holds a NUL"),
        ('{"sentence_good": "' + "a" * 70_000 + '", "sentence_bad": "a"}', "70,000 characters"),
        ('{"sentence_good": "a", "sentence_bad": "b", "UID": 7}', "'UID' is not a name"),
        ("[" * 100_000, "line 2 is not JSON"),
    ],
)  # fmt: skip
def test_files_that_hold_no_pairs_are_refused_in_a_sentence(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"sentence_good": "a", "sentence_bad": "b"}\n' + line + "\n")
    with pytest.raises(InputError) as caught:
        minimal_pairs.load_path(str(path))
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_more_pairs_than_memory_is_meant_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimal_pairs, "MOST", 2)
    path = write_pairs(tmp_path / "t.jsonl", [{"sentence_good": "a", "sentence_bad": "b"}] * 3)
    with pytest.raises(InputError, match="line 3: there are more than 2 pairs in t"):
        minimal_pairs.load_path(str(path))


def test_real_blimp(real_data: Path) -> None:
    task = minimal_pairs.load_named("blimp-filtered", str(real_data / "blimp"))
    assert len(task.good) == 59_875
    assert [len(set(task.groups[level])) for level in ("paradigm", "phenomenon", "field")] == [67, 12, 4]
    assert sum(good == bad for good, bad in zip(task.good, task.bad, strict=True)) == 7
    assert len(minimal_pairs.load_named("blimp", str(real_data / "blimp")).good) == 67_000


# ---- Minimal pairs ----


def test_pairs_are_plain_data_and_back(toy: PairSet) -> None:
    assert PairSet(**json.loads(json.dumps(toy.shared()[1]))) == toy


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


def test_an_independent_reading_of_the_files_gives_the_same_scores(
    finished: Callable[..., RunDir], toy: PairSet
) -> None:
    """By Hugging Face's encoder and tokenizer and a head from its five tensors, without code of ours."""
    from transformers import AutoModel, AutoTokenizer

    run = finished("bert-mlm")
    encoder = AutoModel.from_pretrained(run.path / "encoder").eval()
    words = AutoTokenizer.from_pretrained(run.path / "encoder")
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


def test_gpt2_scores_sentences_as_hugging_face_does(finished: Callable[..., RunDir], toy: PairSet) -> None:
    """Their model loads what is exported, and its log-probabilities, summed over the words, are the scores."""
    from transformers import AutoTokenizer, GPT2LMHeadModel

    sizes = {"encoder.family": "gpt2", "encoder.embedding": None, "encoder.positions": 64}
    encoder = finished("causal-lm", **sizes).path / "encoder"
    ours, theirs = of_folder(encoder, ("default",), "cpu"), GPT2LMHeadModel.from_pretrained(encoder).eval()
    read = AutoTokenizer.from_pretrained(encoder)
    tokenized = pair_accuracy.Tokenized(encoder, toy.good, 64)
    assert ours.name == "causal"
    for numbers, batch in tokenized.batches(np.arange(len(toy.good)), "cpu"):
        for number, score in zip(numbers, ours.scorer(batch).tolist(), strict=True):
            ids = torch.tensor([read(toy.good[number])["input_ids"]])
            with torch.no_grad():
                log_p = theirs(ids).logits.double().log_softmax(-1)[0, :-1]
            each = log_p.gather(1, ids[0, 1:, None])[:-1]  # the last one is [SEP]
            assert score == pytest.approx(float(each.sum()), rel=1e-4)


# ---- Zorro's text files ----


def test_a_folder_of_zorro_is_a_task_by_paradigm_and_phenomenon(tmp_path: Path) -> None:
    folder = tmp_path / "babyberta"
    folder.mkdir()
    (folder / "irregular-verb.txt").write_text("Mark seen it .\nMark saw it .\nMark had saw it .\nMark had seen it .\n")
    (folder / "filler-gap-wh_question_object.txt.gz").write_bytes(gzip.compress(b"who it is .\nwhat it is .\n"))
    (folder / "filler-gap-wh_question_subject.txt").write_text("he saw who is .\nhe saw it is .\n")
    (folder / "README.txt").write_text("odd\n")
    (task,) = tasks.load(TasksSpec(names=str(folder))).tasks
    assert isinstance(task, PairSet) and (task.name, task.suite) == ("babyberta", "minimal-pairs")
    assert task.good == ["what it is .", "he saw it is .", "Mark saw it .", "Mark had seen it ."]
    assert task.bad == ["who it is .", "he saw who is .", "Mark seen it .", "Mark had saw it ."]
    paradigms = ["filler-gap-wh_question_object", "filler-gap-wh_question_subject", *["irregular-verb"] * 2]
    assert task.groups == {"paradigm": paradigms, "phenomenon": ["filler-gap"] * 2 + ["irregular"] * 2}
    assert len(minimal_pairs.PHENOMENA) == 23 and len(set(minimal_pairs.PHENOMENA.values())) == 13


def test_files_of_other_names_are_not_read(tmp_path: Path) -> None:
    """Their lines may be in the other order, as in Zorro's earlier versions."""
    (tmp_path / "agreement_between_neighbors.txt").write_text("this house .\nthis houses .\n")
    with pytest.raises(
        InputError, match=r"are no JSON lines of minimal pairs .*\.txt files are read only if they have"
    ):
        minimal_pairs.load_path(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a .\nb .\nc .\n", r"irregular-verb\.txt has an odd number of lines; of each two lines the first is wrong"),
        ("a .\n\nc .\nd .\n", r"irregular-verb\.txt, line 1: 'sentence_good' holds no text"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "irregular-verb.txt").write_text(text)
    with pytest.raises(InputError, match=said):
        minimal_pairs.load_path(str(tmp_path))


TEXT = (
    "The old man walked slowly along the river. He found a small boat there. The boat was painted in a bright blue.",
    "My sister reads many books about animals. She likes the ones about birds best. Birds sing in the old garden.",
)


def test_each_kind_changes_what_its_name_says() -> None:
    text = [list(held_out_pairs.sentences(line)) for line in TEXT]
    assert [len(one) for one in text] == [3, 3]
    for good, bad in held_out_pairs.exchanged(text):
        before, after = held_out_pairs.WORD.findall(good), held_out_pairs.WORD.findall(bad)
        assert sorted(before) == sorted(after) and before[0] == after[0] and bad.endswith(".")
        first, second = (n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
        assert second == first + 1
    many = [[f"The {a} {b} likes the {c} very much." for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwxyz"]]
    for good, bad in held_out_pairs.replaced(many):
        assert sum(a != b for a, b in zip(good.split(), bad.split(), strict=True)) == 1
    assert held_out_pairs.replaced(many) and held_out_pairs.exchanged(text)
    for good, bad in held_out_pairs.reordered(text):
        assert sorted(good.split()) == sorted(bad.split()) and good != bad
    assert len(held_out_pairs.reordered(text)) == 4


def test_words_of_scripts_without_blanks_are_characters() -> None:
    line = "我喜欢在公园里看书。他每天早上喝一杯茶。"
    text = [list(held_out_pairs.sentences(line))]
    assert text == [["我喜欢在公园里看书。", "他每天早上喝一杯茶。"]]
    (good, bad), *_ = held_out_pairs.exchanged(text)
    assert sorted(good) == sorted(bad) and good != bad and good[0] == bad[0] and bad.endswith("。")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("मैं हिन्दी में एक लंबी किताब पढ़ता हूँ।", "मैं हिन्दी में एक लंबी किताब पढ़ता हूँ"),
        ("আমি বাংলায় একটি বই পড়ি।", "আমি বাংলায় একটি বই পড়ি"),
        ("من امروز کتاب‌های تازه را می‌خوانم.", "من امروز کتاب‌های تازه را می‌خوانم"),
        ("میں آج ایک نئی کتاب پڑھتا ہوں۔", "میں آج ایک نئی کتاب پڑھتا ہوں"),
        (unicodedata.normalize("NFD", "Ich gehe über die Straße nach Köln."), "Ich gehe über die Straße nach Köln"),
        ("Don't re-read it l’été.", "Don't re-read it l’été"),
    ],
    ids=["Hindi", "Bengali", "Persian", "Urdu", "decomposed", "joined"],
)
def test_vowel_signs_and_joiners_belong_to_their_word(line: str, words: str) -> None:
    found = held_out_pairs.WORD.findall(line)
    assert unicodedata.normalize("NFC", " ".join(found)) == unicodedata.normalize("NFC", words)
    assert held_out_pairs.is_sentence(line)
    if len(found) >= held_out_pairs.WORDS[0]:
        ((good, bad),) = held_out_pairs.exchanged([list(held_out_pairs.sentences(line))])
        assert good == line != bad and sorted(held_out_pairs.WORD.findall(bad)) == sorted(found)


def test_too_little_held_out_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "held-out.jsonl").write_text(json.dumps(TEXT[0]) + "\n")
    with pytest.raises(
        InputError, match=r"gives \d pairs of the kind 'exchange', and 100 are needed; .*data.held_out="
    ):
        held_out_pairs.of_text("pairs", DataSpec(corpus="my.txt"), tmp_path, tuning=False)


@functools.cache
def of_docs(name: str, **environment: str) -> PairSet:
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environment.items():
            patch.setenv(variable, value)
        return held_out_pairs.of_text(name, DataSpec(corpus="docs"), Path(), tuning=True)


def test_the_headline_of_pairs_from_text_counts_every_pair_alike() -> None:
    """The built-in text gives a third as many pairs of the kind `order` as of each other kind."""
    found = of_docs("pairs")
    kinds = np.array(found.groups["kind"])
    assert 0 < (kinds == "order").sum() < (kinds == "exchange").sum()
    wins = np.where(kinds == "order", 1.0, 0.0)
    values = pair_accuracy.by_group(found, wins)
    assert values["kind"] == {"exchange": 0.0, "order": 100.0, "replace": 0.0}
    assert values["mean"]["accuracy"] == pytest.approx(100 * (kinds == "order").mean())


@pytest.mark.parametrize("kind", ["exchange", "replace", "order"])
def test_one_kind_alone_begins_with_the_same_pairs_and_has_more(kind: str) -> None:
    whole, alone = of_docs("pairs"), of_docs(f"pairs:{kind}")
    assert (alone.name, alone.suite) == (f"pairs:{kind}", whole.suite) and set(alone.groups["kind"]) == {kind}
    given = zip(whole.good, whole.bad, whole.groups["kind"], strict=True)
    shared = [(good, bad) for good, bad, its in given if its == kind]
    found = list(zip(alone.good, alone.bad, strict=True))
    assert found[: len(shared)] == shared and (len(found) > 3 * len(shared) or kind == "order")
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ["pairs", "pairs:replace"])
def test_a_rehearsal_scores_the_first_hundred_pairs_of_a_kind(name: str) -> None:
    whole, found = of_docs(name), of_docs(name, WORKBENCH_REHEARSAL="1")
    kinds = list(found.groups["kind"])
    assert all(kinds.count(kind) == 100 for kind in set(whole.groups["kind"])) and set(found.good) < set(whole.good)


def test_the_halves_for_choosing_settings_and_for_reports_share_nothing(tmp_path: Path) -> None:
    parts = [f"Part {n}. The cat number {n} sat on the mat." for n in range(60)]
    (tmp_path / "held-out.jsonl").write_text("".join(json.dumps(part) + "\n" for part in parts))
    one, other = (
        {s for p in held_out_pairs.paragraphs(DataSpec(corpus="x"), tmp_path, side) for s in p}
        for side in (True, False)
    )
    assert one and other and len(one | other) == 120 and not one & other
