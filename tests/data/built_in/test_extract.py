"""Docstrings are extracted from sources without running them."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
from pathlib import Path

from workbench.data.docstrings import docstrings, extract

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
