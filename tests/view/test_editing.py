"""Notes, tags and the archive are changed from the pages of this server alone, and only if that was allowed."""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import pytest
from starlette.testclient import TestClient
from view.conftest import HOST, TOKEN, client_of, looked

from workbench.store import manage
from workbench.store.run_store import RunStore
from workbench.view import watched as watching
from workbench.view.server import Guard

ONE, TWO = (str(made.spec_of("rtd", seed, {"steps": 60}).name) for seed in (0, 1))
STUDY = "/study/ablation-nano-1a2b3c4d/"
Post = Callable[..., Any]


class Editor:
    """A store of its own, with a client that may change it."""

    def __init__(self, root: Path, edit: bool = True) -> None:
        self.guard = Guard("127.0.0.1", 8642, TOKEN, edit)
        self.watched, self.store = looked(root), RunStore.existing(root)
        self.client = client_of(self.watched, guard=self.guard)
        self.headers = {"origin": HOST, "x-workbench-key": self.guard.key}

    def post(self, act: str, run: str, text: str = "", **headers: str) -> Any:
        """Ask for a change as the pages do, with some headers replaced; one that is "" is left out."""
        sent = {key: value for key, value in (self.headers | headers).items() if value}
        return self.client.post("/edit", data={"act": act, "run": run, "text": text}, headers=sent)

    def notes(self, run_id: str) -> manage.Notes:
        return manage.notes_of(self.store.get(run_id))


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "runs"))


def test_pages_only_read_unless_changes_are_allowed(root: Path) -> None:
    reader = Editor(root, edit=False)
    answer = reader.post("tag", ONE, "mine", **{"x-workbench-key": "guessed"})
    assert answer.status_code == 403 and "--allow-edit" in answer.text
    for path in ("/", "/runs", f"/run/{ONE}", STUDY):
        page = reader.client.get(path).text
        assert "data-key" not in page and "<form data-edit" not in page
    assert reader.notes(ONE) == manage.Notes()
    assert "data-key" in Editor(root).client.get("/runs").text


@pytest.mark.parametrize(
    "headers",
    [{"origin": ""}, {"origin": "null"}, {"origin": "http://evil.example"}, {"origin": "http://127.0.0.1:9999"},
     {"x-workbench-key": ""}, {"x-workbench-key": "guessed"}, {"x-workbench-key": TOKEN}, {"host": "evil.example"},
     {"cookie": "workbench_view_8642=guessed"}],
)  # fmt: skip
def test_a_change_needs_this_servers_origin_key_and_cookie(headers: dict[str, str], root: Path) -> None:
    editor = Editor(root)
    if "cookie" in headers:
        editor.client.cookies.clear()
    answer = editor.post("tag", ONE, "mine", **headers)
    assert answer.status_code == 403 and editor.notes(ONE) == manage.Notes()
    assert editor.client.get("/edit").status_code in (403, 404, 405)


def test_runs_are_tagged_noted_and_archived_and_every_page_shows_it_at_once(root: Path) -> None:
    editor = Editor(root)
    page = editor.client.get
    assert editor.post("tag", f"{ONE},{TWO}", "best, old").text == "2 runs tagged"
    assert editor.post("untag", TWO, "old").status_code == 200
    assert editor.post("note", ONE, "a first try").text == "1 run noted"
    assert editor.notes(ONE).tags == ("best", "old") and editor.notes(TWO).tags == ("best",)
    listed = page("/runs?where=tags%3Dold").text
    assert "#old" in listed and "a first try" in listed and f'href="/run/{TWO}"' not in listed
    own = page(f"/run/{ONE}").text
    assert "#best" in own and "a first try" in own and "tags best, old: a first try" in page(STUDY).text
    text = re.search(r'name="text" value="([^"]*a first try)"', own)
    assert text is not None and editor.post("remove note", ONE, text[1]).status_code == 200
    assert editor.notes(ONE).notes == () and "a first try" not in page("/runs").text

    assert editor.post("archive", f"{ONE},{TWO}").text == "2 runs archived"
    assert editor.notes(ONE).archived and f'href="/run/{ONE}"' not in page("/runs").text
    shown = page("/runs?archived=yes").text
    assert f'href="/run/{ONE}"' in shown and "2 archived runs" in page("/runs").text and "archived" in shown
    assert editor.post("restore", ONE).text == "1 run restored" and f'href="/run/{ONE}"' in page("/runs").text
    groups = page("/runs?group=seeds&where=objective%3Drtd").text  # tags do not make an arm of their own
    assert groups.count('name="run"') == 1 and "3 seeds" in groups


def test_a_note_made_elsewhere_shows_at_the_next_look(root: Path) -> None:
    editor = Editor(root)
    for text in ("first", "second"):  # the second one changes no time of the run's own folder
        manage.annotate(editor.store.get(ONE), lambda notes, text=text: notes.noted(text))  # type: ignore[misc]
        editor.watched.look()
        assert text in editor.client.get("/runs").text


HOSTILE = '"><script>alert(1)</script>'


@pytest.mark.parametrize(
    ("act", "run", "text", "words"),
    [("tag", ONE, HOSTILE, "a tag"), ("tag", ONE, "", "the text is empty"), ("note", ONE, "  ", "the text is empty"),
     ("note", ONE, "x" * 10_001, "write at most 10,000"), ("remove", ONE, "x", "there is no change"),
     ("tag", "", "x", "no run is chosen"), ("tag", "../../etc", "x", "there is no such run"),
     ("archive", f"{HOSTILE},{ONE}", "", "1 of 2 runs not archived")],
)  # fmt: skip
def test_a_change_that_cannot_be_made_is_one_sentence(act: str, run: str, text: str, words: str, root: Path) -> None:
    editor = Editor(root)
    answer = editor.post(act, run, text)
    assert answer.status_code == 422 and words in answer.text and "\n" not in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert editor.notes(ONE).tags == () and editor.notes(ONE).notes == ()


def test_a_large_change_is_refused_and_a_damaged_file_of_notes_is_named(root: Path) -> None:
    editor = Editor(root)
    assert editor.post("note", ONE, "x" * 2**21).status_code == 413
    editor.post("note", ONE, "kept")
    file = root / ONE / "notes" / "notes.json"
    file.write_bytes(file.read_bytes().replace(b"kept", b"lost"))
    editor.watched.look_at([ONE])
    answer = editor.post("note", ONE, "more")
    assert answer.status_code == 422 and "notes.json" in answer.text
    assert "Its notes cannot be read" in editor.client.get(f"/run/{ONE}").text


def test_what_people_write_is_data_on_every_page(root: Path) -> None:
    editor = Editor(root)
    assert editor.post("note", ONE, HOSTILE).status_code == 200
    for path in ("/runs", f"/run/{ONE}", STUDY, f"/compare?run={ONE},{TWO}", f"/runs?run={HOSTILE}&study={HOSTILE}"):
        page = editor.client.get(path).text
        assert "<script>alert" not in page and ("&lt;script&gt;alert" in page or "study=" in path), path


def test_pages_answer_while_nothing_can_be_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "AT_ONCE", 2)  # so that the index would be written
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        editor = Editor(root)
        codes = {path: editor.client.get(path).status_code for path in ("/", "/runs", STUDY, f"/run/{ONE}")}
        answer = editor.post("tag", ONE, "mine")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert set(codes.values()) == {200} and not (root / ".runs.json").exists()
    assert answer.status_code == 422 and answer.text
    assert editor.post("tag", ONE, "mine").status_code == 200 and editor.notes(ONE).tags == ("mine",)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("turn", range(4))
def test_a_store_that_is_damaged_under_the_server_is_shown_with_a_sentence(turn: int, root: Path) -> None:
    """Files of all runs are changed, cut, emptied, deleted or replaced by folders, each by another kind of damage."""
    watched = looked(root)
    client: TestClient = client_of(watched)
    harms: list[Callable[[Path], object]] = [_flip, _half, lambda path: path.write_bytes(b""), Path.unlink, _folder]
    names = ("spec.json", "done.json", "metrics.jsonl", "env.json", "plan.json", "manifest.json")
    runs = sorted(watched.rows)
    for number, run_id in enumerate(runs):
        for place in (number, number + 1):
            file = root / run_id / names[place % len(names)]
            if file.is_file():
                harms[(number + turn + place) % len(harms)](file)
        for score in [*(root / run_id / "scores").glob("*.json")][:1]:
            harms[(number + turn) % len(harms)](score)
    shutil.rmtree(root / runs[0])
    if turn % 2:
        _flip(next((root / "experiments").glob("*.json")))
    paths = [
        "/", "/runs", "/runs?group=seeds&sort=-score", STUDY, f"{STUDY}table.csv", f"/compare?run={','.join(runs[1:])}",
    ]  # fmt: skip
    paths += [f"/run/{run_id}" for run_id in runs[:6]] + [f"/run/{runs[1]}/metrics.jsonl"]
    for look in (False, True):
        if look:
            watched.look()
        for path in paths:
            answer = client.get(path)
            assert answer.status_code in (200, 404), path
            assert "cannot be made now" not in answer.text, (path, answer.text[-600:])
