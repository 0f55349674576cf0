"""The built-in corpus of source code: whole files, without the modules that probes are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.data import built_in_text, sources
from workbench.data.sources import BuiltIn
from workbench.errors import InputError
from workbench.spec.parts import DataSpec


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
