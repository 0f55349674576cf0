"""Zorro: minimal pairs in words of children's speech, in the text files of its authors.

Huebner et al. 2021, "BabyBERTa: Learning more grammar with small-scale child-directed language"; the files are those of
the folder `sentences/babyberta` of github.com/phueb/Zorro. A file is a paradigm of 2,000 pairs: of each two lines the
first is wrong, and the second right. Earlier versions have files with other names, in which it may be the other way
round, so no other names are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.data.streams import lines, unpacked_suffix
from workbench.errors import InputError

PARADIGMS = {
    "agreement_determiner_noun": ("across_1_adjective", "between_neighbors"),
    "agreement_subject_verb": (
        "across_prepositional_phrase", "across_relative_clause", "in_question_with_aux", "in_simple_question",
    ),
    "anaphor_agreement": ("pronoun_gender",),
    "argument_structure": ("dropped_argument", "swapped_arguments", "transitive"),
    "binding": ("principle_a",),
    "case": ("subjective_pronoun",),
    "ellipsis": ("n_bar",),
    "filler-gap": ("wh_question_object", "wh_question_subject"),
    "irregular": ("verb",),
    "island-effects": ("adjunct_island", "coordinate_structure_constraint"),
    "local_attractor": ("in_question_with_aux",),
    "npi_licensing": ("matrix_question", "only_npi_licensor"),
    "quantifiers": ("existential_there", "superlative"),
}  # fmt: skip
PHENOMENA = {f"{phenomenon}-{each}": phenomenon for phenomenon, every in PARADIGMS.items() for each in every}


def paradigm(path: Path) -> str:
    """Return the paradigm of a text file by its name, without that of its compression; "" if it is no file of Zorro."""
    name = path.name.partition(".")[0]
    return name if unpacked_suffix(path) == ".txt" and name in PHENOMENA else ""


def rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the line of each pair, and the pair as a row of BLiMP. Raises InputError for an odd number of lines."""
    sentences = iter(lines(path))
    name = paradigm(path)
    for number, wrong in enumerate(sentences):
        right = next(sentences, None)
        if right is None:
            raise InputError(
                f"{path} has an odd number of lines; of each two lines the first is wrong, and the second right"
            )
        row = {"sentence_good": right.strip(), "sentence_bad": wrong.strip()}
        yield f"line {2 * number + 1}", row | {"UID": name, "linguistics_term": PHENOMENA[name]}
