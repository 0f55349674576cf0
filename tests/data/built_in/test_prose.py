"""Docstrings of every style become plain English paragraphs, extracted from sources without running them."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.data.docstrings import docstrings, extract, inline, is_english, paragraphs, split_signature

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
