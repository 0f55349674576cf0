"""Vocabularies trained on text: WordPiece (BERT's), byte-level BPE (GPT-2's) and unigram (XLNet's, ALBERT's).

Training is deterministic. All kinds first split a text at white space, which is not kept, so that a text cut at a blank
has the same tokens. BPE and unigram mark the beginning of a word, WordPiece its continuation.
"""

from __future__ import annotations

import importlib.util
import io
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError, message_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TRAINED = ("wordpiece", "bpe", "unigram")
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # ids 0 to 4
WORD = 1000  # characters; training time is quadratic in the length of a word: hours for a word of a million characters
BYTES = 256  # tokens of byte-level BPE for single bytes
MARK = "\u2581"  # SentencePiece's, for the blank before a word
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
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, pre_tokenizers.Metaspace(replacement=MARK)])
    tokenizer.decoder = decoders.Metaspace(replacement=MARK)
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
