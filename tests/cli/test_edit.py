"""The commands that manage a store: what they print, ask, refuse and leave alone."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from written_runs import begun, finished

from workbench.store import manage
from workbench.store.run_store import ExperimentRecord, RunStore

RECORD = "ablation-nano-1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        store = RunStore(tmp_path_factory.mktemp("whole") / "runs")
        runs = [finished(store, 0), finished(store, 1), begun(store, 2)]
        store.extend_experiment(ExperimentRecord(RECORD, experiment="ablation", runs=[run.run_id for run in runs]))
    return store.root


class Command:
    """`command(*words)` carries out a command line in a folder with a store, and returns its exit code."""

    def __init__(self, ended: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
        self.ended, self.capsys = ended, capsys
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        code = self.ended(*words)
        self.out, self.err = self.capsys.readouterr()
        return code


@pytest.fixture
def command(
    whole: Path, tmp_path: Path, ended: Callable[..., int], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:  # fmt: skip
    shutil.copytree(whole, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return Command(ended, capsys)


def everything() -> dict[str, str]:
    """The hash of every file here but for the index, which is a cache."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path().rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def ids() -> list[str]:
    return [run.run_id for run in RunStore("runs").runs()]


CHANGING = (
    ("rm", "--where", "state=done"),
    ("prune",),
    ("prune", "--checkpoints"),
    ("restore", "--all"),
    ("restore", "--empty"),
    ("mv", "ablation", "--to", "other"),
    ("gc", "--unused", "0"),
)


@pytest.mark.parametrize("words", CHANGING, ids=" ".join)
def test_what_deletes_is_shown_and_asked_for(command: Command, words: tuple[str, ...]) -> None:
    """Nothing changes with --dry-run, and without --yes where nobody can answer; with --yes it does."""
    first = RunStore("runs").runs()[0]
    shutil.copytree(first.path, "again")
    manage.remove(RunStore("runs"), first)
    shutil.move("again", first.path)
    if "--all" in words:
        shutil.rmtree(first.path)
    Path("cache/texts").mkdir(parents=True)
    Path("cache/texts/x.json").write_text("{}")
    before = everything()
    assert command(*words, "--dry-run", "--json") == 0
    shown = json.loads(command.out)
    assert shown and everything() == before
    if "--all" not in words:  # what puts runs back asks nothing
        assert command(*words) == 2 and "nothing was done: give --yes to" in command.err
        assert everything() == before
    assert command(*words, "--yes", "--json") == 0, command.err
    assert json.loads(command.out) == shown and everything() != before
    assert command("verify") == 0 or "cache" in command.out


def test_notes_and_tags_are_printed_where_runs_are(command: Command) -> None:
    one, two, three = ids()
    assert command("note", one, "a [bold] note") == 0 and command("note", one, "--json") == 0
    assert [note["text"] for note in json.loads(command.out)["notes"]] == ["a [bold] note"]
    assert command("tag", "best,old", one, three) == 0 and command("tag", "old", three, "--remove") == 0
    assert command("runs", "--where", "tags=best", "--json", "--columns", "run_id,tags,notes") == 0
    assert json.loads(command.out) == [
        {"run_id": one, "tags": "best, old", "notes": "a [bold] note"}, {"run_id": three, "tags": "best", "notes": ""},
    ]  # fmt: skip
    assert command("archive", "--where", "state=interrupted") == 0
    for words in (("status", "--all"), ("runs",)):
        assert command(*words) == 0 and three not in command.out and two in command.out
        assert command(*words, "--archived") == 0 and three in command.out
    assert command("status", "--all") == 0 and f"{one} #best #old" in command.out
    assert "1 archived run not shown" in command.out
    assert command("archive", three, "--remove") == 0 and command("status") == 0 and three in command.out
    assert command("report", "ablation") == 0
    page = next(Path("reports").rglob("index.html")).read_text()
    assert "tags and notes" in page and "best, old: a [bold] note" in page


def test_a_refused_run_is_named_and_the_others_are_removed(command: Command) -> None:
    one, two, three = ids()
    used = RunStore("runs").get(two)
    with used.lease():
        assert command("rm", one, two, "--yes") == 1
    assert f"{two} is not removed: it is in use by process {os.getpid()}" in command.err
    assert ids() == [two, three] and command("status") == 0
    assert command("restore", one[:-3]) == 0 and ids() == [one, two, three]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rm",), "no runs are chosen; name them, or give --where or --study"),
        (("rm", "nope"), "no run 'nope' in "),
        (("tag", "a b", "s0"), "'a b' cannot be a tag"),
        (("note", "s0-", " "), "the note is empty"),
        (("note", "s0-", "x", "--clear"), "contradict each other"),
        (("restore", "s0"), "no run 's0' in the trash"),
        (("archive", "s0-", "--study", "ablation"), "keep one"),
        (("mv", "nope", "--to", "other"), "holds no experiment 'nope'"),
        (("cp", "ablation", "--to", "runs/inner"), "lies in the store"),
        (("import", "nowhere"), "no such folder"),
        (("gc", "--unused", "-1"), "is not a number from 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_words_are_refused_in_one_line(command: Command, words: tuple[str, ...], said: str) -> None:
    before = everything()
    assert command(*words) == 2
    assert said in command.err and command.err.strip().count("\n") == 0 and not command.out
    assert everything() == before and not Path("other").exists()


def test_sizes_and_copies_are_printed(command: Command) -> None:
    assert command("cp", "ablation", "--to", "other/runs") == 0 and command("import", "other/runs") == 0
    assert "is there already" in command.out
    assert command("du", "--json") == 0
    told = json.loads(command.out)
    inside = sum(
        path.stat().st_size for run in RunStore("runs").runs() for path in run.path.rglob("*") if path.is_file()
    )
    assert told["total"]["bytes"] == inside == sum(row["bytes"] for row in told["runs"]) and told["trash"] == 0
    assert command("du") == 0 and "(workbench gc)" in command.out
