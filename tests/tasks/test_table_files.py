"""Rows of tables: what is read, and what is refused in a sentence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from task_data import labelled, refused

from workbench import tasks
from workbench.data import formats, model_files
from workbench.data.hugging_face import model_folder
from workbench.data.tokenizer import load_published_tokenizer
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks._tagger import word_windows
from workbench.tasks.common import table_files
from workbench.tasks.common.encoder_folders import encoder_facts, load_encoder
from workbench.tasks.common.examples import Task
from workbench.tasks.common.token_rows import open_splitter
from workbench.tasks.embeddings import Embedding


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_binary_is_no_table(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    path.write_bytes(b"text,label\nword\0,1\n")
    assert "NUL at byte 15" in refused(path)
    path.write_bytes("text\tlabel\n".encode("utf-16-le"))
    assert "UTF-16" in refused(path)


def test_binary_and_endless_fields_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a\\u0000b", "label": 1}\n')
    assert "line 1: column 'text' holds a NUL" in refused(path)
    path.write_text('{"text": "' + "a " * (table_files.LONGEST // 2) + 'b", "label": 1}\n')
    assert "line 1: column 'text' holds 1,048,577 characters, more than 1,048,576" in refused(path)


def test_a_header_of_very_many_columns_takes_a_moment(tmp_path: Path) -> None:
    """Comparing each with each would take minutes, and naming all of them megabytes."""
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{number}" for number in range(200_000)) + "\n" + "1," * 199_999 + "1\n")
    begun = time.process_time()
    assert len(refused(path)) < 10_000 and time.process_time() - begun < 10


def test_a_table_has_to_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = labelled(tmp_path / "t.csv", 2)
    monkeypatch.setattr(table_files, "LARGEST", 50)
    assert "bytes; a table may have at most 50" in refused(path)


def test_a_parquet_table_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    texts = ["a " * 200_000 + str(n) for n in range(20)]
    pq.write_table(pa.table({"text": texts, "label": [0, 1] * 10}), path, compression="zstd", use_dictionary=False)
    monkeypatch.setattr(formats, "FREE", 1 << 20)
    assert "decompresses to 7 MiB in 20 rows of column 'text'" in refused(path)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "t.jsonl", "t.label"])
def test_lines_that_end_in_carriage_returns_alone_are_rows(tmp_path: Path, name: str) -> None:
    lines = {
        "t.jsonl": '{"text": "a b", "label": 1}\n{"text": "c", "label": 0}\n', "t.label": "LOC:x a b\nNUM:y c\n",
    }.get(name, "text\tlabel\na b\t1\nc\t0\n".replace("\t", "," if name == "t.csv" else "\t"))  # fmt: skip
    found = []
    for end in ("\n", "\r", "\r\n"):
        (tmp_path / name).write_bytes(lines.replace("\n", end).encode())
        found.append(list(table_files.rows_of(tmp_path / name)))
    assert len(found[0]) == 2 and found[0] == found[1] == found[2]


# ---- Folders in the layout of each published checkpoint ----

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENGLISH = [*SPECIAL, "the", "cat", "sat", "å", "a", "##t", "s", "mat", "The"]
CZECH = [*SPECIAL, "kočka", "kocka", "na", "střeše"]
JAPANESE = [*SPECIAL, "東京", "##大学", "で", "研究", "を", "する"]
SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "initializer_range": 0.5,
}  # fmt: skip
MECAB = {
    "do_lower_case": False, "word_tokenizer_type": "mecab", "subword_tokenizer_type": "wordpiece", "never_split": None,
    "mecab_kwargs": {"mecab_dic": "ipadic"}, "model_max_length": 512,
}  # fmt: skip


def write(
    folder: Path, kind: str, vocabulary: list[str], config: Mapping[str, Any], tokenizer: Mapping[str, Any] | None,
    pickled: bool = False, **sizes: Any,
) -> Any:  # fmt: skip
    """Write a model of a transformers class as its authors did, and return it. `config` None values remove keys."""
    import torch
    import transformers
    from safetensors.torch import save_file

    model_class = getattr(transformers, kind)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**{"vocab_size": len(vocabulary), **SIZES, **sizes})).eval()
    folder.mkdir()
    raw = json.loads(model.config.to_json_string()) | {"architectures": [kind]} | config
    (folder / "config.json").write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    if pickled:
        torch.save(state, folder / "pytorch_model.bin")
    else:
        save_file(state, folder / "model.safetensors")
    if tokenizer is not None:
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary))
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return model


def unigram(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write a SentencePiece vocabulary as tokenizer.json, with the original m.model beside it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = [(word, 0.0) for word in SPECIAL] + [("\u2581", -2.0), ("\u2581the", -3.0), ("\u2581cat", -3.0)]
    made = Tokenizer(models.Unigram([*words, *((letter, -9.0) for letter in "abcehst")], unk_id=1))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Metaspace()
    pair = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pair
    )
    made.save(str(folder / "tokenizer.json"))
    named = {f"{word.strip('[]').lower()}_token": word for word in SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | settings))
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    (folder / "m.model").write_bytes(b"\x0a\x0e\x0a\x05<unk>")


def google(folder: Path, kind: str = "ElectraForPreTraining", **more: Any) -> Any:
    config = {"architectures": ["ElectraForTokenClassification"]}  # as the first configurations said
    return write(folder, kind, ENGLISH, config, {"do_lower_case": True, "model_max_length": 512}, **more)


def sentencepiece(folder: Path, pickled: bool, settings: Mapping[str, Any]) -> Any:
    model = write(folder, "ElectraForPreTraining", [*SPECIAL, *"0123456789"], {}, None, pickled, embedding_size=8)
    unigram(folder, settings)
    return model


def dane(folder: Path) -> Any:
    config = {"id2label": {"0": "O", "1": "B-PER"}, "label2id": {"O": 0, "B-PER": 1}}
    settings = {"do_lower_case": False, "model_max_length": 128}
    return write(folder, "ElectraForTokenClassification", ENGLISH, config, settings, True, embedding_size=8)


def seznam(folder: Path) -> Any:
    settings = {"do_lower_case": True, "strip_accents": False}
    return write(folder, "ElectraForPreTraining", CZECH, {"model_type": None}, settings, True, embedding_size=8)


def izumi_bert(folder: Path) -> Any:
    config = {"tokenizer_class": "BertJapaneseTokenizer"}
    return write(folder, "BertForMaskedLM", JAPANESE, config, MECAB, True)


def izumi_electra(folder: Path) -> Any:
    return write(folder, "ElectraForPreTraining", JAPANESE, {}, MECAB, True, embedding_size=16)


LAYOUTS: dict[str, Callable[[Path], Any]] = {
    "google/electra-small-discriminator": lambda folder: google(folder, embedding_size=8),
    "google/electra-base-discriminator": lambda folder: google(folder, embedding_size=16),
    "google/electra-large-generator": lambda folder: google(folder, "ElectraForMaskedLM", embedding_size=32),
    "AILabTUL/mELECTRA": lambda folder: sentencepiece(folder, False, {"tokenizer_class": "ElectraTokenizer"}),
    "AILabTUL/BiELECTRA-czech-slovak": lambda folder: sentencepiece(folder, True, {}),
    "Maltehb/aelaectra-danish-electra-small-cased": lambda folder: write(
        folder, "ElectraForPreTraining", ENGLISH, {}, {"do_lower_case": False, "model_max_length": 128}, True,
        embedding_size=8,
    ),
    "Maltehb/aelaectra-danish-electra-small-cased-ner-dane": dane,
    "Seznam/small-e-czech": seznam,
    "izumi-lab/bert-small-japanese": izumi_bert,
    "izumi-lab/electra-base-japanese-discriminator": izumi_electra,
}  # fmt: skip
TOKENS = {  # text, and the tokens that the authors' tokenizer gives
    "google/electra-small-discriminator": ("The Cat", ["[CLS]", "the", "cat", "[SEP]"]),
    "google/electra-base-discriminator": ("THE å", ["[CLS]", "the", "a", "[SEP]"]),
    "google/electra-large-generator": ("sat", ["[CLS]", "sat", "[SEP]"]),
    "AILabTUL/mELECTRA": ("The cat", ["[CLS]", "\u2581the", "\u2581cat", "[SEP]"]),
    "AILabTUL/BiELECTRA-czech-slovak": ("the CAT", ["[CLS]", "\u2581the", "\u2581cat", "[SEP]"]),
    "Maltehb/aelaectra-danish-electra-small-cased": ("The å", ["[CLS]", "The", "å", "[SEP]"]),
    "Maltehb/aelaectra-danish-electra-small-cased-ner-dane": ("the", ["[CLS]", "the", "[SEP]"]),
    "Seznam/small-e-czech": ("Kočka na střeše", ["[CLS]", "kočka", "na", "střeše", "[SEP]"]),
    "izumi-lab/bert-small-japanese": ("東京大学で研究", ["[CLS]", "東京", "##大学", "で", "研究", "[SEP]"]),
    "izumi-lab/electra-base-japanese-discriminator": ("研究を東京で", ["[CLS]", "研究", "を", "東京", "で", "[SEP]"]),
}  # fmt: skip


def read(folder: Path) -> Path:
    return model_files.with_safetensors(model_folder(str(folder)))


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_gives_the_hidden_states_of_the_class_that_wrote_it(name: str, tmp_path: Path) -> None:
    import torch

    written = LAYOUTS[name](tmp_path / "model")
    body = getattr(written, written.base_model_prefix)
    ids, mask = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    encoder = load_encoder(read(tmp_path / "model"), 0.0).eval()
    with torch.inference_mode():
        expected = body(input_ids=ids, attention_mask=mask).last_hidden_state
        got = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.allclose(got[mask.bool()], expected[mask.bool()], atol=1e-5), "some weights are not those of the file"
    stored = body.state_dict()
    for key, weight in encoder.state_dict().items():
        assert torch.equal(weight, stored[key]), f"{key} stayed random"


@pytest.mark.parametrize("name", TOKENS)
def test_each_tokenizer_gives_the_tokens_that_its_authors_trained_on(name: str, tmp_path: Path) -> None:
    if name.startswith("izumi-lab"):
        pytest.importorskip("fugashi")
        pytest.importorskip("ipadic")
    LAYOUTS[name](tmp_path / "model")
    text, tokens = TOKENS[name]
    tokenizer = load_published_tokenizer(read(tmp_path / "model"))
    assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == tokens


def test_a_causal_electra_is_read_at_its_last_token(tmp_path: Path) -> None:
    google(tmp_path / "causal", is_decoder=True)
    google(tmp_path / "usual")
    assert encoder_facts(tmp_path / "causal").reads_last and not encoder_facts(tmp_path / "usual").reads_last


def _lacking(folder: Path, part: str) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file({name: weight for name, weight in weights.items() if part not in name}, folder / "model.safetensors")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights of a layer are missing": (lambda folder: _lacking(folder, "layer.1.attention.self.query"), "lacks"),
    "the projection of embeddings is missing": (lambda folder: _lacking(folder, "embeddings_project"), "lacks"),
    "no type anywhere": (
        lambda folder: (folder / "config.json").write_text(
            json.dumps({**SIZES, "vocab_size": 14, "embedding_size": 8, "architectures": ["SomethingElse"]})
        ) and _renamed(folder),
        "model_type None",
    ),
    "a MeCab that names files": (
        lambda folder: (folder / "tokenizer_config.json").write_text(
            json.dumps(MECAB | {"mecab_kwargs": {"mecab_option": "-r /etc/passwd"}})
        ) and None,
        "mecab_kwargs",
    ),
}  # fmt: skip


def _renamed(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file({name.replace("electra.", ""): w for name, w in weights.items()}, folder / "model.safetensors")


@pytest.mark.parametrize("case", REFUSED)
def test_what_lacks_something_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    google(tmp_path / "model", embedding_size=8)
    change, told = REFUSED[case]
    change(tmp_path / "model")
    with pytest.raises(InputError, match=told):
        load_encoder(tmp_path / "model", 0.0)
        load_published_tokenizer(tmp_path / "model")


def test_a_missing_mecab_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fugashi", None)
    izumi_bert(tmp_path / "model")
    with pytest.raises(InputError, match=r"workbench\[japanese\]"):
        load_published_tokenizer(read(tmp_path / "model"))


@pytest.mark.parametrize("name", [name for name in LAYOUTS if "izumi" in name or "mELECTRA" in name])
def test_words_are_tagged_at_their_first_piece_also_by_slow_tokenizers(name: str, tmp_path: Path) -> None:
    LAYOUTS[name](tmp_path / "model")
    folder, japanese = read(tmp_path / "model"), "izumi" in name
    words, firsts = (["東京大学", "で"], ["東京", "で"]) if japanese else (["the", "cat"], ["\u2581the", "\u2581cat"])
    splitter = open_splitter(folder, 16, "tagging")
    data = word_windows(splitter, [words * 9], last=False)
    assert len(data.rows) > 1 and data.empty == 0
    pieces = {n: data.rows.ids[row][p] for row, where in enumerate(data.places) for p, n in zip(*where, strict=True)}
    assert splitter.tokenizer.convert_ids_to_tokens([int(pieces[n]) for n in sorted(pieces)]) == firsts * 9


# ---- Published tables and sets by their paths ----

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def load(name: object, **more: Any) -> Any:
    (task,) = tasks.read(TasksSpec(names=(str(name),), **more)).tasks
    return task


def test_ag_news_has_no_header(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("test", 4)):
        rows = [f'"{n % 4 + 1}","Title {n}","Text, ""quoted"" {n}\\$"' for n in range(count)]
        (tmp_path / f"{part}.csv").write_text("\n".join(rows) + "\n")
    task = load(tmp_path / "train.csv", label="1", text="2", pair="3")
    assert isinstance(task, Task) and task.labels == ("1", "2", "3", "4")
    assert (len(task.train), {part: len(rows) for part, rows in task.tests.items()}) == (12, {"test": 4})
    assert task.train.first[0] == "Title 0" and task.train.second == [f'Text, "quoted" {n}\\$' for n in range(12)]
    assert load(tmp_path / "train.csv").fingerprint == task.fingerprint
    (tmp_path / "four.csv").write_text('1,"a title",text,more\n' * 3)
    with pytest.raises(InputError, match=r"of a file without a header give numbers, as in --set tasks\.label=1"):
        load(tmp_path / "four.csv")
    with pytest.raises(InputError, match=r"has no column '9' \(tasks\.text\)"):
        load(tmp_path / "train.csv", label="1", text="9")


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_columns_without_a_header_are_found_and_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = "," if name.endswith("csv") else "\t"
    rows = [f"{mark.join((f'text {n}', ('good', 'bad')[n % 2]))}\n" for n in range(40)]
    (tmp_path / name).write_text("".join(rows))
    task = load(tmp_path / name)
    assert task.labels == ("bad", "good") and len(task.train) + len(task.tests["test"]) == 40
    assert f"{name} has no header: column 2 is read as the label, 1 as text" in caplog.text
    (tmp_path / name).write_text(mark.join(("remark", "mood")) + "\n" + "".join(rows))
    with pytest.raises(InputError, match="has no column 'label'"):  # a header of other names stays one
        load(tmp_path / name)


def test_a_header_of_numbers_stays_a_header(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n" + "".join(f"{n % 2},text {n}\n" for n in range(40)))
    task = load(tmp_path / "x.csv", label="1", text="2")
    assert len(task.train) + len(task.tests["test"]) == 40


def test_trec_has_a_label_before_each_text(tmp_path: Path) -> None:
    for part in ("train", "test"):
        lines = ["DESC:manner How did it end ?", "LOC:city What city is it ?", "LOC:other Where is it ?"]
        (tmp_path / f"{part}.txt").write_text("\n".join(lines) + "\n")
    fine = load(tmp_path / "train.txt")
    assert fine.labels == ("DESC:manner", "LOC:city", "LOC:other") and fine.train.first[0] == "How did it end ?"
    assert load(tmp_path / "train.txt", label="coarse").labels == ("DESC", "LOC")
    (tmp_path / "only.label").write_text("".join(f"__label__{n % 2} text {n}\n" for n in range(40)))
    assert load(tmp_path / "only.label").labels == ("0", "1")


def test_trec_is_read_as_it_was_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = "".join(f"{('LOC:city', 'HUM:ind')[n % 2]} What is number {n} , say ?\n" for n in range(60))
    (tmp_path / "train_5500.label").write_bytes(lines.encode() + b"NUM:date When did the caf\xe9 open ?\n")
    (tmp_path / "TREC_10.label").write_text(lines)
    task = load(tmp_path / "train_5500.label")
    assert task.name == tmp_path.name and len(task.train) == 61 and len(task.tests["test"]) == 60
    assert task.train.first[60] == "When did the café open ?"
    assert "is read as Latin-1: 1 character that ASCII lacks, first 'é' at line 61" in caplog.text


@pytest.mark.parametrize("odd", [b"\xe9" * 9, b"\xc3\xa9 \xe9", b"\x81"])
def test_other_bytes_are_no_latin_1(odd: bytes, tmp_path: Path) -> None:
    """Too many of them, some that are UTF-8 after all, or one that stands for no character."""
    lines = b"".join(b"x:y some text %d\n" % n for n in range(400))
    (tmp_path / "x.label").write_bytes(lines + b"x:z a" + odd + b"\n")
    with pytest.raises(InputError, match="is not UTF-8"):
        load(tmp_path / "x.label")


def test_sick_is_classified_graded_or_compared(tmp_path: Path) -> None:
    kinds = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
    for part, count in (("train", 9), ("trial", 3), ("test_annotated", 6)):
        rows = [f"{n}\tA {part} {n}\tB {n}\t{1 + n / 4}\t{kinds[n % 3]}\n" for n in range(count)]
        (tmp_path / f"SICK_{part}.txt").write_text(SICK + "".join(rows))
    path = tmp_path / "SICK_train.txt"
    task = load(path, label="entailment_judgment")
    assert task.name == "SICK" and set(task.labels) == set(kinds)
    assert {part: len(rows) for part, rows in task.tests.items()} == {"dev": 3, "test": 6}
    assert load(path).fingerprint == task.fingerprint
    assert load(path, label="relatedness_score").regression
    assert load(f"similarity:{path}").fingerprint == load(f"similarity:{path}", label="relatedness_score").fingerprint
    similar = load(f"similarity:{path}", label="relatedness_score")
    assert isinstance(similar, Embedding) and {part: len(rows) for part, rows in similar.tests.items()} == {
        "test": 6, "dev": 3,
    }  # fmt: skip
    rows = [
        f"{n}\tA {n}\tB {n}\t{kinds[n % 3]}\t{1 + n / 4}\t{('TRAIN', 'TRIAL', 'TEST')[n // 6]}\n" for n in range(18)
    ]
    head = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set\n"
    (tmp_path / "SICK.txt").write_text(head + "".join(rows))
    whole = load(tmp_path / "SICK.txt", label="entailment_label")
    assert len(whole.train) == 6 and {part: len(rows) for part, rows in whole.tests.items()} == {"dev": 6, "test": 6}


def test_subj_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "subj.tsv").write_text("".join(f'{n % 2}\tsome "text {n}\n' for n in range(60)))
    task = load(tmp_path / "subj.tsv", label="1", text="2")
    assert task.labels == ("0", "1") and len(task.train) + len(task.tests["test"]) == 60
    assert load(tmp_path / "subj.tsv").fingerprint == task.fingerprint
    assert task.train.first[0].startswith('some "text')


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("plot.tok.gt9", "some text .\n", r"a table ends in \.csv, .*, and sentences of tagged words are named tag:"),
        ("conll.txt", "EU NNP B-ORG\n", r"line 1: there are neither tabs nor a label .* are named tag:FILE"),
        ("trec.txt", "LOC:city\n", "line 1: there are neither tabs nor a label"),
        ("trec.txt", "\n\n", "holds no rows"),
    ],
)
def test_other_files_are_refused_in_a_sentence_that_helps(file: str, content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=told):
        load(tmp_path / file)


def test_a_folder_of_tables_is_told_how_to_be_named(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,1\n")
    with pytest.raises(InputError, match=r"name the file of a table, such as .*/train\.csv, or tag:.* for sentences"):
        load(tmp_path)
