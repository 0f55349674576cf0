"""The built-in corpora: English out of docstrings, parsed and cleaned, split without leaks, and Python files."""

from __future__ import annotations

import ast
import json
import random
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from workbench.data import built_in_text, sources
from workbench.data.built_in_text import Entry
from workbench.data.docstrings import docstrings, extract, inline, is_english, paragraphs, split_signature
from workbench.data.sources import BuiltIn
from workbench.errors import InputError
from workbench.spec.parts import DataSpec


@pytest.fixture(scope="module")
def sides(workbench_cache: Path) -> dict[str, list[Entry]]:
    return {"train": built_in_text.entries("train"), "test": built_in_text.entries("test")}


def test_the_corpus_is_large_english_of_all_packages(sides: dict[str, list[Entry]]):
    made = built_in_text.info()
    assert made.missing == () and set(made.packages) == set(built_in_text.PACKAGES)
    assert made.bytes["train"] > 8_000_000 and made.bytes["test"] > 600_000
    text = " ".join(entry.text for entry in sides["train"])
    common = Counter(re.findall(r"[a-z]+", text.lower()))
    assert {word for word, _ in common.most_common(8)} >= {"the", "of", "to", "a", "is"}
    assert sum(text.count(mark) for mark in (">>> ", "``", ":func:", ".. note")) < 200
    for side in sides.values():
        shares = Counter(entry.package for entry in side)
        assert set(shares) == set(built_in_text.PACKAGES) and min(shares.values()) > 200
    topics = {entry.name: entry for entry in sides["train"] if entry.module == "pydoc_data.topics"}
    assert "assignment" in topics and topics["assignment"].signature == ""


def test_no_module_is_on_both_sides_and_no_entry_twice(sides: dict[str, list[Entry]]):
    train, test = ({(entry.package, entry.module) for entry in side} for side in sides.values())
    assert not train & test
    texts = [" ".join(re.findall(r"\w+", entry.text.lower())) for entry in sides["train"] + sides["test"]]
    assert len(set(texts)) == len(texts)


def test_no_test_text_is_in_the_training_documents(sides: dict[str, list[Entry]]):
    """No eight words in a row, and no sentence of four words or more."""
    blob = " | ".join(" ".join(re.findall(r"\w+", document.lower())) for document in built_in_text.documents("train"))
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
    documents = list(built_in_text.documents("train"))
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
    files = built_in_text.source_files(fake_packages(tmp_path)) * 5
    many = built_in_text._extract(files)
    monkeypatch.setattr(built_in_text, "cores", lambda: 1)
    assert built_in_text._extract(files) == many
    assert [entry.module for entry in many] == [module for _, _, module in files]
    assert not any("tests" in entry.module for entry in many)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    roots = fake_packages(tmp_path)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(built_in_text, "_root", roots.get)
    made = built_in_text.info()
    assert made.missing == ("python", "pandas", "matplotlib", "scipy", "torch")
    assert made.entries["train"] == sum(not built_in_text.is_test(f"numpy.part{n % 4}.m{n}") for n in range(40)) > 30
    assert built_in_text.info() == made
    monkeypatch.setattr(built_in_text, "_root", lambda package: None)
    with pytest.raises(built_in_text.InputError, match="'docs' is made of the sources of python, numpy"):
        built_in_text.entries("train")


@pytest.mark.parametrize(("name", "left"), [("info.json", b"{}"), ("train.jsonl", None)])
def test_a_damaged_corpus_is_made_again(
    tmp_path: Path, name: str, left: bytes | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    roots = fake_packages(tmp_path)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(built_in_text, "_root", roots.get)
    made, (path,) = built_in_text.info(), (tmp_path / "cache/docs").glob(f"[!.]*/{name}")
    whole = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    assert built_in_text.info() == made and path.read_bytes() == whole and str(path.parent) in caplog.text
    built_in_text._load.cache_clear()
    assert len(built_in_text.entries("train")) == made.entries["train"]


def test_shared_paragraphs_are_dropped_from_the_test_side():
    train = [Entry("p", "a", "f", "", "One two three four five six seven eight nine ten.\nReturns the mean value.")]
    shared = "Zero. one two three four five six seven eight and more."
    test = [
        Entry("p", "b", "f", "", f"A first paragraph of its own.\n{shared}\nA last one of its own."),
        Entry("p", "b", "g", "", f"{shared}\nThe rest goes too, without its beginning."),
        Entry("p", "b", "h", "", "Something else. Returns the mean value."),
        Entry("p", "b", "i", "", "Returns the mean value of something else."),
    ]
    kept = built_in_text._without_shared(test, train)
    assert [(entry.name, entry.text) for entry in kept] == [
        ("f", "A first paragraph of its own.\nA last one of its own."),
        ("i", "Returns the mean value of something else."),
    ]


def test_extraction_imports_nothing_of_the_packages(workbench_cache: Path, sides: dict[str, list[Entry]]):
    code = """
        import json, sys
        from workbench.data import built_in_text
        count = len(built_in_text.entries("train"))
        print(json.dumps([count, sorted({"torch", "numpy", "pandas", "scipy", "matplotlib"} & set(sys.modules))]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [len(sides["train"]), []]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of 40 modules with a line of code each, and some files that are no text of the corpus."""
    root = tmp_path / "numpy"
    (root / "tests").mkdir(parents=True)
    for number in range(40):
        (root / f"m{number}.py").write_text(f"def f(x):\n    return x + {number}\n")
    (root / "tests/m.py").write_text("assert True\n")
    (root / "copy.py").write_text("def f(x):\n    return x + 3\n")
    (root / "empty.py").write_text("\n")
    (root / "latin.py").write_bytes(b"# caf\xe9\n")
    (root / "nul.py").write_text("x = '\0'\n")
    monkeypatch.setattr(built_in_text, "_root", {"numpy": root}.get)
    return root


def resolved() -> BuiltIn:
    (source,) = sources.resolve(DataSpec(corpus=("python-code",)))
    assert isinstance(source, BuiltIn)
    return source


def test_documents_are_the_files_of_the_training_side(package: Path) -> None:
    advanced: list[int] = []
    found = list(sources.read(resolved(), "text", advanced.append))
    kept = [number for number in range(40) if not built_in_text.is_test(f"numpy.m{number}")]
    assert 30 < len(kept) < 40
    assert sorted(found) == sorted(f"def f(x):\n    return x + {number}\n" for number in kept)
    assert advanced == [len(text) for text in found] and sum(advanced) <= resolved().size
    assert sources.name_of(resolved()) == "python-code"


def test_a_changed_file_is_prepared_anew(package: Path) -> None:
    before = sources.identity(resolved())
    assert before == sources.identity(resolved())
    changed = next(n for n in range(40) if not built_in_text.is_test(f"numpy.m{n}"))
    (package / f"m{changed}.py").write_text("pass\n")
    after = sources.identity(resolved())
    assert after != before and after[0] == "python-code"


def test_without_packages_or_files_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for roots, message in (({}, "is made of the sources of python, numpy"), ({"numpy": tmp_path}, "has no file on")):
        monkeypatch.setattr(built_in_text, "_root", roots.get)
        with pytest.raises(InputError, match=f"'python-code' {message}"):
            resolved()


def test_no_module_of_the_real_packages_is_on_the_test_side() -> None:
    held = {(entry.package, entry.module) for entry in built_in_text.entries("test")}
    files = built_in_text.source_files(built_in_text.installed("docs"))
    modules = {path: (package, module) for path, package, module in files}
    found = [modules[path] for path in built_in_text.code_files()]
    assert len(found) > 1000 and held and held.isdisjoint(found)


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


def test_workers_of_a_command_that_was_killed_end_without_a_word(tmp_path: Path) -> None:
    source = tmp_path / "shape.py"
    source.write_text(SOURCE)
    task = json.dumps([str(source), "pkg", "pkg.core"]) + "\n"
    command = [sys.executable, "-c", "from workbench.data.docstrings import main; main()"]
    half = subprocess.run(command, input=task + task[:9], capture_output=True, text=True, check=False)
    assert (half.returncode, half.stderr, half.stdout.count("\n")) == (0, "", 1)

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stdin.write(task.encode() * 50)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == -signal.SIGPIPE
