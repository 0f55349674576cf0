"""`python -m tests.mutation [--sample N] [--seed WORD] [MODULE ...]` changes code and looks whether a test notices.

mutmut makes the changes (mutants) and runs the tests that reach each changed function; modules, tests and options
stand in pyproject.toml under `tool.mutmut`. A sample depends on its seed alone, git's hash of workbench/ unless another
word is given, so that everybody draws the same one for the same code. Exit code 1 if a mutant survives that is not in
docs/mutants.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "docs" / "mutants.md"
ENTRY = re.compile(r"^- `(?P<function>[^`]+)`: `(?P<before>[^`]*)` becomes `(?P<after>[^`]*)`", re.MULTILINE)
KILLED = {1, 3, 24, -24, 36, 152, 255, -9, -11}  # a test failed, pytest broke down, or time ran out (an endless loop)
SURVIVED, UNTESTED = 0, 33
STRICT = re.compile(r", (strict=(True|False|None))?(?=\))")
# pytest starts anew for every mutant, and looking for plugins among all packages takes longer than most tests.
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Change:
    """What a mutant changes: lines of a function, each side joined into one line."""

    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"- `{self.function}`: `{self.before}` becomes `{self.after}`"

    @property
    def is_harmless(self) -> bool:
        """Whether it only concerns the `strict` of a zip, which is an assertion."""
        return STRICT.sub("", self.before) == STRICT.sub("", self.after)


def every_mutant(modules: Sequence[str]) -> list[str]:
    """mutmut's names of all mutants of these files."""
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    names = []
    for module in modules:
        made = mutate_file_contents(module, (ROOT / module).read_text(encoding="utf-8"))
        names += [get_mutant_name(Path(module), name) for name in made.mutant_names]
    return sorted(names)


def results(modules: Sequence[str]) -> dict[str, int | None]:
    """Exit code of pytest by mutant, as mutmut wrote them down; None where it did not come so far."""
    found: dict[str, int | None] = {}
    for module in modules:
        path = ROOT / "mutants" / f"{module}.meta"
        found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"] if path.is_file() else {}
    return found


def change(name: str, modules: Sequence[str]) -> Change:
    """What mutmut's mutant of this name changes."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.utils.format_utils import get_mutant_name, orig_function_and_class_names_from_key

    place = name.rpartition(".")[0]
    module = next(m for m in modules if get_mutant_name(Path(m), "x").rpartition(".")[0] == place)
    lines = get_diff_for_mutant(name, path=module).splitlines()[3:]
    before, after = (" ".join(line[1:].strip() for line in lines if line[:1] == sign) for sign in "-+")
    function, owner = orig_function_and_class_names_from_key(name)
    return Change(".".join(filter(None, (place, owner, function))), before, after)


def documented(text: str) -> set[Change]:
    """The mutants that a page lists as known to survive."""
    return {Change(**found.groupdict()) for found in ENTRY.finditer(text)}


def code_hash() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD:workbench"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "0"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help="files to change; all of tool.mutmut's if none is given")
    parser.add_argument("--sample", type=int, help="how many mutants, drawn at random; all if left out")
    parser.add_argument("--seed", default=code_hash(), help="what the sample is drawn by; left out, the code")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(words)
    os.chdir(ROOT)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]["only_mutate"]
    modules = asked.modules or known
    names = every_mutant(modules)
    if asked.sample is not None:
        names = sorted(random.Random(asked.seed).sample(names, min(asked.sample, len(names))))
    print(f"{len(names)} mutants of {len(modules)} modules, seed {asked.seed}", flush=True)
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(asked.processes), *names]
    with (ROOT / "mutants.log").open("w") as log:
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log, check=False)
    if done.returncode:
        print((ROOT / "mutants.log").read_text(errors="replace")[-4000:])
        return done.returncode
    return report({name: results(modules).get(name) for name in names}, modules)


def report(found: dict[str, int | None], modules: Sequence[str]) -> int:
    """Print what became of the mutants; 1 if one survived that is not listed, or was not tried."""
    listed = documented(LIST.read_text(encoding="utf-8"))
    left = {name: change(name, modules) for name, code in found.items() if code not in KILLED}
    new = {name: each for name, each in left.items() if each not in listed and not each.is_harmless}
    counts = Counter(name.rpartition(".")[0] for name in found)
    missed = Counter(name.rpartition(".")[0] for name in left)
    for place, count in sorted(counts.items()):
        print(f"{place}: {count - missed[place]} of {count} killed")
    print(f"{len(found) - len(left)} of {len(found)} killed, {len(left) - len(new)} known to make no difference")
    for name, each in new.items():
        why = {SURVIVED: "survived", UNTESTED: "no test reaches it"}.get(found[name] or 0, f"ended with {found[name]}")
        print(f"{name} {'was not tried' if found[name] is None else why}:\n{each}")
    return int(bool(new))


if __name__ == "__main__":
    sys.exit(main())
