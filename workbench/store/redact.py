"""Refusal of addresses that hold a password or key, and removal of such secrets from texts before they are stored.

A corpus is named in the spec, the records, the report and the model card of every run. So an address may hold no user,
no fragment and no query, except for a few harmless parameters: servers call their signatures by too many names.
"""

from __future__ import annotations

import contextlib
import html
import json
import netrc
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from workbench.errors import InputError
from workbench.spec.scoring import PATH_PREFIXES

_SECRET = (
    r"(?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d|passphrase|credential|signature|"
    r"auth(?:orization)?(?![a-z]))"
)
# A key that ends in such a word; `tokens` and `tokenizer` do not. Repetitions are bounded, since otherwise a message of
# a megabyte would take an hour.
_SCHEMES = "(?:bearer|basic|token|key|apikey|digest|negotiate)"
_KEY = r"(?<![\w-])[\w.-]{0,60}(?<![A-Za-z])" + _SECRET
_RULES = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/?#]{0,400}@", re.I), r"\1***@"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/:@]{0,200}:[^\s]{0,400}@", re.I), r"\1***@"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.I), r"\1 ***"),
    (re.compile(rf"({_KEY}[\"']?\s*[=:]\s*[\"']?(?:{_SCHEMES}\s)?)(?!//)[^\s&\"',;]+", re.I), r"\1***"),
    (re.compile(r"(--?(?:[\w-]{0,60}-)?" + _SECRET + r"\s+)(?!-)\S+", re.I), r"\1***"),
    (re.compile(r"\b(?:hf_|sk-|gh[oprsu]_|github_pat_|glpat-|wandb_v\d_|xox[abp]-|AKIA)[\w-]{8,}"), "***"),
)
_NAMES = re.compile(rf"{_SECRET}|_key$|^key$|_pass$|_pat$|dsn$|database_url", re.I)
HARMLESS = ("download", "raw", "dl", "version", "versionid", "generation", "revision", "ref", "alt", "format")
_SCHEME = re.compile(r"\b([a-z][a-z0-9+.-]{0,30}):/(?:/|(?<=http:/)|(?<=https:/))", re.I)
_USER = re.compile(r"[^/?#@:]*(:(?!\d+[/?#])[^@]*)?@")  # a user and perhaps a password; `host:80/a@b` has neither
_PARAMETER = re.compile(r"(?<=[?&;])([\w.%~+-]{1,100})=([^\s&;#\"'<>,)]{1,4000})")
_GIVEN = re.compile(r"[\w.%~+-]+=")  # begins a parameter
_WITHOUT_SCHEME = re.compile(rf"(?!{'|'.join(PATH_PREFIXES)})/{{0,2}}[^\s/@:]+:[^\s/@]+@[\w.-]+|[^?]*\?[\w.%~+-]+=")
_TOKEN = re.compile(r"\b(?:hf_|gh[oprsu]_|github_pat_|glpat-|xox[abp]-|AKIA|wandb_v\d_|sk-(?:ant|proj)-)[\w-]{12,}")
_ADVICE = {
    "http": "put user and password into ~/.netrc, or a header into the environment variable FSSPEC_HTTP, as in "
            """FSSPEC_HTTP='{"headers": {"Authorization": "Bearer ..."}}'""",
    "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
    "hf": "set HF_TOKEN, or give the command: hf auth login",
    "postgresql": "put the password into ~/.pgpass, or set PGPASSWORD",
    "mysql": "name the driver's option file, as in ?read_default_file=/etc/my.cnf",
}  # fmt: skip
_ADVICE |= {"https": _ADVICE["http"], "s3a": _ADVICE["s3"], "gcs": _ADVICE["gs"], "postgres": _ADVICE["postgresql"]}
_DATABASES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle", "redis", "cockroachdb")


def refuse_secrets(text: str, place: str) -> None:
    """Raise InputError, showing the scheme alone, if a user's text has an address that may hold a password or key."""
    starts = list(_SCHEME.finditer(text))
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        scheme = start[1].lower()
        if problem := _problem(scheme, _decoded(text[start.end() : end])):
            raise _refusal(place, f"{scheme}://...", problem, scheme)
    for word in text.split(",") if not starts else ():
        is_address = _WITHOUT_SCHEME.match(plain := _decoded(word)) and not os.path.lexists(word)
        if is_address and (problem := _problem("https", plain.lstrip("/"))):
            raise _refusal(place, "...", problem, "https")
    if _TOKEN.search(text):
        raise _refusal(place, "...", "access token", "hf")


def refuse_secrets_in(value: Any, place: str) -> None:
    """Raise InputError as `refuse_secrets` does, for every text in a value of mappings and lists."""
    if isinstance(value, str):
        refuse_secrets(value, place)
    elif isinstance(value, Mapping):
        refuse_secrets_in(list(value.values()), place)
    elif isinstance(value, list | tuple | set):
        for each in value:
            refuse_secrets_in(each, place)


def _refusal(place: str, shown: str, problem: str, scheme: str) -> InputError:
    kind = scheme.partition("+")[0]
    option = f"FSSPEC_{scheme.upper()}_"
    advice = _ADVICE.get(kind, f"set {option}USERNAME and {option}PASSWORD, environment variables of fsspec")
    if kind in _DATABASES and kind not in _ADVICE:
        advice = "put the password where the driver of the database looks for one"
    return InputError(
        f"{place} {shown}: an address may hold no {problem}, since every record of a run would keep it; leave it out, "
        f"and {advice}"
    )


def _decoded(text: str) -> str:
    """Return the text without percent signs for characters, even if they are encoded several times."""
    while (plain := unquote(text)) != text:
        text = plain
    return text


def _problem(scheme: str, rest: str) -> str:
    """Return which part of an address may hold a secret, "" if none; `rest` is what follows `scheme://`."""
    kind = scheme.partition("+")[0]
    if user := _USER.match(rest):
        has_password = user[1] is not None and user[1] != ":"
        if has_password if kind in _DATABASES else has_password or kind != "hf":  # hf://model@revision/file
            return "password" if kind in _DATABASES else "user or password"
    before, mark, fragment = rest.partition("#")
    if (mark and kind in ("http", "https")) or "=" in fragment:
        return "fragment (#...)"
    path, _, query = before.partition("?")
    given = [word for word in re.split("[&;\uff1f]", path)[1:] if _GIVEN.match(word)]
    for word in [*given, *filter(None, re.split("[&;]", query))]:
        name, equals, value = word.partition("=")
        if kind in _DATABASES:
            if _NAMES.search(name) or name.lower() in ("pass", "pwd"):
                return f"password (?{name}=...)"
        elif (equals or kind in ("http", "https")) and not _is_harmless(name, value):
            return f"query parameter {name!r:.40}" if re.fullmatch(r"[A-Za-z][\w-]*", name) and value else "query"
    return "key" if any(rule.search(path) for rule, _ in _RULES[2:]) else ""


def _is_harmless(name: str, value: str) -> bool:
    return name.lower() in HARMLESS and re.fullmatch(r"[\w.:/-]{0,64}", value) is not None


def redact(text: str) -> str:
    """Return `text` without secrets of this machine's settings, credentials in addresses, and what looks like a key."""
    for secret in sorted(_known(), key=len, reverse=True):
        text = text.replace(secret, "***")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return redact_addresses(text)


def redact_addresses(text: str) -> str:
    """Return `text` without users, passwords and tokens in addresses, and without long or sensitive query values."""
    if "://" in text:
        for pattern, replacement in _RULES[:2]:
            text = pattern.sub(replacement, text)
        text = _PARAMETER.sub(_redacted, text)
    return _TOKEN.sub("***", text)


def _redacted(found: re.Match[str]) -> str:
    name, value = unquote(found[1]), found[2]
    kept = _is_harmless(name, value) or (len(value) < 6 and not re.search("sig|key|pass|pwd", name, re.I))
    return found[0] if kept else f"{found[1]}=***"


def redact_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command line without secrets; words after options such as `--api-key` are removed too."""
    option = re.compile(rf"--?(?:[\w-]*-)?{_SECRET}", re.I)
    clean, hide, notify = [], False, False
    for word in words:
        if notify or word.startswith("--notify="):  # of an address or a command of the user, the kind alone stays
            begin, value = ("--notify=", word.removeprefix("--notify=")) if not notify else ("", word)
            clean.append(begin + value.partition("=")[0])
        else:
            clean.append("***" if hide and not word.startswith("-") else redact(word))
        hide, notify = bool(option.fullmatch(word)), word == "--notify"
    return clean


def for_markdown(value: object) -> str:
    """Return a user's text for a page in Markdown: on one line, without secrets, and with its markup escaped."""
    return re.sub(r"([\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", html.escape(on_one_line(value), quote=False))


def code_in_markdown(value: object) -> str:
    """Return a user's text as code in a page in Markdown, in which no markup is interpreted."""
    return "`{}`".format(on_one_line(value).replace("`", "'"))


def on_one_line(value: object) -> str:
    """Return a user's text on one line, without secrets and without characters that cannot be printed."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return " ".join(redact_addresses(text).split())


def _secrets_in(options: Any, secret: bool = False) -> Iterator[str]:
    """Yield the texts in JSON under keys that are named like secrets."""
    if isinstance(options, dict):
        for name, value in options.items():
            yield from _secrets_in(value, secret or _NAMES.search(name) is not None)
    elif secret and isinstance(options, str) and len(options) >= 8:
        yield options


def _known() -> Iterator[str]:
    """Yield secrets of 8 letters or more in environment variables and fsspec's options, and passwords in ~/.netrc."""
    for name, value in os.environ.items():
        if name.startswith("FSSPEC_") and value.startswith("{"):
            with contextlib.suppress(ValueError, RecursionError):
                yield from _secrets_in(json.loads(value))
        elif _NAMES.search(name) and len(value) >= 8 and not os.path.exists(value):
            yield value
    with contextlib.suppress(OSError, netrc.NetrcParseError, RuntimeError):
        for _, _, password in netrc.netrc(os.environ.get("NETRC")).hosts.values():
            if password and len(password) >= 6:
                yield password
