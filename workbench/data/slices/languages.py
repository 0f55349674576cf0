"""The language of a document, as py3langid's model finds it in the document's first characters.

The model is a naive Bayes classifier over byte n-grams (Lui and Baldwin 2012, "langid.py") that comes with the package.
It has no randomness, so that every process finds the same language in a text.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata
from typing import Any

from workbench.errors import InputError, suggest

PACKAGE = "py3langid"
CHARACTERS = 2000  # of a document; more of a page seldom changes its language, and takes longer


def version_for(language: str) -> str:
    """Return the version of the package, on which the result depends. Raises InputError if it is not installed."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise _missing(language) from None


def is_in(language: str, document: str) -> bool:
    """Return whether a language, by its code of ISO 639-1, is the most probable one of a document.

    Raises InputError if the package is not installed, or does not know the language.
    """
    found: str = _model(language).classify(document[:CHARACTERS])[0]
    return found == language


@lru_cache(maxsize=1)
def _model(language: str) -> Any:
    """Return the model of all languages, of which this one must be one."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise _missing(language) from None
    model = LanguageIdentifier.from_model_file(MODEL_FILE)
    if language not in model.labels:
        raise InputError(
            f"data.language={language} is no language of {PACKAGE}{suggest(language, model.labels)}; it knows "
            f"{', '.join(sorted(model.labels))}"
        )
    return model


def _missing(language: str) -> InputError:
    fix = "pip install 'encoder-workbench[language]'"
    return InputError(f"data.language={language} needs the package {PACKAGE}; {fix}")
