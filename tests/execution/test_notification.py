"""A person is told of the end of a study: by a webhook, a command or the desktop; nothing secret is kept or printed."""

from __future__ import annotations

import base64
import json
import logging
import socket
import stat
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import made
import pytest

from workbench.errors import InputError, Interrupted
from workbench.execution import notification
from workbench.execution.notification import Message, Way, way_of
from workbench.execution.study_runner import Outcome
from workbench.store.redact import redact_words
from workbench.store.run_store import RunStore

MESSAGE = Message("ablation-nano-1a2b", "done", 3, 4, 'RTD is "ahead" of BERT', "node7")
SECRET = "T0K/sEcReT"


@pytest.fixture
def hook() -> Iterator[tuple[str, list[tuple[str, dict[str, str], Any]]]]:
    """The host and port of a web server, and the path, headers and JSON of each request that it got."""
    got: list[tuple[str, dict[str, str], Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, {key.lower(): value for key, value in self.headers.items()}, json.loads(body)))
            if "slow" in self.path:
                time.sleep(3)
            self.send_response(500 if "broken" in self.path else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", got
        server.shutdown()


def script(folder: Path, text: str) -> str:
    path = folder / "tell.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_webhook_gets_the_message_as_json(hook: tuple[str, list[Any]], caplog: pytest.LogCaptureFixture) -> None:
    place, got = hook
    Way("webhook", f"http://me:p%40ss@{place}/services/{SECRET}?key=1#part").tell(MESSAGE)
    [(path, headers, body)] = got
    assert path == f"/services/{SECRET}?key=1" and headers["content-type"] == "application/json"
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:p@ss"
    assert body == {
        "text": 'ablation-nano-1a2b is done on node7: 3 of 4 runs are done. RTD is "ahead" of BERT',
        "study": "ablation-nano-1a2b", "state": "done", "done": 3, "runs": 4, "answer": 'RTD is "ahead" of BERT',
        "host": "node7",
    }  # fmt: skip
    assert not caplog.records


@pytest.mark.parametrize(
    ("path", "words"),
    [("broken", "the server answered 500"), ("slow", "no answer within"), ("", "Connection refused")],
)
def test_a_webhook_that_fails_is_one_warning_without_the_address(
    path: str, words: str, hook: tuple[str, list[Any]], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(notification, "PATIENCE", 0.3 if path == "slow" else 10.0)
    place = hook[0]
    if not path:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = f"127.0.0.1:{taken.getsockname()[1]}"
    begun = time.monotonic()
    Way("webhook", f"http://me:word@{place}/{path}/{SECRET}").tell(MESSAGE)
    assert time.monotonic() - begun < 2.5
    [record] = caplog.records
    said = record.getMessage()
    assert words in said and SECRET not in said and "word" not in said and place not in said


def test_a_command_gets_the_message_in_its_environment_and_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_NOTIFY", "webhook=https://a.example/x")
    Way("command", f"env > {tmp_path}/env; cat > {tmp_path}/input; echo spoken").tell(MESSAGE)
    given = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if line[:9] == "WORKBENCH")
    assert given.items() >= {
        "WORKBENCH_STUDY": "ablation-nano-1a2b", "WORKBENCH_STATE": "done", "WORKBENCH_DONE": "3",
        "WORKBENCH_RUNS": "4", "WORKBENCH_ANSWER": 'RTD is "ahead" of BERT', "WORKBENCH_HOST": "node7",
    }.items()  # fmt: skip
    assert "WORKBENCH_NOTIFY" not in given
    assert (tmp_path / "input").read_text() == given["WORKBENCH_MESSAGE"] == MESSAGE.text
    assert capfd.readouterr().out == "" and not caplog.records  # standard output is for results


@pytest.mark.parametrize(
    ("text", "words"), [("exit 3", "it ended with exit code 3"), ("sleep 60 & wait", "no answer within")]
)
def test_a_command_that_fails_or_hangs_is_ended_and_one_warning(
    text: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification, "PATIENCE", 0.5 if "sleep" in text else 10.0)
    begun = time.monotonic()
    Way("command", script(tmp_path, text)).tell(MESSAGE)
    assert time.monotonic() - begun < 5
    [record] = caplog.records
    assert words in record.getMessage() and "tell.sh" not in record.getMessage()


def test_the_desktop_program_gets_title_and_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert way_of("desktop") is None and "neither notify-send nor osascript" in caplog.text
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/shown\n')
    program.chmod(0o755)
    way = way_of("desktop")
    assert way is not None
    way.tell(MESSAGE)
    assert (tmp_path / "shown").read_text().splitlines() == [
        "--", "workbench: ablation-nano-1a2b is done", MESSAGE.text
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["mail", "webhook", f"webhook=ftp://a.example/{SECRET}", f"webhook=http:///{SECRET}", "command=",
     f"webhook=https://a.example:port/{SECRET}", f"webhook=https://a.example/{SECRET}\n", "desktop=yes", ""],
)  # fmt: skip
def test_another_value_is_refused_without_its_secret(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--notify") as refused:
        way_of(text)
    assert SECRET not in str(refused.value)
    monkeypatch.setenv("WORKBENCH_NOTIFY", text)
    if text:
        with pytest.raises(InputError, match="WORKBENCH_NOTIFY"):
            way_of(None)


def test_the_environment_names_a_way_where_the_command_line_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_NOTIFY", raising=False)
    assert way_of(None) is None
    monkeypatch.setenv("WORKBENCH_NOTIFY", "webhook=https://a.example/x")
    assert way_of(None) == Way("webhook", "https://a.example/x")
    assert way_of("command=true") == Way("command", "true")


@pytest.mark.parametrize("form", [["--notify", "{}"], ["--notify={}"]])
def test_a_stored_command_names_the_kind_alone(form: list[str]) -> None:
    for value in (f"webhook=https://me:pw@a.example/{SECRET}?x=y", f"command=curl -H {SECRET} a.example"):
        words = ["workbench", "run", "ablation", *(word.format(value) for word in form), "--seeds", "3"]
        kept = redact_words(words)
        assert SECRET not in " ".join(kept) and "a.example" not in " ".join(kept)
        assert kept[-2:] == ["--seeds", "3"] and value.partition("=")[0] in " ".join(kept)


class Told:
    """A way that keeps its messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def tell(self, message: Message) -> None:
        self.messages.append(message)


def outcome(states: dict[str, str], root: Path) -> Outcome:
    return Outcome("ablation-nano-1a2b3c4d", {run: (state, "") for run, state in states.items()}, None, root)


@pytest.mark.parametrize(
    ("states", "state", "done"),
    [({"a": "done", "b": "done"}, "done", 2), ({"a": "done", "b": "diverged"}, "failed", 1),
     ({"a": "done", "b": "unfinished"}, "unfinished", 1)],
)  # fmt: skip
def test_the_state_is_that_of_the_runs(states: dict[str, str], state: str, done: int, tmp_path: Path) -> None:
    told: Any = Told()
    with notification.told(told, tmp_path, "ablation") as outcomes:
        outcomes.append(outcome(states, tmp_path))
    [message] = told.messages
    assert (message.state, message.done, message.runs, message.host) == (state, done, 2, socket.gethostname())


@pytest.mark.parametrize(
    ("error", "state"),
    [(KeyboardInterrupt(), "interrupted"), (Interrupted(15), "interrupted"), (OSError(28, "full"), "failed")],
)
def test_a_study_that_ends_early_is_told_by_what_it_recorded(error: BaseException, state: str, tmp_path: Path) -> None:
    root, told = tmp_path / "runs", Told()

    def study() -> Outcome:
        store = RunStore(root)
        specs = [made.spec_of(arm, 0, {"steps": 8}) for arm in ("rtd", "bert-mlm")]
        made.trained(store, specs[0], 8)
        made.recorded(store, specs)
        raise error

    with pytest.raises(type(error)), notification.told(told, root, "ablation"):  # type: ignore[arg-type]
        study()
    [message] = told.messages
    assert (message.study, message.state, message.done, message.runs) == ("ablation-nano-1a2b3c4d", state, 1, 2)


def test_wrong_input_at_the_start_tells_nobody_and_other_errors_do(tmp_path: Path) -> None:
    told = Told()
    for error in (InputError("no such task"), OSError(5, "the disk failed")):

        def study(error: Exception = error) -> Outcome:
            raise error

        with pytest.raises(type(error)), notification.told(told, tmp_path / "runs", "ablation"):  # type: ignore[arg-type]
            study()
    assert [message.text for message in told.messages] == [
        f"ablation is failed on {socket.gethostname()}: no run has begun."
    ]


def test_a_warning_is_all_that_an_unusable_command_leaves(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Way("command", f"/no/such/program {SECRET}").tell(MESSAGE)
    assert len(caplog.records) == 1 and SECRET not in caplog.text
