"""Phrases that the messages of several packages share."""

import pytest

from workbench.errors import listed, plural, suggest
from workbench.report import formatting
from workbench.spec.parts import size_in_words


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 scores"), (1, "1 score"), (2, "2 scores"), (21, "21 scores"), (1200, "1,200 scores")]
)
def test_a_noun_has_its_plural_unless_the_count_is_one(count: int, text: str) -> None:
    assert plural(count, "score") == text


def test_reports_and_sizes_of_encoders_count_by_the_same_rule() -> None:
    assert formatting.seeds([1]) == "1 seed" and formatting.seeds([2]) == "2 seeds"
    assert size_in_words(1, 64) == "1 layer of 64" and size_in_words(2, 64) == "2 layers of 64"


def test_names_are_suggested_where_there_are_any() -> None:
    assert suggest("rat", ["rate", "mask"]) == "; did you mean 'rate'?"
    assert suggest("lr", ["optim.lr", "optim.clip"]) == "; did you mean 'optim.lr'?"
    assert suggest("xyz", ["b", "a"]) == "; there are a, b" and suggest("xyz", []) == "; there is none"


def test_a_sentence_holds_few_of_very_many_names() -> None:
    names = [str(number) for number in range(200_000)]
    assert len(suggest("none", names)) < 1000 and suggest("none", names).endswith(" and 199,900 more")
    assert listed(["a" * 5000, "b"]) == f"{'a' * 80}, b"
