"""Vocabularies: the same text gives the same tokens everywhere, in pieces and by transformers; given tokenizers."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast

from workbench import process
from workbench.data import built_in_text, prepare, preprocessing, tokenizer
from workbench.data.corpus import Corpus
from workbench.data.tokenizer import contradiction
from workbench.errors import InputError
from workbench.spec.parts import TRAINED, DataSpec, Special
from workbench.spec.presets import resolve
from workbench.spec.run_spec import digest


@pytest.fixture(scope="module")
def folder(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer.train_or_load(DataSpec(), 2000, texts, cache=tmp_path_factory.mktemp("tokenizers"))


def test_frequent_words_are_tokens_and_rare_letters_unknown(folder: Path):
    fast = tokenizer.fast(folder)
    for word in ("the", "return", "function"):
        assert fast.encode(word.upper(), add_special_tokens=False).tokens == [word]
    assert fast.encode("Ḃ क", add_special_tokens=False).tokens[-1] == "[UNK]"


def test_special_tokens_in_a_text_are_text(folder: Path):
    found = tokenizer.fast(folder).encode("the [MASK] [SEP]", add_special_tokens=False).ids
    assert min(found) > 4


LOAD = """
import json, sys
sys.modules["workbench"] = None  # to import it is an error from here on
from transformers import AutoTokenizer
t = AutoTokenizer.from_pretrained(sys.argv[1])
pair = t("The function returns.", "It is a list.")
print(json.dumps([t.mask_token_id, t.pad_token_id, t.convert_ids_to_tokens(pair["input_ids"]), pair["token_type_ids"],
                  t.decode(pair["input_ids"], skip_special_tokens=True)]))
"""


def test_transformers_loads_it_without_workbench(folder: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, str(folder)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    mask, pad, tokens, types, text = json.loads(done.stdout)
    assert (mask, pad) == (4, 0)
    first = tokens.index("[SEP]") + 1
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
    assert types == [0] * first + [1] * (len(tokens) - first)
    assert text.replace(" ", "") == "thefunctionreturns.itisalist."


def test_a_folder_or_an_exported_tokenizer_serves_as_well(folder: Path, tmp_path: Path):
    tokenizer.load(folder).save_pretrained(str(tmp_path / "exported"))
    spec = DataSpec(tokenizer=str(tmp_path / "exported"))
    again = tokenizer.train_or_load(spec, 9, [], cache=tmp_path / "cache")
    assert tokenizer.content(again) == tokenizer.content(folder)
    assert tokenizer.special(again) == tokenizer.special(folder)
    assert again == tokenizer.train_or_load(spec, 9, [], cache=tmp_path / "cache")


def test_a_size_beyond_all_words_is_harmless():
    """The trainer reserves memory for as many tokens as it is asked for."""
    assert 10 < tokenizer.train(["the cat sat on the mat and the cat " * 20], 2**32).get_vocab_size() < 60


def test_the_cache_is_used_and_keyed(texts: list[str], tmp_path: Path):
    def unread() -> Any:
        raise AssertionError("documents were read although the vocabulary is there")
        yield

    first = tokenizer.train_or_load(DataSpec(), 1000, texts, "k", tmp_path)
    assert tokenizer.train_or_load(DataSpec(), 1000, unread(), "k", tmp_path) == first
    for spec, vocab, key in ((DataSpec(), 1001, "k"), (DataSpec(lowercase=False), 1000, "k"), (DataSpec(), 1000, "l")):
        assert tokenizer.train_or_load(spec, vocab, texts, key, tmp_path) != first
    assert not [leaf for leaf in (tmp_path / "tokenizers").iterdir() if leaf.name.startswith(".")]


@pytest.mark.parametrize("name", ["/dev/null", "a/folder/that/is/nowhere", "./words.json"])
def test_a_file_or_what_is_no_name_on_the_hub_is_refused_without_asking_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "transformers", None)  # which asks the hub, for a minute without a network
    with pytest.raises(InputError, match="nor the folder of a tokenizer, nor can it be a name on the hub; choose"):
        tokenizer.train_or_load(DataSpec(tokenizer=name), 9, [], "k", tmp_path)


@pytest.mark.parametrize(
    ("spec", "vocab", "words"),
    [
        (DataSpec(), 3, "encoder.vocab=3"),
        (DataSpec(), 60, "encoder.vocab=60 is too small"),
        (DataSpec(tokenizer="no/name"), 9, "'no/name' is neither 'wordpiece' nor 'bpe' nor 'unigram' nor a tok"),
        (DataSpec(tokenizer="wordpeice"), 9, "'wordpeice' is neither 'wordpiece' nor 'bpe' nor 'unigram' nor a tok"),
    ],
)
def test_what_cannot_be(
    spec: DataSpec, vocab: int, words: str, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as caught:
        tokenizer.train_or_load(spec, vocab, texts, "k", tmp_path)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not list(tmp_path.glob("tokenizers/*"))


def test_an_empty_folder_is_no_tokenizer(tmp_path: Path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="nothing holds no tokenizer"):
        tokenizer.train_or_load(DataSpec(tokenizer=str(tmp_path / "nothing")), 9, [], cache=tmp_path)


@pytest.mark.parametrize(("largest", "refused"), [(99, False), (100_000, True), (2**31, True)])
def test_ids_with_large_gaps_are_refused(folder: Path, tmp_path: Path, largest: int, refused: bool) -> None:
    """Each id up to the largest would get a row of weights."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    words = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = words["model"]["vocab"]
    vocabulary[next(reversed(vocabulary))] = max(largest, len(vocabulary))
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    load = functools.partial(tokenizer.train_or_load, DataSpec(tokenizer=str(tmp_path)), 9, [], cache=tmp_path)
    if refused:
        with pytest.raises(InputError, match=f"tokens with ids up to {largest:,}, and an encoder has weights for ev"):
            load()
    else:
        load()


def test_a_tokenizer_without_mask_is_refused(folder: Path, tmp_path: Path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["mask_token"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="no mask token"):
        tokenizer.special(tmp_path)


@given(
    st.lists(st.text(st.sampled_from("ab cd\n.é\u0301東\t\x1c\u2028[SEP]"), max_size=60), max_size=6), st.integers(1, 9)
)
@settings(max_examples=200, deadline=None)
def test_pieces_give_the_same_tokens_as_the_whole(folder: Path, lines: list[str], length: int):
    document = "\n".join(lines)
    parts = list(tokenizer.pieces(document, length))
    assert "".join(parts) == document
    fast = tokenizer.fast(folder)
    encoded = [number for part in parts for number in fast.encode(part, add_special_tokens=False).ids]
    assert encoded == fast.encode(document, add_special_tokens=False).ids


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(50, 2000))
@settings(max_examples=100, deadline=None)
def test_a_sample_is_spread_evenly(sizes: list[int], limit: int):
    documents = [f"{number} " * size for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "PIECE", 40)
        whole = [piece for document in documents for piece in tokenizer.pieces(document, 40)]
        kept = tokenizer.sample(documents, limit)
    total = sum(map(len, whole))
    if total <= limit:
        assert kept == whole
    else:
        assert sum(map(len, kept)) <= limit or len(kept) == 1
        assert any(kept == whole[::step] for step in (2**power for power in range(20)))
        assert sum(map(len, kept)) >= limit / 2 - 200 or len(kept) <= 2


def test_a_vocabulary_is_not_trained_in_too_few_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = process.FOR_TEXT
    monkeypatch.setattr(process.resource, "getrlimit", lambda _: (limit, limit))
    texts = ["some words of a text"]
    with pytest.raises(InputError, match=r"training a vocabulary on this text needs 0\.7 GB or more"):
        tokenizer.train_or_load(DataSpec(), 200, texts, cache=tmp_path)
    limit += tokenizer.TRAINING * sum(map(len, texts))
    assert tokenizer.train_or_load(DataSpec(), 200, texts, cache=tmp_path).is_dir()


EACH = pytest.mark.parametrize("kind", TRAINED)
SIZE = 800
# Letters that are rare and equally so, where the order of a hash table would show.
RARE = " ".join(chr(code) for code in range(0x391, 0x3C9)) + " Ærø Øst Łódź 東京 ½ → ™"
TEXT = "Hun gik på  vejen,\nog dét var En Ødegård; don't x=1 "


@pytest.fixture(scope="module")
def texts(workbench_cache: Path) -> list[str]:
    english = [entry.text for entry in built_in_text.entries("train")[:300]]
    return [*english, TEXT * 3, " ".join(map(chr, range(0x391, 0x3C9)))]


@pytest.fixture(scope="module")
def folders(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    cache = tmp_path_factory.mktemp("subwords")
    found = {}
    for kind in TRAINED:
        found[kind] = tokenizer.train_or_load(DataSpec(tokenizer=kind), SIZE, texts, cache=cache)
    return found


@EACH
def test_ids_are_dense_and_special_tokens_come_first(kind: str, folders: dict[str, Path]) -> None:
    fast = tokenizer.fast(folders[kind])
    assert [fast.id_to_token(i) for i in range(5)] == tokenizer.SPECIALS
    assert sorted(fast.get_vocab().values()) == list(range(SIZE)) and tokenizer.size(fast) == SIZE
    assert tokenizer.special(folders[kind]) == Special(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert (folders[kind] / "vocab.txt").exists() == (kind == "wordpiece")


@EACH
def test_transformers_loads_them(kind: str, folders: dict[str, Path]) -> None:
    loaded, fast = tokenizer.load(folders[kind]), tokenizer.fast(folders[kind])
    found = loaded(TEXT, "a second text")
    own = fast.encode(TEXT, "a second text")
    assert found["input_ids"] == own.ids and found["token_type_ids"] == own.type_ids
    assert found["input_ids"][0] == 2 and found["input_ids"][-1] == 3 and loaded.mask_token_id == 4
    words = "the array of values"
    assert loaded.decode(fast.encode(words).ids, skip_special_tokens=True).strip() == words


def test_training_does_not_depend_on_process_or_threads(texts: list[str]) -> None:
    """`tokenizers` alone gives another WordPiece or unigram vocabulary in every process."""
    code = (
        "import hashlib, json, sys; from workbench.data import tokenizer; texts = json.load(sys.stdin);"
        f"made = [tokenizer.train(texts, 700, True, kind).to_str() for kind in {TRAINED!r}];"
        "print([hashlib.sha256(words.encode()).hexdigest() for words in made])"
    )
    found = set()
    for threads, seed in (("1", "1"), ("2", "2"), ("2", "3")):
        done = subprocess.run(
            [sys.executable, "-c", code], input=json.dumps([*texts[:120], RARE]), capture_output=True, text=True,
            env={**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": seed}, check=True,
        )  # fmt: skip
        found.add(done.stdout)
    assert len(found) == 1


def test_unigram_finds_the_pieces_of_sentencepiece(texts: list[str]) -> None:
    """The reader is `tokenizers`, and the most probable pieces are those that SentencePiece itself finds."""
    import sentencepiece

    lines, words = texts[:80], ["the", "array", "values", "unvectorised", "returned", "ndarrays", "of", "x"]
    model = io.BytesIO()
    lowered = [" ".join(text.lower().split()) for text in lines]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lowered), model_writer=model, vocab_size=596, model_type="unigram", num_threads=1,
        normalization_rule_name="identity", bos_id=-1, eos_id=-1, minloglevel=2, max_sentence_length=1 << 30,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ours = tokenizer.train(lines, 600, True, "unigram", strip_accents=False)
    assert ours.get_vocab_size() == 600
    for text in (*words, " ".join(words)):
        assert ours.encode(text, add_special_tokens=False).tokens == theirs.encode(text, out_type=str), text


@pytest.mark.parametrize("lowercase", [True, False])
def test_no_text_is_read_as_a_special_token_of_unigram(lowercase: bool) -> None:
    """Not even where the text for training has none of the letters of such a token."""
    trained = tokenizer.train(["a b c. "] * 20, 800, lowercase, "unigram")
    trained.encode_special_tokens = True
    found = trained.encode("a [MASK] c[SEP] [PAD]", add_special_tokens=False)
    assert not {0, 2, 3, 4} & set(found.ids) and (1 in found.ids) == lowercase


def test_without_its_package_unigram_is_refused(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"sentencepiece, .* installed: pip install 'encoder-workbench\[unigram\]'"):
        tokenizer.train(texts, SIZE, True, "unigram")


def test_a_text_without_words_gives_no_unigram_vocabulary() -> None:
    with pytest.raises(InputError, match=r"data\.tokenizer=unigram: this text gives no vocabulary"):
        tokenizer.train([" \n"], SIZE, True, "unigram")


@EACH
@given(words=st.lists(st.text("aæå,.'’1 \n\tβ漢é", min_size=1, max_size=6), max_size=8))
def test_a_text_cut_after_a_blank_has_the_same_tokens(kind: str, words: list[str], folders: dict[str, Path]) -> None:
    fast = tokenizer.fast(folders[kind])
    whole = fast.encode(" ".join(words), add_special_tokens=False).ids
    parts = [fast.encode(f"{word} ", add_special_tokens=False).ids for word in words]
    assert [token for part in parts for token in part] == whole
    assert preprocessing._cuttable(fast)


def test_only_splitting_at_blanks_allows_cuts(folders: dict[str, Path]) -> None:
    from tokenizers import normalizers, pre_tokenizers

    fast = tokenizer.fast(folders["bpe"])
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert not preprocessing._cuttable(fast)
    fast = tokenizer.fast(folders["bpe"])
    fast.normalizer = normalizers.Sequence([normalizers.Replace("a b", "c")])
    assert not preprocessing._cuttable(fast)
    fast.normalizer = normalizers.Lowercase()
    assert not preprocessing._cuttable(fast)  # a single one of another tokenizer is not looked into


@pytest.mark.parametrize(
    ("lowercase", "strip", "expected"),
    [(True, None, "pa odegard"), (True, False, "på ødegård"), (False, None, "På Ødegård"), (False, True, "Pa Ødegard"),
     (True, True, "pa odegard")],
)  # fmt: skip
@EACH
def test_case_and_accents(kind: str, lowercase: bool, strip: bool | None, expected: str, texts: list[str]) -> None:
    trained = tokenizer.train(texts[-2:], SIZE, lowercase, kind, strip)
    assert trained.normalizer.normalize_str("På Ødegård") == expected.replace("odegard", "ødegard")


def test_no_byte_is_unknown_to_bpe(folders: dict[str, Path]) -> None:
    fast = tokenizer.fast(folders["bpe"])
    found = fast.encode("漢字 🤗 ŵ", add_special_tokens=False)
    assert 1 not in found.ids and fast.decode(found.ids).strip() == "漢字 🤗 w"


def test_words_are_told_apart(folders: dict[str, Path]) -> None:
    """Scores by whole words read `word_ids`."""
    for kind, expected in (("wordpiece", 4), ("bpe", 4), ("unigram", 3)):
        found = tokenizer.fast(folders[kind]).encode("unvectorised arrays, here", add_special_tokens=False)
        assert max(found.word_ids) + 1 == expected and found.word_ids == sorted(found.word_ids)


@pytest.mark.parametrize(("kind", "vocab"), [("bpe", 260), ("wordpiece", 20), ("unigram", 20)])
def test_a_vocabulary_without_room_is_refused(kind: str, vocab: int, texts: list[str]) -> None:
    with pytest.raises(InputError, match=rf"encoder\.vocab={vocab} is too small"):
        tokenizer.train(texts, vocab, True, kind)


def test_earlier_specs_and_vocabularies_keep_their_names(texts: list[str], tmp_path: Path) -> None:
    spec = resolve("nano")
    assert "strip_accents" not in spec.identity()["data"]
    names = {spec.changed({"data.strip_accents": value}).name for value in (None, True, False)}
    assert len(names) == 3 and spec.name in names
    assert tokenizer.settings(DataSpec()) == []
    cased: dict[str, Any] = {"lowercase": False}
    bpe: dict[str, Any] = {"tokenizer": "bpe"}
    kinds: list[dict[str, Any]] = [{}, {"strip_accents": False}, cased, bpe, bpe | cased, {"tokenizer": "unigram"}]
    found = [tokenizer.train_or_load(DataSpec(**keys), 300, texts[:40], "k", tmp_path) for keys in kinds]
    assert len(set(found)) == len(found)
    assert found[0].name == f"wordpiece-300-{digest([1, 'k', 300, True, tokenizer.SAMPLE], 16)}"


def test_accents_of_a_given_tokenizer_stay_as_they_are(folders: dict[str, Path], tmp_path: Path) -> None:
    spec = DataSpec(tokenizer=str(folders["bpe"]), strip_accents=False)
    with pytest.raises(InputError, match=r"data\.strip_accents=false cannot change data\.tokenizer=.* already; leave"):
        tokenizer.train_or_load(spec, 0, [], cache=tmp_path)


@EACH
def test_a_corpus_is_prepared_with_them(kind: str, texts: list[str], tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("\n\n".join([*texts[:60], TEXT]), encoding="utf-8")
    changes = {"data.corpus": str(book), "data.tokenizer": kind, "encoder.vocab": 500, "batch.size": 4}
    spec = resolve("nano", changes)
    made = prepare.prepare(spec, cache=tmp_path / "cache")
    fast = tokenizer.fast(made.tokenizer)
    assert prepare.prepare(spec, cache=tmp_path / "cache") == made
    assert made.vocab == 500 and prepare.bind(spec, made).encoder.vocab == 500
    expected = [i for text in (*texts[:60], TEXT) for i in (*fast.encode(text, add_special_tokens=False).ids, 3)]
    corpus = Corpus(made, spec.data.length, 0)
    counts = np.bincount(expected[: corpus.rows * (spec.data.length - 2)], minlength=500)
    assert corpus.counts().tolist() == counts.tolist()


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL, CAPITAL = ["the", "cat", "##s", "sat"], ["The", "Cat", "##s", "sat"]
JAPANESE = ["\u732b", "\u306f", "##\u3060"]


def given(words: list[str], normalizer: Any) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate([*SPECIAL, *words])}, unk_token="[UNK]"))
    if normalizer is not None:
        made.normalizer = normalizer
    names = {f"{word.strip('[]').lower()}_token": word for word in SPECIAL}
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


@pytest.mark.parametrize("keeping", [None, normalizers.NFC(), normalizers.BertNormalizer(lowercase=False)])
def test_capitals_that_are_kept_need_a_vocabulary_with_capitals(keeping: Any) -> None:
    assert contradiction(given(SMALL, keeping)).endswith("set do_lower_case to true")
    assert contradiction(given(CAPITAL, keeping)) == contradiction(given(JAPANESE, keeping)) == ""


@pytest.mark.parametrize("lower", [normalizers.Lowercase(), normalizers.BertNormalizer(lowercase=True)])
def test_capitals_of_a_vocabulary_are_in_vain_if_texts_are_put_into_lower_case(lower: Any) -> None:
    assert "2 of the 4 tokens of the vocabulary have capital letters" in contradiction(given(CAPITAL, lower))
    assert contradiction(given(SMALL, lower)) == contradiction(given(JAPANESE, lower)) == ""
    mostly_small = [f"word{i}" for i in range(200)] + ["XIV"]
    assert contradiction(given(mostly_small, lower)) == ""


def test_of_a_tokenizer_in_python_nothing_is_said() -> None:
    assert contradiction(object()) == ""
