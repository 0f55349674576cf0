"""The language of a document, as py3langid's model finds it in the document's first characters.

The model is a naive Bayes classifier over byte n-grams (Lui and Baldwin 2012, "langid.py") that comes with the package.
It has no randomness, so that every process finds the same language in a text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from workbench.errors import InputError, suggest

CHARACTERS = 2000  # of a document; more of a page seldom changes its language, and takes longer


def version_for(language: str) -> str:
    """Return the version of the package. Raises InputError if it is not installed, or does not know the language."""
    from importlib.metadata import version

    known = _identifier(language).labels
    if language not in known:
        raise InputError(
            f"data.language={language} is no language of py3langid{suggest(language, known)}; it knows "
            f"{', '.join(sorted(known))}"
        )
    return version("py3langid")


def is_in(language: str, document: str) -> bool:
    """Return whether the most probable language of a document is this one, a code of ISO 639-1."""
    found: str = _identifier(language).classify(document[:CHARACTERS])[0]
    return found == language


@lru_cache(maxsize=1)
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def _identifier(language: str) -> Any:
    try:
        return _model()
    except ImportError:
        raise InputError(
            f"data.language={language} needs the package py3langid; pip install 'workbench[language]'"
        ) from None
