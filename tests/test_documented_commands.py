"""Every command line in README, CONTRIBUTING and docs works as it is typed there.

Commands run in one folder, in the order of the pages, with `WORKBENCH_REHEARSAL` set, which leaves two steps of each
run. Words in capitals stand for something of the reader's; `MEANT` says what is put in their place.
"""

from __future__ import annotations

import functools
import itertools
import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from drills.small import Command, server
from helpers import slurm
from objective_oracle import build, synthetic, tiny_of_file
from task_data import OWN
from test_contributing import EXPERIMENT, OBJECTIVE

from workbench import objectives

ROOT = Path(__file__).parents[1]
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "log.md"]  # which records what was run
KEPT = ROOT / "reports/kept"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS, KEPT / "README.md"]
MEANT = {"EXPERIMENT": "ablation", "NAME": "ablation", "AXIS": "lambda", "WHAT": "objectives"}
NEED_WORDS = (
    *("run", "sweep", "report", "export", "evaluate", "list", "diff", "new", "check"),
    *("note", "tag", "archive", "track", "rm", "restore", "prune", "cp", "mv", "import"),
)
PREFIX = r"(?:\$ |nohup |exec |python -m |\.venv/bin/)?"  # what may stand before `workbench`
# Texts of the pages: the file of the real data, and how many of its lines are taken.
TEXTS = {
    "my_text.txt": ("text_danish_adl/danish_adl.txt.xz", None),
    "wiki-en-2015-1of4.txt": ("corpus/wiki-en-2015-1of4.txt.xz", 2000),
    "danish_adl.txt": ("text_danish_adl/danish_adl.txt.xz", 2000),
}
STUDIED = {"wiki-en-2015-1of4.txt", "danish_adl.txt"}  # of kept studies, which take hours: only the plan is made
PLANNED = ROOT / "docs/explanation/paper-results.md"  # the paper's own scales: of each run only the plan is made
# Commands of minutes whose kind another page or test carries out in full: of these, too, only the plan is made.
REPEATED = (
    ("generator-size", "micro", "my_text.txt"),
    ("generator-size", "runs-rehearsal"),
    ("tune", "slurm", "--trials", "20"),
    ("mini", "--streams"),
)
OTHERS = {  # lines of code that are no command of ours begin so
    *("make", "du", "rsync", "export", "unset", "mkdir", "cd"),
    *("torchrun", ".ci/run"),  # tests of several devices have them
    "python experiments/benchmarks/agreement.py",  # tests/bench/test_agreement.py runs it
    *("--set", "D_t", "p(v", "loss_t"),
}
FIRST = ["run", "ablation", "--objective", "bert-mlm", "--seeds", "2"]  # something for `status` and `diff` to read


@dataclass(frozen=True)
class Typed:
    """A command line of a page: its words after `workbench`, as typed."""

    page: Path
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: workbench {' '.join(self.words)}"


def typed(page: Path) -> Iterator[Typed]:
    """The command lines of a page: lines of code, with what follows two blanks or a # left out, and code in a sentence.

    A sentence may name a command without its words, as in `workbench status`; where the command needs some, that is no
    line to type.
    """
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    lines = re.findall(rf"^(?: {{4}})?{PREFIX}workbench (.+)$", text, flags=re.MULTILINE)
    lines += re.findall(rf"`{PREFIX}workbench ([^`]+)`", text.replace("\n", " "))
    for line in lines:
        words = re.split(r" {2,}| # | \(| > ", line.strip())[0]
        # `view` serves until Ctrl-C, and completion is for the shell that asks: tests/view and tests/cli.
        if words not in NEED_WORDS and not words.startswith(("view", "--install-completion")):
            yield Typed(page, tuple(shlex.split(words)))


def shown(page: Path) -> dict[Typed, list[str]]:
    """The lines of output that a page shows below a command; `...` stands for lines that are left out."""
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    blocks = re.findall(
        rf"^ {{4}}{PREFIX}workbench ([^\n]+)\n\n```text\n(.*?)```", text, flags=re.MULTILINE | re.DOTALL
    )
    lines: dict[Typed, list[str]] = {}
    for command, block in blocks:
        given = Typed(page, tuple(shlex.split(re.split(r" {2,}| # | \(| > ", command)[0])))
        lines.setdefault(given, []).extend(line for line in block.splitlines() if line.strip("." + " "))
    return lines


def shape(line: str) -> str:
    """A line of output without what differs between two runs of a command: numbers, times, hashes, paths, verdicts."""
    line = re.sub(r"^(verdict:?\s).*", r"\1", line)
    line = re.sub(r"^(?:done|running|interrupted|new) +(\S+).*", r"STATE \1", line)
    line = re.sub(r"^(\S+)  \w+: \d+ of \d+ trained.*", r"STUDY \1", line)
    line = re.sub(r"(?<!\S)/\S+", "PATH", line)
    line = re.sub(r"\b(?=\d*[a-f])[0-9a-f]{8,}\b", "N", line)
    line = re.sub(r"(?:(?<!\w)[-+])?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?[kKMGTP]?\b", "N", line)
    line = re.sub(r"\bN (?:d|h|min|s)\b(?: N (?:h|min|s)\b)*", "TIME", line)
    line = re.sub(r"\bN ([a-z]{3,})s\b", r"N \1", line)  # 1 record, 2 records
    return " ".join(re.sub(r"-{2,}", "--", line).split())


def assert_shown(given: Typed, done: subprocess.CompletedProcess[str]) -> None:
    """Each line that the page shows below the command is one that it prints, with numbers of its own."""
    printed = {shape(line) for line in (done.stdout + "\n" + done.stderr).splitlines()}
    stale = [line for line in SHOWN.get(given, []) if shape(line) not in printed]
    assert not stale, f"{given}\ndoes not print\n{chr(10).join(stale)}\nbut\n{done.stdout}{done.stderr}"


def is_synopsis(words: tuple[str, ...]) -> bool:
    """Whether the line lists options in brackets instead of giving them."""
    return any("[" in word for word in words)


COMMANDS = list(dict.fromkeys(each for page in PAGES for each in typed(page)))
SHOWN = {given: lines for page in PAGES for given, lines in shown(page).items()}


def write_babylm(folder: Path, real_data: Path) -> None:
    """Write the first rows of BabyLM's text, pairs and fine-tuning data, in its layout, where the pages look for it."""

    def head(source: str, target: str, rows: int) -> None:
        path = real_data / source
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else open(path, encoding="utf-8") as file:
            lines = list(itertools.islice(file, rows))
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text("".join(lines), encoding="utf-8")

    head("text_babylm_tiny/simple_wiki.txt.xz", "train_10M/simple_wiki.train", 3000)
    head("blimp/data/causative.jsonl", "data/supplement_filtered/hypernym.jsonl", 8)
    for name in ("blimp_filtered", "blimp_fast"):
        head(f"blimp/{name}.jsonl.xz", f"blimp/{name}.jsonl", 20)
    for part in ("train", "valid"):
        head(f"glue_babylm/wsc.{part}.jsonl", f"babylm/wsc.{part}.jsonl", 40)


def write_squad(folder: Path, real_data: Path) -> None:
    """Write a tenth of the paragraphs of SQuAD's dev files, whose questions are answered in seconds."""
    for path in (real_data / "squad").glob("dev-*.json.xz"):
        raw = json.loads(lzma.decompress(path.read_bytes()))
        for article in raw["data"]:
            article["paragraphs"] = article["paragraphs"][::10]
        (folder / "squad").mkdir(exist_ok=True)
        (folder / "squad" / path.stem).write_text(json.dumps(raw), encoding="utf-8")


def printed_by_snippets(page: Path) -> list[str]:
    """The output that a page shows below its Python."""
    blocks = re.findall(r"```python\n.*?```\n\n```text\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def snippets(page: Path) -> list[str]:
    """The Python of a page that is typed as it stands, besides files of objectives and experiments."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [block for block in blocks if not block.startswith('"""')]


# The files that the pages on objectives and trackers have their reader save as focal_mlm.py and my_tracker.py.
TUTORIAL, TRACKER = (
    re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    for page in ("tutorials/own-objective.md", "howto/tracking.md")
)
IN_ORDER = (ROOT / "docs/tutorials/domain.md",)  # pages each of whose commands needs what those before it made


@pytest.fixture(scope="module")
def folder(workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of somebody who follows the pages: their files, and a store with finished runs."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("my_idea.py", "shuffled_tokens.py"):
        (folder / name).write_text(OBJECTIVE, encoding="utf-8")
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(KEPT / "ablation", folder / "reports/kept/ablation")
    for experiment in KEPT.rglob("*.py"):
        target = folder / experiment.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(experiment, target)
    (folder / "focal_mlm.py").write_text(TUTORIAL, encoding="utf-8")
    (folder / "my_tracker.py").write_text(TRACKER, encoding="utf-8")
    (folder / "my_task.py").write_text(OWN, encoding="utf-8")
    (folder / "my_question.py").write_text(EXPERIMENT, encoding="utf-8")
    done = workbench(*FIRST, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def workbench(workbench_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """`workbench(*words, cwd=...)` runs the command to its end, with two steps of each run."""
    with server(workbench_cache, tmp_path_factory.mktemp("commands")) as command:
        yield functools.partial(command, WORKBENCH_REHEARSAL="1")


def filled_in(words: tuple[str, ...], folder: Path, real_data: Path) -> list[str]:
    """The words with the reader's own things in place of words in capitals."""
    runs = sorted(path.parent.name for path in (folder / "runs").glob("bert-mlm-*/done.json"))
    meant = MEANT | {
        "A": runs[0], "B": runs[1], "RUN": runs[0], "STORE": "runs", "DIR": f"runs/{runs[0]}/encoder",
        "tasks.glue=DIR": f"tasks.glue={real_data / 'glue'}", "tasks.blimp=DIR": "tasks.blimp=blimp",
        "tasks.babylm=DIR": "tasks.babylm=babylm", "tasks.squad=DIR": "tasks.squad=squad",
    }  # fmt: skip
    return [meant.get(word, word) for word in words]


def needs_real_data(words: tuple[str, ...]) -> bool:
    paths = ("tasks.glue=", "tasks.blimp=", "tasks.babylm=", "tasks.squad=", *TEXTS)
    return any(word.startswith(paths) for word in words)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment variables of a SLURM cluster of one node, in which commands submit jobs."""
    if reason := slurm.lacking():
        pytest.skip(reason)
    with slurm.cluster(tmp_path) as configuration:
        yield {"SLURM_CONF": configuration}


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", [each for each in COMMANDS if each.page not in IN_ORDER and not is_synopsis(each.words)], ids=str
)
def test_a_documented_command_works_as_typed(
    given: Typed, folder: Path, workbench: Command, request: pytest.FixtureRequest
) -> None:
    real_data = request.getfixturevalue("real_data") if needs_real_data(given.words) else Path("unused")
    if "tasks.babylm=DIR" in given.words:
        write_babylm(folder, real_data)
    if "tasks.squad=DIR" in given.words:
        write_squad(folder, real_data)
    for name, (source, count) in TEXTS.items():
        if name in given.words:
            with lzma.open(real_data / source) as file:
                (folder / name).write_bytes(b"".join(itertools.islice(file, count)))
    if "danish_adl.txt" in given.words:
        for part in ("ud_danish_ddt/da_ddt-ud-dev.conllu", "uner_danish_ddt/da_ddt-ud-train.iob2"):
            shutil.copy(real_data / part, folder)
    cluster = request.getfixturevalue("cluster") if "slurm" in given.words else {}
    is_repeated = any(set(kind) <= set(given.words) for kind in REPEATED)
    is_planned = not STUDIED.isdisjoint(given.words) or is_repeated or given.page == PLANNED
    words = filled_in(given.words, folder, real_data) + ["--dry-run"] * is_planned
    unknown = [word for word in words if re.fullmatch(r"[A-Z]{2,}", word)]
    assert not unknown, f"{given}: say in MEANT what {unknown[0]} stands for"
    made = folder / f"{words[2]}.py" if words[0] == "new" else None
    of_another_page = made.read_bytes() if made and made.exists() else None
    if made:
        made.unlink(missing_ok=True)
    store = words[words.index("--runs") + 1] if "--runs" in words else ""
    if store and words[0] == "diff" and not (folder / store).exists():  # the page's command before makes it
        before = [each for each in COMMANDS[: COMMANDS.index(given)] if each.page == given.page and store in each.words]
        assert workbench(*filled_in(before[-1].words, folder, real_data), cwd=folder).returncode == 0
    for name in re.findall(r"\./(\w+)\.py", " ".join(given.words)):  # another process may have carried out `new`
        made_by = [each for each in COMMANDS if each.page == given.page and each.words[::2] == ("new", name)]
        if made_by and not (folder / f"{name}.py").exists():
            workbench(*made_by[0].words, cwd=folder, ends=0)
    # Its smallest budget is a 16th of a run, which four steps cannot give; the plan of the whole takes half a minute.
    whole = {"WORKBENCH_REHEARSAL": ""} if "efficiency" in words and is_planned else {}
    done = workbench(*words, cwd=folder, **cluster, **whole)
    assert done.returncode == 0, f"{given}\n{done.stderr}"
    assert_shown(given, done)
    if made and of_another_page is not None:
        made.write_bytes(of_another_page)


@pytest.mark.slow
@pytest.mark.parametrize("page", IN_ORDER, ids=lambda page: page.name)
def test_the_commands_of_a_page_work_one_after_the_other(page: Path, workbench: Command, tmp_path: Path) -> None:
    for given in [each for each in COMMANDS if each.page == page and not is_synopsis(each.words)]:
        runs = sorted(path.parent.name for path in (tmp_path / "code").glob("rtd-*/done.json"))
        meant = {"STORE": "code", "RUN": runs[0]} if runs else {}
        done = workbench(*(meant.get(word, word) for word in given.words), cwd=tmp_path)
        assert done.returncode == 0, f"{given}\n{done.stderr}"
        assert_shown(given, done)
    assert (tmp_path / "adapted/discriminator").is_dir()


@pytest.mark.parametrize("given", [each for each in COMMANDS if is_synopsis(each.words)], ids=str)
def test_a_synopsis_names_options_that_exist(given: Typed, workbench: Command) -> None:
    done = workbench(given.words[0], "--help")
    shown, options = done.stdout, re.findall(r"--[a-z-]+", " ".join(given.words))
    assert done.returncode == 0, done.stderr
    assert not [option for option in options if option not in shown]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)], ids=lambda page: page.name)
def test_documented_python_runs_as_it_stands(page: Path, folder: Path, tmp_path: Path) -> None:
    """The blocks of a page one after the other, as in one session: in an empty folder, or in that of the tutorial."""
    here = folder if page.parent.name == "tutorials" else tmp_path
    (here / "snippet.py").write_text("\n".join(snippets(page)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=here, capture_output=True, text=True, check=False,
        env=os.environ | {"WORKBENCH_REHEARSAL": "1", "PYTHONPATH": str(ROOT)}, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {shape(line) for line in printed_by_snippets(page)} <= {shape(line) for line in done.stdout.splitlines()}


TUTORIALS = [ROOT / "docs/start.md", *(ROOT / "docs/tutorials").glob("*.md")]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_output_in_a_tutorial_stands_below_its_command_and_its_pictures_are_small(page: Path) -> None:
    """So that the tests above compare it with what the command prints."""
    text = page.read_text(encoding="utf-8")
    checked = len(shown(page)) + len(re.findall(r"```python\n.*?```\n\n```text\n", text, flags=re.DOTALL))
    assert text.count("```text\n") == checked
    pictures = [page.parent / name for name in re.findall(r"```\{image\} (\S+)", text)]
    assert pictures and all(picture.stat().st_size < 150_000 for picture in pictures)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_line_of_a_page_is_left_out(page: Path) -> None:
    """Each line of code begins with `workbench`, and so is run above, or is known to be something else."""
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    shell = re.findall(r"```(?:bash|sh|console)\n(.*?)```", text, flags=re.DOTALL)
    lines = re.findall(r"^ {4}(?! )(.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    lines += [line for block in shell for line in block.splitlines() if line and not line.startswith("#")]
    ours = rf"{PREFIX}workbench |runs/"
    assert [line for line in lines if not re.match(ours, line) and not line.startswith(tuple(OTHERS))] == []


def test_the_objective_in_the_readme_is_the_file_that_its_command_names() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (ROOT / "examples/half_masked.py").read_text(encoding="utf-8") in text


def test_commands_are_found_in_the_pages() -> None:
    """The patterns above still match: the README's first commands, and one in the middle of a sentence, are there."""
    words = {each.words for each in COMMANDS}
    assert ("list", "encoders") in words
    assert any(each[:2] == ("sweep", "tune") for each in words)
    assert any(each[:2] == ("run", "ablation") and "examples/half_masked.py" in each for each in words)


def test_documented_make_targets_exist() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    targets = set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, flags=re.MULTILINE))
    assert {"demo", "test"} <= targets
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for target in sorted(targets):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_objective_of_the_tutorial_is_bert_mlm_where_the_page_says_so(tmp_path: Path) -> None:
    """With gamma 0 it has BERT MLM's loss, and for any gamma its price."""
    path = tmp_path / "focal_mlm.py"
    path.write_text(TUTORIAL, encoding="utf-8")
    plain, focal = (tiny_of_file(path, {"options.gamma": gamma}) for gamma in ("0", "2"))
    bert = objectives.with_options(plain.replace(objective="bert-mlm", source="", options={}))
    losses = [build(spec)(synthetic(spec, rows=4)).values() for spec in (plain, focal, bert)]

    assert losses[0]["loss"] == losses[2]["loss"] == losses[1]["mlm_loss"]
    assert losses[1]["loss"] < losses[2]["loss"]
    assert objectives.cost(focal) == objectives.cost(bert)
