"""Tokenizers in the Hugging Face layout: trained on the corpus, or read from the hub or a folder."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.data import hugging_face, model_files
from workbench.data.hugging_face import NAME
from workbench.errors import InputError, message_of, plural
from workbench.process import FOR_TEXT, check_address_space, interruptible
from workbench.spec.parts import TRAINED, DataSpec, Special
from workbench.spec.run_spec import digest
from workbench.store.atomic import cache_root, user_path
from workbench.store.cache import is_whole, staged

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SEGMENTS = "token_type_ids"  # the name of segment ids among the outputs of a tokenizer
SENTENCE_ENDS = (".", "!", "?")
BLANK_MARKS = ("\u2581", "\u0120")  # at the beginning of words, in SentencePiece and in byte-level BPE
SAMPLE = 32_000_000  # characters of training text; on Wikipedia, twice as many give 0.05 % fewer tokens for a text
TRAINING = 12  # bytes of memory for each character of that text, measured
PIECE = 8192  # characters; documents are sampled in pieces of about this length
BLANK, MARK = re.compile(r"[ \n]"), re.compile(r"[\s!-/:-@\[-`{-~]")
FAR = 1 << 16  # characters in which a blank is searched for
LAYOUT = 1  # increase it when training changes, so that older cached vocabularies are not used


def train_or_load(
    spec: DataSpec, vocab: int, documents: Iterable[str], key: str | None = None, cache: Path | None = None
) -> Path:
    """Return the folder of the tokenizer that the spec names; one of the TRAINED is trained if it is not in the cache.

    `documents` are read only then; `key` identifies their content. Raises InputError.
    """
    root = (cache or cache_root()) / "tokenizers"
    if spec.tokenizer not in TRAINED:
        if spec.strip_accents is not None:
            raise InputError(
                f"data.strip_accents={str(spec.strip_accents).lower()} cannot change data.tokenizer={spec.tokenizer}, "
                f"which is trained already; leave it out, or set data.tokenizer to {' or '.join(TRAINED)}"
            )
        return _fetch(spec.tokenizer, root)
    if key is None:
        documents = list(documents)
        key = hashlib.sha256("\0".join(documents).encode()).hexdigest()
    parts = [LAYOUT, key, vocab, spec.lowercase, SAMPLE, *settings(spec)]
    folder = root / f"{spec.tokenizer}-{vocab}-{digest(parts, 16)}"
    if not is_whole(folder):
        texts = sample(documents)
        check_address_space(FOR_TEXT + TRAINING * sum(map(len, texts)), "training a vocabulary on this text")
        trained = interruptible(lambda: train(texts, vocab, spec.lowercase, spec.tokenizer, spec.strip_accents))
        with staged(folder) as temporary:
            save(trained, temporary, spec.lowercase)
    return folder


def settings(spec: DataSpec) -> list[Any]:
    """Return the settings in which a trained vocabulary differs from BERT's WordPiece, none for BERT's."""
    kind = [] if spec.tokenizer == "wordpiece" else [spec.tokenizer]
    return kind + ([] if spec.strip_accents is None else [f"strip_accents={spec.strip_accents}"])


def load(folder: Path) -> Any:
    """Return the tokenizer in a folder as a transformers tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)


def content(folder: Path) -> str:
    """Return the SHA-256 of those parts of tokenizer.json that decide the token ids."""
    raw = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for name in ("truncation", "padding", "post_processor"):
        raw.pop(name, None)
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()


def special(folder: Path) -> Special:
    """Return the ids of the special tokens. Raises InputError if one of them is missing."""
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer = fast(folder)
    special_ids, missing = dict[str, int | None](), list[str]()
    for name in ("pad", "unk", "cls", "sep", "mask"):
        token = config.get(f"{name}_token")
        token = token["content"] if isinstance(token, dict) else token
        special_ids[name] = tokenizer.token_to_id(token) if token else None
        missing += [name] if special_ids[name] is None else []
    if missing:
        raise InputError(
            f"the tokenizer has no {' and no '.join(missing)} token, which pre-training needs; "
            f"choose another with --set data.tokenizer=NAME"
        )
    return Special.model_validate(special_ids)


def fast(folder: Path) -> Tokenizer:
    """Return a folder's `tokenizers` object, without truncation and padding; "[MASK]" in a text is ordinary text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def sentence_ends(folder: Path, vocab: int) -> NDArray[np.bool_]:
    """Return which of `vocab` tokens end a sentence (. ! ?), (V,); none if the folder holds no tokenizer."""
    ends = np.zeros(vocab, dtype=bool)
    if (folder / "tokenizer.json").is_file():
        words = fast(folder)
        ends[[number for mark in SENTENCE_ENDS if (number := words.token_to_id(mark)) is not None]] = True
    return ends


def word_starts(folder: Path, vocab: int) -> NDArray[np.bool_]:
    """Return which of `vocab` tokens begin a word, (V,); all do if the vocabulary does not say so.

    WordPiece marks continuations, SentencePiece ("\u2581") and byte-level BPE ("\u0120") the beginnings of words.
    """
    starts = np.ones(vocab, dtype=bool)
    if not (folder / "tokenizer.json").is_file():
        return starts
    words = fast(folder)
    prefix = getattr(words.model, "continuing_subword_prefix", None)
    tokens = words.get_vocab(with_added_tokens=True)
    marked = any(token[0] in BLANK_MARKS for token in tokens if token)
    for token, number in tokens.items():
        starts[number] = not token.startswith(prefix) if prefix else not marked or token[:1] in BLANK_MARKS
    return starts


def size(tokenizer: Tokenizer) -> int:
    """Return the vocabulary size, which is the largest token id plus one."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def sample(documents: Iterable[str], limit: int | None = None) -> list[str]:
    """Return about `limit` characters of text, spread evenly over all documents, or all text if there is less.

    Every n-th piece is kept, and n doubles whenever more than `limit` characters are kept.
    """
    limit = SAMPLE if limit is None else limit
    kept: list[str] = []
    every, total = 1, 0
    for number, piece in enumerate(chain.from_iterable(map(pieces, documents, repeat(PIECE)))):
        if number % every:
            continue
        kept.append(piece)
        total += len(piece)
        while total > limit and len(kept) > 1:
            every, kept = 2 * every, kept[::2]
            total = sum(map(len, kept))
    return kept


def pieces(document: str, length: int) -> Iterator[str]:
    """Yield a document in pieces of about `length` characters, cut after blanks and line ends.

    If none follows within FAR characters, a piece ends after other white space or punctuation, else inside a word.
    """
    start = 0
    while start < len(document):
        nearest, furthest = start + length, start + length + FAR
        boundary = BLANK.search(document, nearest, furthest)
        if boundary is None and furthest < len(document):
            boundary = MARK.search(document, nearest, furthest)
        end = boundary.end() if boundary else min(furthest, len(document))
        yield document[start:end]
        start = end


def save(tokenizer: Tokenizer, folder: Path, lowercase: bool) -> None:
    """Write tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt, which transformers loads."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": lowercase}
    for token in SPECIALS:
        config[f"{token.strip('[]').lower()}_token"] = token
    config["model_input_names"] = ["input_ids", SEGMENTS, "attention_mask"]
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if json.loads(tokenizer.to_str())["model"]["type"] == "WordPiece":
        numbers = tokenizer.get_vocab()
        (folder / "vocab.txt").write_text("\n".join([*sorted(numbers, key=numbers.__getitem__), ""]), encoding="utf-8")


def _fetch(name: str, root: Path) -> Path:
    """Return a cached copy, in its fast form, of a tokenizer in a folder or on the hub. Its own code is never run."""
    path = user_path(name, "--set data.tokenizer:")
    identity: Any = name
    kinds = f"neither {' nor '.join(map(repr, TRAINED))}"
    if path.is_dir():
        files = sorted(hugging_face.check_tokenizer_folder(path).items())
        identity = [[name, hashlib.sha256(file.read_bytes()).hexdigest()] for name, file in files]
    elif os.path.lexists(path) or not NAME.fullmatch(name):
        raise InputError(
            f"data.tokenizer={name!r} is {kinds} nor the folder of a tokenizer, nor can it be a name on the hub; "
            f"choose one of these with --set data.tokenizer=NAME"
        )
    folder = root / f"{''.join(c if c.isalnum() else '-' for c in path.name)[:40]}-{digest(identity, 16)}"
    if is_whole(folder):
        return folder
    if path.is_dir():
        tokenizer = load_published_tokenizer(path)
    else:
        with model_files.refusing(repr(name), f"is {kinds} nor a tokenizer that can be loaded"):
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise InputError(
            f"tokenizer {name!r} has no fast (Rust) form, which is needed to encode a corpus; "
            f"choose another with --set data.tokenizer=NAME"
        )
    vocabulary = tokenizer.get_vocab()
    if (last := max(vocabulary.values())) >= 2 * len(vocabulary):
        raise InputError(
            f"tokenizer {name!r} has {plural(len(vocabulary), 'token')} with ids up to {last:,}, and an encoder has "
            f"weights for every id up to the largest; number its tokens without gaps, or choose another tokenizer"
        )
    with staged(folder) as temporary:
        tokenizer.save_pretrained(str(temporary))
    return folder


def load_published_tokenizer(folder: Path) -> Any:
    """Return a tokenizer that others made as a transformers tokenizer. Raises InputError.

    It gives segment ids, unless its own settings name its outputs and leave them out.
    """
    files = hugging_face.check_tokenizer_folder(folder)
    with (
        model_files.refusing(folder, "holds no tokenizer that can be loaded"),
        model_files.view(folder, files, hugging_face.kind_of_tokenizer(folder)) as clean,
    ):
        from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(clean, trust_remote_code=False, local_files_only=True)
        except ImportError as error:
            raise InputError(
                f"{folder}: its tokenizer needs a package that is not installed ({message_of(error)[:60]}); those of "
                f"Japanese models come with: pip install 'encoder-workbench[japanese]'"
            ) from None
        # Some folders name the class of their model's usual tokenizer, WordPiece for ELECTRA, beside a SentencePiece
        # vocabulary, in which that class finds hardly any word.
        kind = type(tokenizer.backend_tokenizer.model).__name__ if getattr(tokenizer, "is_fast", False) else None
        if kind and "tokenizer.json" in files and kind != hugging_face.kind_in(files["tokenizer.json"]):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(clean, local_files_only=True)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise InputError(f"{folder}: tokenizer_config.json names a tokenizer_class that is not a tokenizer")
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise InputError(f"{folder} holds no tokens besides special ones, so it cannot encode any text")
    if "model_input_names" not in tokenizer.init_kwargs:  # transformers 5 leaves out the segments of ALBERT and XLNet
        tokenizer.model_input_names = list(dict.fromkeys((*tokenizer.model_input_names, SEGMENTS)))
    return tokenizer


FEW = 0.01  # the share of words with capital letters in a vocabulary of small letters, such as those of Roman numbers
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def contradiction(tokenizer: Any) -> str:
    """Return a sentence on how a fast tokenizer and its vocabulary differ in casing, "" if they do not."""
    if not getattr(tokenizer, "is_fast", False):
        return ""
    special = set(tokenizer.all_special_tokens)
    words = [word for word in tokenizer.get_vocab() if word not in special]
    capital = sum(not set(word).isdisjoint(LETTERS) for word in words)
    small = sum(not set(word).isdisjoint(LETTERS.lower()) for word in words)
    normalizer = tokenizer.backend_tokenizer.normalizer
    keeps = normalizer is None or not set(normalizer.normalize_str(LETTERS)).isdisjoint(LETTERS)
    if not keeps and capital > FEW * len(words):
        return (
            f"texts are put into lower case, and {capital:,} of the {len(words):,} tokens of the vocabulary have "
            f"capital letters; if the model was trained on these, set do_lower_case to false"
        )
    if keeps and not capital and small:
        return (
            "texts keep capital letters, and no token of the vocabulary has one; if the model was trained on small "
            "letters, set do_lower_case to true"
        )
    return ""


# ----------------------------------------
# Vocabularies trained on text: WordPiece (BERT's), byte-level BPE (GPT-2's) and unigram (XLNet's, ALBERT's).
#
# Training is deterministic. All kinds first split a text at white space, which is not kept, so that a text cut at a
# blank has the same tokens. BPE and unigram mark the beginning of a word, WordPiece its continuation.

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # ids 0 to 4
WORD = 1000  # characters; training time is quadratic in the length of a word: hours for a word of a million characters
BYTES = 256  # tokens of byte-level BPE for single bytes
WORD_MARK = "\u2581"  # SentencePiece's, for the blank before a word
NEVER = -1e6  # log-probability of special tokens in a unigram vocabulary, so that no text is read as one of them


def train(
    texts: list[str], vocab: int, lowercase: bool = True, kind: str = "wordpiece", strip_accents: bool | None = None
) -> Tokenizer:
    """Return a tokenizer of one of the TRAINED kinds with at most `vocab` tokens; accents by default as BERT does.

    Raises InputError if the vocabulary has no room for the letters of the texts, and if a package is missing.
    """
    if kind == "wordpiece":
        return _wordpiece(texts, vocab, lowercase, strip_accents)
    trainer = _unigram if kind == "unigram" else _byte_level
    return trainer(texts, vocab, lowercase, lowercase if strip_accents is None else strip_accents)


def _learnable(text: str, normalizer: Any, splitter: Any) -> str:
    """Return the text without words of more than WORD characters, for which encoding gives [UNK] anyway."""
    if max(map(len, text.split()), default=0) <= WORD:
        return text
    words = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    return " ".join(word for word in words if len(word) <= WORD) if max(map(len, words), default=0) > WORD else text


def _wordpiece(texts: list[str], vocab: int, lowercase: bool, strip_accents: bool | None) -> Tokenizer:
    """Return a BERT-like WordPiece tokenizer.

    The trainer of `tokenizers` numbers the letters in the order of a randomly seeded hash table, and breaks ties
    between merges by these numbers. So a first pass lists the letters, and a second pass gets them as fixed tokens.
    """
    from tokenizers import trainers

    first = _blank(lowercase, None, strip_accents)
    texts = [_learnable(text, first.normalizer, first.pre_tokenizer) for text in texts]
    first.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=1, special_tokens=[], show_progress=False))
    seen = first.get_vocab()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(unicodedata.normalize("NFD", text.lower() if lowercase else text))
    letters = sorted({token.removeprefix("##") or token for token in seen})
    common = set(sorted(letters, key=lambda letter: (-counts[letter], letter))[: min(1000, max(64, vocab // 16))])
    starts = [token for token in sorted(seen) if token in common]
    alphabet = starts + [token for token in sorted(seen) if token.removeprefix("##") in common and token not in common]
    if len(SPECIALS) + len(alphabet) > vocab:
        raise InputError(
            f"encoder.vocab={vocab} is too small: the letters of this corpus alone take {len(alphabet)} tokens; "
            f"set it to at least {2 * len(alphabet)}"
        )
    room = len(SPECIALS) + len(alphabet) + sum(map(len, texts))  # each merge joins letters: there cannot be more tokens
    trainer = trainers.WordPieceTrainer(
        vocab_size=min(vocab, room),
        min_frequency=2,
        special_tokens=SPECIALS + alphabet,
        initial_alphabet=starts,
        limit_alphabet=len(starts),
        show_progress=False,
    )
    second = _blank(lowercase, None, strip_accents)
    second.train_from_iterator(texts, trainer)
    return _blank(lowercase, second.get_vocab(), strip_accents)


def _blank(lowercase: bool, vocab: dict[str, int] | None, strip_accents: bool | None) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocab=vocab or {}, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return _framed(tokenizer) if vocab else tokenizer


def _byte_level(texts: list[str], vocab: int, lowercase: bool, strip_accents: bool) -> Tokenizer:
    """Return a byte-level BPE tokenizer (Radford et al. 2019, section 2.2), in which no character is unknown."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocab < len(SPECIALS) + BYTES:
        raise InputError(f"encoder.vocab={vocab} is too small for byte-level BPE: set it to at least {2 * BYTES}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = _normalizer(lowercase, strip_accents)
    splitter = pre_tokenizers.WhitespaceSplit()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab, len(SPECIALS) + BYTES + sum(len(text.encode()) for text in texts)),
        min_frequency=2,
        special_tokens=SPECIALS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_learnable(text, tokenizer.normalizer, splitter) for text in texts], trainer)
    return _framed(tokenizer)


def _unigram(texts: list[str], vocab: int, lowercase: bool, strip_accents: bool) -> Tokenizer:
    """Return a tokenizer of the most probable pieces (Kudo 2018, "Subword regularization", section 3.2).

    The pieces and their log-probabilities are those of SentencePiece in one thread: the trainer of `tokenizers` gives
    other ones in each process. Rare characters are unknown, 0.05 % of all, as by SentencePiece's default.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    splitter = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = _normalizer(lowercase, strip_accents)
    learnable = (_learnable(text, tokenizer.normalizer, splitter) for text in texts)
    lines = [" ".join(tokenizer.normalizer.normalize_str(text).split()) for text in learnable]
    pieces = _pieces(lines, vocab, "" if lowercase else "".join(SPECIALS))
    tokenizer.model = models.Unigram([(token, NEVER) for token in SPECIALS] + pieces, unk_id=SPECIALS.index("[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, pre_tokenizers.Metaspace(replacement=WORD_MARK)])
    tokenizer.decoder = decoders.Metaspace(replacement=WORD_MARK)
    return _framed(tokenizer)


def _pieces(lines: list[str], vocab: int, required: str) -> list[tuple[str, float]]:
    """Return at most `vocab` pieces with log-probabilities, with each `required` character. Raises InputError."""
    if importlib.util.find_spec("sentencepiece") is None:
        raise InputError(
            "data.tokenizer=unigram is trained by the package sentencepiece, which is not installed: pip install "
            "'encoder-workbench[unigram]', or choose wordpiece or bpe"
        )
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, model_type="unigram",
            vocab_size=vocab - len(SPECIALS) + 1, hard_vocab_limit=False, num_threads=1,
            normalization_rule_name="identity", required_chars="".join(sorted(set(required))),
            max_sentence_length=1 << 30, bos_id=-1, eos_id=-1, minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        if "smaller than required_chars" in str(error):
            letters = len(set("".join(lines)))
            raise InputError(
                f"encoder.vocab={vocab} is too small: the letters of this corpus alone take about {letters} tokens; "
                f"set it to at least {2 * letters}"
            ) from None
        raise InputError(f"data.tokenizer=unigram: this text gives no vocabulary ({message_of(error)})") from None
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    unknown = trained.unk_id()
    return [(trained.id_to_piece(i), trained.get_score(i)) for i in range(trained.get_piece_size()) if i != unknown]


def _normalizer(lowercase: bool, strip_accents: bool) -> Any:
    """Return the normalizer to NFC, then without accents and in lower case if these are asked for."""
    from tokenizers import normalizers

    accents = [normalizers.NFD(), normalizers.StripAccents()] if strip_accents else []
    return normalizers.Sequence([normalizers.NFC(), *accents, *([normalizers.Lowercase()] if lowercase else [])])


def _framed(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer with its special tokens, and texts between [CLS] and [SEP]."""
    from tokenizers import processors

    tokenizer.add_special_tokens(SPECIALS)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return tokenizer
