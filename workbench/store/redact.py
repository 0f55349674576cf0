"""Removal of passwords and keys from texts before they are stored."""

from __future__ import annotations

import contextlib
import netrc
import os
import re
from collections.abc import Iterable, Iterator

_SECRET = (
    r"(?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d|passphrase|credential|signature|auth(?:orization)?)"
)
# A key that ends in such a word; `tokens` and `tokenizer` do not. Repetitions are bounded, since otherwise a message of
# a megabyte would take an hour.
_KEY = r"(?<![\w-])[\w.-]{0,60}(?<![A-Za-z])" + _SECRET
_RULES = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/?#]{0,400}@", re.I), r"\1***@"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/:@]{0,200}:[^\s]{0,400}@", re.I), r"\1***@"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.I), r"\1 ***"),
    (re.compile(r"(" + _KEY + r"[\"']?\s*[=:]\s*[\"']?(?:(?:bearer|basic)\s)?)(?!//)[^\s&\"',;]+", re.I), r"\1***"),
    (re.compile(r"(--?(?:[\w-]{0,60}-)?" + _SECRET + r"\s+)(?!-)\S+", re.I), r"\1***"),
    (re.compile(r"\b(?:hf_|sk-|gh[oprsu]_|github_pat_|glpat-|wandb_v\d_|xox[abp]-|AKIA)[\w-]{8,}"), "***"),
)
_NAMES = re.compile(rf"{_SECRET}|_key$|^key$|_pass$|_pat$|dsn$|database_url", re.I)


def redact(text: str) -> str:
    """Return `text` without secrets of this machine's settings, credentials in addresses, and what looks like a key."""
    for secret in sorted(_known(), key=len, reverse=True):
        text = text.replace(secret, "***")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def redact_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command line without secrets; words after options such as `--api-key` are removed too."""
    option = re.compile(rf"--?(?:[\w-]*-)?{_SECRET}", re.I)
    clean, hide = [], False
    for word in words:
        clean.append("***" if hide and not word.startswith("-") else redact(word))
        hide = bool(option.fullmatch(word))
    return clean


def _known() -> Iterator[str]:
    """Yield the values of environment variables named like secrets, and passwords in ~/.netrc.

    Short ones are left out, since removing them would also remove ordinary words.
    """
    for name, value in os.environ.items():
        if _NAMES.search(name) and len(value) >= 8 and not os.path.exists(value):
            yield value
    with contextlib.suppress(OSError, netrc.NetrcParseError, RuntimeError):
        for _, _, password in netrc.netrc(os.environ.get("NETRC")).hosts.values():
            if password and len(password) >= 6:
                yield password
