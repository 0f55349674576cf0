"""Imports point one way, and each outside package has one home. Read from the source; nothing is imported here."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"

# Top to bottom. A part imports what stands on lines below its own; parts on one line do not see each other.
LINES = (
    "cli api",
    "view",
    "execution",
    "tasks bench trackers",
    "training",
    "objectives encoders",
    "models",
    "data cpu report",
    "registry",
    "store tensors",
    "spec",
    "options process progress rng",
    "errors",
)
REPORT_LINES = (
    "paper",
    "page",
    "drawing",
    "charts",
    "data_files recommendation",
    "verdict",
    "comparison",
    "results",
    "statistics",
    "load",
    "formatting",
)
MOST_MODULES = 12  # at the top level, packages apart
LEVEL = {part: level for level, line in enumerate(LINES) for part in line.split()}
REPORT_LEVEL = {part: level for level, line in enumerate(REPORT_LINES) for part in line.split()}
REPORT_SEES = {"report", "store", "spec", "errors"}

HOMES = {
    "typer": ("cli",),
    "wandb": ("trackers.wandb",),
    "trackio": ("trackers.trackio",),
    "tensorboard": ("trackers.tensorboard",),
    "mlflow": ("trackers.mlflow",),
    "optuna": ("execution.search",),
    "pandas": ("report", "api"),
    "matplotlib": ("report",),
    "jinja2": ("report",),
    "starlette": ("view",),
    "uvicorn": ("view",),
    "datasets": ("data", "tasks"),
    "transformers": ("models", "encoders", "data", "tasks", "api"),
    "tokenizers": ("data",),
    "sklearn": ("tasks",),
    "pytorch_optimizer": ("training.optimizer",),
    "zstandard": ("data",),
    "sentencepiece": ("data.tokenizer",),
    "datasketch": ("data.near_duplicates",),
    "fsspec": ("data.streams",),
}
SLOW_TO_LOAD = (
    "torch pandas transformers datasets matplotlib scipy numpy wandb optuna tokenizers pyarrow jinja2 sklearn "
    "starlette uvicorn trackio tensorboard mlflow"
)

PLUGS = ("objectives", "encoders", "tasks")  # folders of plug-ins, which are found by name and may share one
# What `workbench new` copies is no part of the package.
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name != "templates")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


@functools.cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Line and dotted name of everything a file imports, inside functions and for types alike."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide where a name comes from"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            found += [(node.lineno, whole if whole in MODULES else module) for whole in names]
    return found


def every_import() -> Iterator[tuple[Path, int, str]]:
    return ((path, line, target) for path in SOURCES for line, target in imports(path))


def part_of(module: str, depth: int = 1) -> str:
    """`workbench.data.corpus` is of the part `data`."""
    return (module.split(".") + [""] * depth)[depth]


def test_every_part_has_a_line() -> None:
    parts = {part_of(name) for name in MODULES} - {"", "__main__"}
    assert parts == set(LEVEL)
    assert {part_of(name, 2) for name in MODULES if part_of(name) == "report"} - {""} == set(REPORT_LEVEL)


def test_the_drawing_in_the_documentation_has_the_same_lines() -> None:
    """A part is drawn above all parts that it may import; those drawn side by side at the bottom are modules."""
    drawing = (ROOT / "docs/explanation/packages.svg").read_text(encoding="utf-8")
    height = {name: int(y) for y, name in re.findall(r'y="(\d+)" text-anchor="middle">(\w+)</text>', drawing)}
    assert set(height) == set(LEVEL)
    packages = [part for part in LEVEL if (PACKAGE / part).is_dir()]
    ranks = sorted({LEVEL[part] for part in packages})
    heights = sorted({height[part] for part in packages})
    assert {part: heights.index(height[part]) for part in packages} == {
        part: ranks.index(LEVEL[part]) for part in packages
    }
    assert height["api"] == height["cli"]  # a module beside a package
    assert all(height[part] > max(heights) for part in LEVEL if part not in (*packages, "api"))


def test_no_module_name_occurs_twice_and_few_modules_stand_at_the_top() -> None:
    folders: dict[Path, list[str]] = {}
    for path in SOURCES:
        folders.setdefault(path.parent, []).append(path.stem)
    assert len(folders[PACKAGE]) <= MOST_MODULES
    plugs = [PACKAGE / name for name in PLUGS]
    named = {path: held for path, held in folders.items() if path not in plugs}
    names = [name for held in named.values() for name in held if not name.startswith("__")]
    names += [folder.name for folder in folders]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_imports_point_down() -> None:
    wrong = []
    for path, line, target in every_import():
        part = part_of(module_name(path))
        if part in ("", "__main__") or target.split(".")[0] != "workbench" or target == "workbench":
            continue
        other = part_of(target)
        if other != part and LEVEL[other] <= LEVEL[part]:
            wrong.append(f"{path}:{line}: {part} may not import {other}")
        if part == "report" and other not in REPORT_SEES:
            wrong.append(f"{path}:{line}: report may not import {other}")
        if part == other == "report":
            one, two = part_of(module_name(path), 2), part_of(target, 2)
            if one and two and one != two and REPORT_LEVEL[two] <= REPORT_LEVEL[one]:
                wrong.append(f"{path}:{line}: report.{one} may not import report.{two}")
        if other != part and re.match(r"workbench\.(objectives|encoders)\.[a-z]", target):
            wrong.append(f"{path}:{line}: objectives and encoders are found by name, not imported from elsewhere")
    assert not wrong, "\n".join(wrong)


def test_outside_packages_stay_at_home() -> None:
    wrong = []
    for path, line, target in every_import():
        here, name = f"{module_name(path)}.", target.split(".")[0]
        if name in HOMES and not any(here.startswith(f"workbench.{home}.") for home in HOMES[name]):
            wrong.append(f"{path}:{line}: {name} belongs to {HOMES[name]}")
        if name == "torch" and part_of(module_name(path)) == "report":
            wrong.append(f"{path}:{line}: report may not import torch")
    assert not wrong, "\n".join(wrong)


def loaded_late(path: Path) -> set[str]:
    """What a file imports inside functions alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    first = {node.lineno for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
    return {target for line, target in imports(path) if line not in first} - {t for n, t in imports(path) if n in first}


def test_no_module_imports_itself_in_a_circle() -> None:
    """A measure is plain data, and its methods load the module that computes it, which knows the measure's type."""
    graph = {
        name: {target for _, target in imports(path) if target in MODULES and target != name}
        - (loaded_late(path) if part_of(name) == "tasks" else set())
        for name, path in MODULES.items()
        if name != "workbench"  # whose names are loaded when they are used
    }
    graph["workbench"] = set()
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for target in graph[name]:
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_every_outside_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    in_use = (
        "postgres",
        "lamb",
        "embeddings",
        "dedup",
        "unigram",
        "language",
        "wandb",
        "trackio",
        "tensorboard",
        "mlflow",
    )
    wanted = [*project["dependencies"], *(text for name in in_use for text in extras[name])]
    declared = {re.split(r"[^\w-]", text)[0].replace("-", "_").lower() for text in wanted}
    declared |= {"sklearn"} if "scikit_learn" in declared else set()
    declared |= {"mlflow"} if "mlflow_skinny" in declared else set()
    known = declared | set(sys.stdlib_module_names) | {"workbench"}
    missing = {f"{path}:{line}: {name}" for path, line, name in every_import() if name.split(".")[0] not in known}
    assert not missing, "\n".join(sorted(missing))


def test_experiments_need_only_specs() -> None:
    """An experiment is data: it can be listed and read without anything that trains."""
    for path in sorted((ROOT / "experiments").glob("*.py")):
        seen = {target for _, target in imports(path) if target.split(".")[0] not in sys.stdlib_module_names}
        assert seen <= {"workbench.spec.run_spec", "workbench.spec.presets", "workbench.spec.experiment"}, path


def test_commands_start_without_the_heavy_packages() -> None:
    modules = ("cli", "spec.run_spec", "models.families", "models.flops", "store.run_store", "objectives")
    lines = [*(f"import workbench.{module}" for module in modules), "workbench.objectives.listing()"]
    loaded = f"print({{line!r}}, *sorted(set(sys.modules) & set({SLOW_TO_LOAD.split()!r})))"
    code = "\n".join(["import sys", *(f"{line}; {loaded.format(line=line)}" for line in lines)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == lines, "heavy packages stand behind the line that loads them"
