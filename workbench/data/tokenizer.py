"""WordPiece vocabularies trained on the corpus, or any tokenizer of the hub or a folder, in the Hugging Face layout.

Training is deterministic: the same text gives the same vocabulary on every machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.data import foreign
from workbench.errors import InputError
from workbench.signals import interruptible
from workbench.spec.parts import DataSpec, Special
from workbench.spec.run_spec import digest
from workbench.store.atomic import cache_root, user_path
from workbench.store.cache import is_whole, staged

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # ids 0 to 4
SAMPLE = 32_000_000  # characters trained on; of Wikipedia, twice as many make 0.05 % fewer tokens of the same text
PIECE = 8192  # a document is sampled in pieces of about this many characters
BLANK, MARK = re.compile(r"[ \n]"), re.compile(r"[\s!-/:-@\[-`{-~]")
FAR = 1 << 16  # characters that are searched for a blank
WORD = 1000  # characters; training takes quadratic time in the length of a word, hours for one of a million
LAYOUT = 1  # raise it when training changes, so that old caches are not used


def train_or_load(
    spec: DataSpec, vocab: int, documents: Iterable[str], key: str | None = None, cache: Path | None = None
) -> Path:
    """The folder of the tokenizer the spec names. `documents` are read only if "wordpiece" has to be trained.

    `key` stands for the documents' content; with it a vocabulary trained before is found again. Raises InputError.
    """
    root = (cache or cache_root()) / "tokenizers"
    if spec.tokenizer != "wordpiece":
        return _fetch(spec.tokenizer, root)
    if not len(SPECIALS) < vocab <= 1 << 32:
        raise InputError(f"encoder.vocab={vocab} cannot be a WordPiece vocabulary; take from 200 to {1 << 32}")
    if key is None:
        documents = list(documents)
        key = hashlib.sha256("\0".join(documents).encode()).hexdigest()
    folder = root / f"wordpiece-{vocab}-{digest([LAYOUT, key, vocab, spec.lowercase, SAMPLE], 16)}"
    if not is_whole(folder):
        texts = sample(documents)
        trained = interruptible(lambda: train(texts, vocab, spec.lowercase))
        with staged(folder) as temporary:
            save(trained, temporary, spec.lowercase)
    return folder


def load(folder: Path) -> Any:
    """As a transformers tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)


def content(folder: Path) -> str:
    """SHA-256 of what decides the token ids."""
    raw = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    kept = {name: value for name, value in raw.items() if name not in ("truncation", "padding", "post_processor")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def special(folder: Path) -> Special:
    """Ids of the special tokens. Raises InputError if one is missing."""
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    ids = fast(folder)
    found = {}
    for name in ("pad", "unk", "cls", "sep", "mask"):
        token = config.get(f"{name}_token")
        token = token["content"] if isinstance(token, dict) else token
        found[name] = ids.token_to_id(token) if token else None
    lacking = [name for name, number in found.items() if number is None]
    if lacking:
        raise InputError(
            f"the tokenizer has no {' and no '.join(lacking)} token, which pre-training needs; take another"
        )
    return Special.model_validate(found)


def fast(folder: Path) -> Tokenizer:
    """As a bare `tokenizers` one that neither cuts nor pads, and reads "[MASK]" in a text as text."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    found.encode_special_tokens = True
    return found


def size(tokenizer: Tokenizer) -> int:
    """One more than the largest id."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def sample(documents: Iterable[str], limit: int | None = None) -> list[str]:
    """About `limit` characters of text, spread evenly over all documents; all of it if there is no more.

    One pass in bounded memory: every n-th piece is kept, and n doubles whenever too much was kept.
    """
    limit = SAMPLE if limit is None else limit
    kept: list[tuple[int, str]] = []
    every, total = 1, 0
    for number, piece in enumerate(piece for document in documents for piece in pieces(document, PIECE)):
        if number % every:
            continue
        kept.append((number, piece))
        total += len(piece)
        while total > limit and len(kept) > 1:
            every *= 2
            kept = [(number, piece) for number, piece in kept if number % every == 0]
            total = sum(len(piece) for _, piece in kept)
    return [piece for _, piece in kept]


def pieces(document: str, length: int) -> Iterator[str]:
    """The document cut after blanks and line ends into pieces of about `length` characters; they join to the document.

    WordPiece gives the same tokens for the pieces as for the whole, since no word goes across a blank. Where there is
    none for FAR characters, other white space or a punctuation mark will do, and a longer word is cut.
    """
    start = 0
    while start < len(document):
        least, most = start + length, start + length + FAR
        found = BLANK.search(document, least, most)
        if found is None and most < len(document):
            found = MARK.search(document, least, most)
        end = found.end() if found else min(most, len(document))
        yield document[start:end]
        start = end


def _learnable(text: str, normalizer: Any, splitter: Any) -> str:
    """The text without the words that a vocabulary is not trained on; encoding makes them [UNK] anyway."""
    if max(map(len, text.split()), default=0) <= WORD:
        return text
    words = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
    return " ".join(word for word in words if len(word) <= WORD) if max(map(len, words), default=0) > WORD else text


def train(texts: list[str], vocab: int, lowercase: bool = True) -> Tokenizer:
    """A BERT-like WordPiece tokenizer of at most `vocab` tokens.

    The trainer of `tokenizers` numbers the letters in the order of a randomly seeded hash table, and breaks ties
    between merges by these numbers. So a first pass lists the letters, and a second gets them as fixed tokens.
    """
    from tokenizers import trainers

    first = _blank(lowercase, None)
    texts = [_learnable(text, first.normalizer, first.pre_tokenizer) for text in texts]
    first.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=1, special_tokens=[], show_progress=False))
    seen = first.get_vocab()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(unicodedata.normalize("NFD", text.lower() if lowercase else text))
    letters = sorted({token.removeprefix("##") or token for token in seen})
    kept = set(sorted(letters, key=lambda letter: (-counts[letter], letter))[: min(1000, max(64, vocab // 16))])
    starts = [token for token in sorted(seen) if token in kept]
    alphabet = starts + [token for token in sorted(seen) if token.removeprefix("##") in kept and token not in kept]
    if len(SPECIALS) + len(alphabet) > vocab:
        raise InputError(
            f"encoder.vocab={vocab} is too small: the letters of this corpus alone take {len(alphabet)} tokens; "
            f"take at least {2 * len(alphabet)}"
        )
    most = len(SPECIALS) + len(alphabet) + sum(map(len, texts))  # each merge joins letters; room for more is never used
    trainer = trainers.WordPieceTrainer(
        vocab_size=min(vocab, most),
        min_frequency=2,
        special_tokens=SPECIALS + alphabet,
        initial_alphabet=starts,
        limit_alphabet=len(starts),
        show_progress=False,
    )
    second = _blank(lowercase, None)
    second.train_from_iterator(texts, trainer)
    return _blank(lowercase, second.get_vocab())


def _blank(lowercase: bool, vocab: dict[str, int] | None) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordPiece(vocab=vocab or {}, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##")
    if vocab:
        made.add_special_tokens(SPECIALS)
        ids = [(token, vocab[token]) for token in ("[CLS]", "[SEP]")]
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
        )
    return made


def save(tokenizer: Tokenizer, folder: Path, lowercase: bool) -> None:
    """tokenizer.json, tokenizer_config.json and vocab.txt, as transformers reads them without workbench."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": lowercase,
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIALS},
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in vocab), encoding="utf-8")


def _fetch(name: str, root: Path) -> Path:
    """A tokenizer of a folder or of the hub, written once more in its fast form. Code in a repository is never run."""
    path = user_path(name, "--set data.tokenizer:")
    if path.is_dir():
        files = foreign.check_tokenizer_folder(path)
        key = digest([[name, hashlib.sha256(files[name].read_bytes()).hexdigest()] for name in sorted(files)], 16)
    else:
        key = digest(name, 16)
    folder = root / f"{''.join(c if c.isalnum() else '-' for c in path.name)[:40]}-{key}"
    if is_whole(folder):
        return folder
    if path.is_dir():
        found = load_foreign(path)
    else:
        with foreign.refusing(repr(name), "is neither 'wordpiece' nor a tokenizer that can be loaded"):
            from transformers import AutoTokenizer

            found = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if not found.is_fast:
        raise InputError(f"tokenizer {name!r} has no fast (Rust) form, which packing needs; take another")
    with staged(folder) as temporary:
        found.save_pretrained(str(temporary))
    return folder


def load_foreign(folder: Path) -> Any:
    """Load a tokenizer that others made, as a transformers one. Raises InputError for one that cannot be used."""
    files = foreign.check_tokenizer_folder(folder)
    with (
        foreign.refusing(folder, "holds no tokenizer that can be loaded"),
        foreign.view(folder, files, foreign.kind_of_tokenizer(folder)) as clean,
    ):
        from transformers import AutoTokenizer, PreTrainedTokenizerBase

        found = AutoTokenizer.from_pretrained(clean, trust_remote_code=False, local_files_only=True)
    if not isinstance(found, PreTrainedTokenizerBase):
        raise InputError(f"{folder}: tokenizer_config.json names a tokenizer_class that is no tokenizer")
    if not found.get_vocab().keys() - set(found.all_special_tokens):
        raise InputError(f"{folder} holds no tokens besides special ones, so no text can be read with it")
    return found
