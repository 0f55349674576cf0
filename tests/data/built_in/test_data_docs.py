"""The built-in corpus: English out of docstrings, split without leaks."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from workbench.data.built_in import docs
from workbench.data.built_in.docs import Entry
from workbench.data.built_in.extract import docstrings, extract
from workbench.data.built_in.prose import inline, is_english, paragraphs, split_signature


@pytest.fixture(scope="module")
def sides(workbench_cache: Path) -> dict[str, list[Entry]]:
    return {"train": docs.entries("train"), "test": docs.entries("test")}


NUMPYDOC = """
    Draw samples from a *normal* distribution.

    The density is often called the ``bell curve`` because of :func:`its shape <scipy.stats.norm>` [1]_.

    .. versionadded:: 1.17
       Not before that.

    .. note::
        New code should use the `~numpy.random.Generator.normal`
        method of a generator.

    Parameters
    ----------
    loc : float or array_like of floats
        Mean ("centre") of the distribution.
    size : int, optional
        Output shape.  Given ``(m, n)``, that many samples are drawn
        and returned::

            x = normal(size=(2, 3))

        - a list item that says something of the shape
        - another item, which goes on
          in the next line

    See Also
    --------
    scipy.stats.norm : the probability density function of the distribution.
    other

    Examples
    --------
    Draw samples from the distribution:

    >>> mu, sigma = 0, 0.1
    >>> s = np.random.normal(mu, sigma, 1000)
    array of the values that is not English but follows a prompt

    Verify the mean and the standard deviation of them.

    ========  =====================
    Name      What is in the table of it
    ========  =====================

    .. math:: p(x) = e^x

    References
    ----------
    .. [1] Wikipedia, "Normal distribution", which is the article on it.
    """


def test_numpydoc_becomes_plain_paragraphs():
    assert paragraphs(NUMPYDOC) == [
        "Draw samples from a normal distribution.",
        "The density is often called the bell curve because of its shape.",
        "New code should use the numpy.random.Generator.normal method of a generator.",
        'loc: Mean ("centre") of the distribution.',
        "size: Output shape. Given (m, n), that many samples are drawn and returned:",
        "a list item that says something of the shape",
        "another item, which goes on in the next line",
        "scipy.stats.norm: the probability density function of the distribution.",
        "Verify the mean and the standard deviation of them.",
    ]


def test_google_and_sphinx_styles():
    google = """Move the model to a device, in place.

    Args:
        device (torch.device, optional): the desired device of the parameters
            in this module
        blocking: whether to wait for the host, which is slower
    Returns:
        The module itself, so that calls can be chained.

    Example::

        >>> module.cuda()

    It can be called at any time.
    """
    assert paragraphs(google) == [
        "Move the model to a device, in place.",
        "device: the desired device of the parameters in this module",
        "blocking: whether to wait for the host, which is slower",
        "The module itself, so that calls can be chained.",
        "It can be called at any time.",
    ]
    sphinx = """Open the file.

    :param path: the name of the file that is to be opened
    :type path: str
    :returns: a file object that has to be closed by the caller
    """
    assert paragraphs(sphinx)[1:] == [
        "path: the name of the file that is to be opened",
        "a file object that has to be closed by the caller",
    ]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Return the mean.", True),
        ("Whether the array is empty or not, as a boolean.", True),
        ("x = np.linspace(0, 1, 5); y = f(x)", False),
        ("int, optional", False),
        ("array([0, 1, 2, 3, 4]) or array([1])", False),
        ("TODO: this is to be done by someone at some time", False),
    ],
)
def test_what_counts_as_english(text: str, kept: bool):
    assert is_english(text) is kept


def test_inline_markup_goes():
    marked = "Use :class:`~a.b.Thing` or ``x * 2``, **not** `this`_; see `here <http://x.y>`__ and |name| of %(kind)s."
    assert inline(marked) == "Use Thing or x * 2, not this; see here and name of kind."


def test_a_signature_on_the_first_line_is_taken_off():
    assert split_signature("abs(input, *, out=None) -> Tensor\n\nThe absolute value.") == (
        "abs(input, *, out=None)",
        "The absolute value.",
    )
    assert split_signature("f($self, x, /)\n--\n\nText.")[0] == "f(x, /)"
    assert split_signature("No signature (at all) here.")[0] == ""


SOURCE = '''
"""The module speaks for itself in this sentence."""
raise SystemExit("imported!")

LIMIT = 3
"""An attribute can have a docstring of its own too."""

class Shape:
    """Anything that has an area and a border."""

    def __init__(self, sides, *, colour="red", **rest):
        pass

    def shrink(self, /):
        """Make the shape smaller, down to nothing."""

    def grow(self, factor=2.0, /, *more, name: str = "a very long default value, too long"):
        """Make the shape larger by a factor."""
        def inner(x):
            """This one is inside of another function."""

    @property
    def area(self):
        """The area of the shape, in square metres."""

add_newdoc("pkg.core", "thing", """
    thing(x, out=None)

    A function that is written in another language.
    """)
add_newdoc("pkg.core", "thing", ("part", "A part of the thing that was named above."))
add_docstr(pkg.other, r"""
other(input) -> Thing

The other one, with {common} in it.
""".format(**common))
'''


def test_extraction_reads_and_never_runs(tmp_path: Path):
    path = tmp_path / "shapes.py"
    path.write_text(SOURCE)
    found = {name: (signature, text) for _, _, name, signature, text in extract(path, "pkg", "pkg.shapes")}
    assert found == {
        "": ("", "The module speaks for itself in this sentence."),
        "LIMIT": ("", "An attribute can have a docstring of its own too."),
        "Shape": ("Shape(sides, *, colour='red', **rest)", "Anything that has an area and a border."),
        "Shape.shrink": ("shrink()", "Make the shape smaller, down to nothing."),
        "Shape.grow": ("grow(factor=2.0, /, *more, name=...)", "Make the shape larger by a factor."),
        "Shape.grow.<locals>.inner": ("inner(x)", "This one is inside of another function."),
        "Shape.area": ("", "The area of the shape, in square metres."),
        "thing": ("thing(x, out=None)", "A function that is written in another language."),
        "thing.part": ("", "A part of the thing that was named above."),
        "other": ("other(input)", "The other one, with common in it."),
    }


def test_unreadable_sources_are_passed_over(tmp_path: Path):
    (tmp_path / "a.py").write_text("def broken(:")
    (tmp_path / "b.py").write_bytes(b"x = '\xff\xfe'")
    assert extract(tmp_path / "a.py", "p", "p.a") == extract(tmp_path / "b.py", "p", "p.b") == []
    assert extract(tmp_path / "none.py", "p", "p.none") == []


def test_extraction_agrees_with_inspect():
    """Every function of a real module that has a docstring by import has one by ast, with the same arguments."""
    import inspect
    import statistics

    tree = ast.parse(Path(statistics.__file__).read_bytes())
    found = {name: (signature, doc) for name, signature, doc in docstrings(tree)}
    checked = 0
    for name, function in inspect.getmembers(statistics, inspect.isfunction):
        if function.__module__ == "statistics" and function.__doc__:
            signature, doc = found[name]
            assert inspect.cleandoc(doc) == inspect.getdoc(function)
            mine = [word.partition("=")[0].lstrip("*") for word in signature.partition("(")[2].rstrip(")").split(", ")]
            named = [word for word in mine if word not in ("", "/")]
            assert named == list(inspect.signature(function).parameters) or "*" in signature
            checked += 1
    assert checked > 20


def test_the_corpus_is_large_english_of_all_packages(sides: dict[str, list[Entry]]):
    made = docs.info()
    assert made.missing == () and set(made.packages) == set(docs.PACKAGES)
    assert made.bytes["train"] > 8_000_000 and made.bytes["test"] > 600_000
    text = " ".join(entry.text for entry in sides["train"])
    common = Counter(re.findall(r"[a-z]+", text.lower()))
    assert {word for word, _ in common.most_common(8)} >= {"the", "of", "to", "a", "is"}
    assert sum(text.count(mark) for mark in (">>> ", "``", ":func:", ".. note")) < 200
    for side in sides.values():
        shares = Counter(entry.package for entry in side)
        assert set(shares) == set(docs.PACKAGES) and min(shares.values()) > 200
    topics = {entry.name: entry for entry in sides["train"] if entry.module == "pydoc_data.topics"}
    assert "assignment" in topics and topics["assignment"].signature == ""


def test_no_module_is_on_both_sides(sides: dict[str, list[Entry]]):
    train, test = ({(entry.package, entry.module) for entry in side} for side in sides.values())
    assert not train & test


def test_entries_are_unique(sides: dict[str, list[Entry]]):
    texts = [" ".join(re.findall(r"\w+", entry.text.lower())) for entry in sides["train"] + sides["test"]]
    assert len(set(texts)) == len(texts)


def test_no_test_text_is_in_the_training_documents(sides: dict[str, list[Entry]]):
    """No eight words in a row, and no sentence of four words or more."""
    blob = " | ".join(" ".join(re.findall(r"\w+", document.lower())) for document in docs.documents("train"))
    tokens = blob.split()
    eights = set(zip(*(tokens[i:] for i in range(8)), strict=False))
    sentences = []
    for entry in sides["test"]:
        for line in entry.text.split("\n"):
            found = re.findall(r"\w+", line.lower())
            assert not any(run in eights for run in zip(*(found[i:] for i in range(8)), strict=False)), line
            sentences += [" ".join(re.findall(r"\w+", part.lower())) for part in re.split(r"(?<=[.!?])\s", line)]
    sentences = [sentence for sentence in sentences if len(sentence.split()) >= 4]
    assert len(sentences) > 5000
    padded = f" {blob} "
    for sentence in random.Random(0).sample(sentences, 300):
        assert f" {sentence} " not in padded


def test_documents_are_the_modules(sides: dict[str, list[Entry]]):
    documents = list(docs.documents("train"))
    assert len(documents) == len({(entry.package, entry.module) for entry in sides["train"]})
    first = sides["train"][0]
    assert documents[0].startswith("\n".join(line for line in (first.signature, first.text) if line))
    assert not any("\n\n" in document for document in documents)


def fake_packages(root: Path) -> dict[str, Path]:
    for number in range(40):
        folder = root / f"numpy/part{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"m{number}.py").write_text(f'"""Module number {number} says {"very " * number}much of itself."""')
    (root / "numpy/tests").mkdir()
    (root / "numpy/tests/m.py").write_text('"""A test module that must not be in the corpus."""')
    return {"numpy": root / "numpy"}


def test_order_and_content_do_not_depend_on_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = docs.source_files(fake_packages(tmp_path)) * 5
    many = docs._extract(files)
    monkeypatch.setattr(docs, "cores", lambda: 1)
    assert docs._extract(files) == many
    assert [entry.module for entry in many] == [module for _, _, module in files]
    assert not any("tests" in entry.module for entry in many)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    roots = fake_packages(tmp_path)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(docs, "_root", roots.get)
    made = docs.info()
    assert made.missing == ("python", "pandas", "matplotlib", "scipy", "torch")
    assert made.entries["train"] == sum(not docs.is_test(f"numpy.part{n % 4}.m{n}") for n in range(40)) > 30
    assert docs.info() == made
    monkeypatch.setattr(docs, "_root", lambda package: None)
    with pytest.raises(docs.InputError, match="'docs' is made of the sources of python, numpy"):
        docs.entries("train")


@pytest.mark.parametrize("name", ["info.json", "train.jsonl"])
@pytest.mark.parametrize("damage", ["cut", "digit", "gone", "empty"])
def test_a_damaged_corpus_is_made_again(
    tmp_path: Path, name: str, damage: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    roots = fake_packages(tmp_path)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(docs, "_root", roots.get)
    made, (path,) = docs.info(), (tmp_path / "cache/docs").glob(f"[!.]*/{name}")
    whole = path.read_bytes()
    changed = {"cut": whole[:-20], "digit": whole.replace(b"1", b"2", 1), "gone": None, "empty": b""}[damage]
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    assert docs.info() == made and path.read_bytes() == whole and str(path.parent) in caplog.text
    docs._load.cache_clear()
    assert len(docs.entries("train")) == made.entries["train"]


def test_shared_paragraphs_are_dropped_from_the_test_side():
    train = [Entry("p", "a", "f", "", "One two three four five six seven eight nine ten.\nReturns the mean value.")]
    shared = "Zero. one two three four five six seven eight and more."
    test = [
        Entry("p", "b", "f", "", f"A first paragraph of its own.\n{shared}\nA last one of its own."),
        Entry("p", "b", "g", "", f"{shared}\nThe rest goes too, without its beginning."),
        Entry("p", "b", "h", "", "Something else. Returns the mean value."),
        Entry("p", "b", "i", "", "Returns the mean value of something else."),
    ]
    kept = docs._without_shared(test, train)
    assert [(entry.name, entry.text) for entry in kept] == [
        ("f", "A first paragraph of its own.\nA last one of its own."),
        ("i", "Returns the mean value of something else."),
    ]


def test_extraction_imports_nothing_of_the_packages(workbench_cache: Path, sides: dict[str, list[Entry]]):
    code = """
        import json, sys
        from workbench.data.built_in import docs
        count = len(docs.entries("train"))
        print(json.dumps([count, sorted({"torch", "numpy", "pandas", "scipy", "matplotlib"} & set(sys.modules))]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [len(sides["train"]), []]
