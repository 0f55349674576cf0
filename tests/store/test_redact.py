"""Removal of passwords and keys from texts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.store.redact import (
    code_in_markdown,
    for_markdown,
    redact,
    redact_addresses,
    redact_words,
    refuse_secrets,
    refuse_secrets_in,
)

SECRET = "Pl4ntedS3cret"
WITH_SECRETS = [
    "https://h/x.txt?sig=%", "https://h/x?X-Amz-Date=1&X-Amz-Signature=%", "https://h/x?%", "https://h/x?k=v#%",
    "https://h/x?X-Goog-Signature=%", "https://h/x?Expires=1&Signature=%&Key-Pair-Id=a", "https://h/x?key=%",
    "https://h/x?%73ig=%", "https://h/x?download=true;sig=%", "https://h/x?download=true%26sig=%",
    "https://h/x?raw=a b%",
    "https://h/a.txt%3Fsig=%", "https://h/a.txt%253Ftoken%253D%", "https://h/x#access_token=%", "https://h/x#%",
    "https://me:%@h/x", "https://%@h/x", "HTTPS://ME:%@h/x", "https://me:a/%@h/x", "https://:%@h/x", "s3://me:%@b/k",
    "https://me%3A%%2540h/x", "s3://b/k?X-Amz-Security-Token=%", "simplecache::https://h/x?sig=%", "ftp://me:%@h/x",
    "zip://a.txt::https://me:%@h/b.zip", "docs,https://h/x?sig=%", "https://h/a.txt,https://h/b?sig=%", "h/x?sig=%",
    "me:%@h/x.txt", "hf_%%@owner/name", "hf://hf_%%@datasets/o/n", "hf://me:%@datasets/o", "gs://b/x?access_token=%",
    "https://h/x&sig=%", "https://h/x\uff1fsig=%", "https:/me:%@h/x", "https:/h/x?sig=%", "//me:%@h/x", "//h/x?k=%",
    "https://h/api_key=%/x", "https://h/x;token=%", "postgresql://me:%@h/d", "postgresql+psycopg://me:%@h/d",
    "postgresql://me@h/d?password=%", "mysql://me:%@h/d", "az://c/x?se=2026&sp=r&sig=%",
]  # fmt: skip
WITHOUT = [
    "https://h/x.txt", "https://h/x?download=true", "https://h/x?versionId=3HL4kqtJvjVBH40Nrjfkd&raw=1",
    "http://127.0.0.1:80/a@v1/x.txt", "http://[::1]:80/x", "s3://b/part?.txt", "s3://b/year=2020/part-*.jsonl",
    "hf://datasets/o/n@refs%2Fconvert/x", "hf://gpt2@main/f", "postgresql://me@h/d?sslmode=require", "owner/name:c",
    "mysql+pymysql://me@h/d?read_default_file=/etc/my.cnf", "sqlite:///x.db?timeout=30", "data/part?/lang=da/*.txt",
    "a?.txt", "s3://b/R&D/lang=da/x", "tag:/data/me@v1/x.conll#ner", "http:/x", "sk-news/2020.txt",
    "choice:me@v1/x.jsonl", "spans:a/b@c.jsonl", "docs", "CoLA,RTE", "zip://a.txt::file:///x/a.zip",
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "clean"),
    [
        (["--api-key", "planted", "x"], ["--api-key", "***", "x"]),
        (["--api-key=planted"], ["--api-key=***"]),
        (["--storage", "postgresql://me:planted@db:5432/x"], ["--storage", "postgresql://***@db:5432/x"]),
        (["https://planted@host/a"], ["https://***@host/a"]),
        (["https://me:pl/an@ted@host/a"], ["https://***@host/a"]),
        (["https://host/a?token=planted&b=1"], ["https://host/a?token=***&b=1"]),
        (["hf_plantedplanted"], ["***"]),
        (["--set", "optim.lr=5e-4", "--corpus", "s.txt"], ["--set", "optim.lr=5e-4", "--corpus", "s.txt"]),
        (["--set", "data.tokenizer=wordpiece"], ["--set", "data.tokenizer=wordpiece"]),
        (["--budget", "tokens=2e6"], ["--budget", "tokens=2e6"]),
        (["--objective", "all-tokens-mlm", "./my_idea.py"], ["--objective", "all-tokens-mlm", "./my_idea.py"]),
        (["--set", "tying=tokens"], ["--set", "tying=tokens"]),
    ],
)
def test_words_of_a_command(words: list[str], clean: list[str]) -> None:
    assert redact_words(words) == clean


def test_what_the_machine_holds_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_TOKEN", "abcdefgh1234")
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password planted-in-netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert redact("a abcdefgh1234 b planted-in-netrc c") == "a *** b *** c"
    monkeypatch.setenv(
        "FSSPEC_S3", '{"secret": "planted/in+json", "client_kwargs": {"endpoint_url": "http://storage"}}'
    )
    assert redact("with planted/in+json from http://storage") == "with *** from http://storage"
    assert redact("Authorization: Bearer abc.def-123456").count("abc.def") == 0
    assert redact("{'Authorization': 'Token planted', \"X-Auth-Token\": \"ApiKey planted\"}").count("planted") == 0
    text = "loss nan at step 12 (rows 3 to 7); tokens: 4096, data.tokenizer='wordpiece', 5 tokens"
    assert redact(text) == text


@pytest.mark.parametrize("address", WITH_SECRETS)
def test_an_address_with_a_secret_is_refused_without_showing_it(address: str) -> None:
    planted = address.replace("%", "\0", address.count("%"))
    for escape in ("73", "26", "3F", "3D", "253F", "253D", "3A", "2540"):
        planted = planted.replace(f"\0{escape}", f"%{escape}")
    planted = planted.replace("\0", SECRET)
    assert SECRET in planted
    with pytest.raises(InputError, match=r"an address may hold no .*; leave it out, and ") as caught:
        refuse_secrets(planted, "--corpus")
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError, match="experiment x: "):
        refuse_secrets_in([{"data.corpus": ("docs", planted)}], "experiment x:")


@pytest.mark.parametrize("name", WITHOUT)
def test_a_name_without_a_secret_is_accepted(name: str) -> None:
    refuse_secrets(name, "--corpus")


def test_signatures_in_texts_of_older_runs_are_removed_wherever_they_are_shown() -> None:
    text = f"read https://me:{SECRET}@h/x and https://h/y?sig={SECRET}&raw=1, s3://b/k?X-Amz-Signature={SECRET}"
    assert redact_addresses(text) == "read https://***@h/x and https://h/y?sig=***&raw=1, s3://b/k?X-Amz-Signature=***"
    assert redact_addresses("see https://h/a?b=1 and token: [MASK]") == "see https://h/a?b=1 and token: [MASK]"


def test_markup_in_a_model_card_is_escaped() -> None:
    hostile = "<script>a</script>\n# [x](javascript:y) | `z` &amp; \x1b[31m _e_ my_corpus.txt"
    assert for_markdown(hostile) == (
        "&lt;script&gt;a&lt;/script&gt; # \\[x\\](javascript:y) \\| \\`z\\` &amp;amp; \\[31m \\_e\\_ my_corpus.txt"
    )
    assert code_in_markdown("a`<b>\n`c") == "`a'<b> 'c`"


@given(st.text(max_size=80))
def test_any_text_can_be_cleaned(text: str) -> None:
    assert isinstance(redact(text), str) and "<" not in for_markdown(text)


@pytest.mark.parametrize("part", ["a", "a.", "--", "token", "x://", "a://b:", "-token", "_", "bearer ", "a.token="])
def test_long_texts_take_time_in_proportion(part: str) -> None:
    """A search that goes back over what it read would take minutes here, on any machine."""
    begin = time.process_time()
    redact("a://b?" + part * (50_000 // len(part)))
    assert time.process_time() - begin < 10
