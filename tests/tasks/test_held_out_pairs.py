"""Minimal pairs that are made from held-out text."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import InputError
from workbench.spec.parts import DataSpec
from workbench.tasks import _preferences as preferences
from workbench.tasks import held_out_pairs

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


def test_the_headline_of_pairs_from_text_counts_every_pair_alike() -> None:
    """The built-in text gives a third as many pairs of the kind `order` as of each other kind."""
    found = held_out_pairs.of_text("pairs", DataSpec(corpus="docs"), Path(), tuning=True)
    kinds = np.array(found.groups["kind"])
    assert 0 < (kinds == "order").sum() < (kinds == "exchange").sum()
    wins = np.where(kinds == "order", 1.0, 0.0)
    values = preferences.by_group(found, wins)
    assert values["kind"] == {"exchange": 0.0, "order": 100.0, "replace": 0.0}
    assert values["mean"]["accuracy"] == pytest.approx(100 * (kinds == "order").mean())


@pytest.mark.parametrize("kind", ["exchange", "replace", "order"])
def test_one_kind_alone_begins_with_the_same_pairs_and_has_more(kind: str) -> None:
    whole = held_out_pairs.of_text("pairs", DataSpec(corpus="docs"), Path(), tuning=True)
    alone = held_out_pairs.of_text(f"pairs:{kind}", DataSpec(corpus="docs"), Path(), tuning=True)
    assert (alone.name, alone.suite) == (f"pairs:{kind}", whole.suite) and set(alone.groups["kind"]) == {kind}
    given = zip(whole.good, whole.bad, whole.groups["kind"], strict=True)
    shared = [(good, bad) for good, bad, its in given if its == kind]
    found = list(zip(alone.good, alone.bad, strict=True))
    assert found[: len(shared)] == shared and (len(found) > 3 * len(shared) or kind == "order")
    assert len(set(found)) == len(found)


def test_the_halves_for_choosing_settings_and_for_reports_share_nothing(tmp_path: Path) -> None:
    parts = [f"Part {n}. The cat number {n} sat on the mat." for n in range(60)]
    (tmp_path / "held-out.jsonl").write_text("".join(json.dumps(part) + "\n" for part in parts))
    one, other = (
        {s for p in held_out_pairs.paragraphs(DataSpec(corpus="x"), tmp_path, side) for s in p}
        for side in (True, False)
    )
    assert one and other and len(one | other) == 120 and not one & other
