"""`--notify`: tell a person when a study ends, fails or is interrupted, on the desktop, by a webhook or by a command.

The message holds the name of the study, its state, how many runs are done, the answer and the name of this machine. The
address of a webhook may be a secret, so it is kept in no file and printed nowhere, and neither is a command.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from workbench.errors import InputError, Interrupted
from workbench.store.run_directory import now

if TYPE_CHECKING:
    from workbench.execution.study_runner import Outcome

log = logging.getLogger("workbench")
VARIABLE = "WORKBENCH_NOTIFY"  # environment variable with the value of --notify
PATIENCE = 10.0  # seconds for a webhook, a command or a desktop
OPTION = "--notify"
APPLESCRIPT = "on run words\ndisplay notification (item 2 of words) with title (item 1 of words)\nend run"


@dataclass(frozen=True)
class Message:
    """The facts of a notification: `done` of `runs` are done; `answer` is the sentence of the report, "" if none."""

    study: str
    state: str
    done: int
    runs: int
    answer: str
    host: str

    @property
    def text(self) -> str:
        """The message in one or two sentences."""
        count = f"{self.done} of {self.runs} runs are done" if self.runs else "no run has begun"
        return f"{self.study} is {self.state} on {self.host}: {count}. {self.answer}".rstrip()


@dataclass(frozen=True)
class Way:
    """How a person is told: `kind` is desktop, webhook or command, and `place` the address or the command."""

    kind: str
    place: str = ""

    def tell(self, message: Message) -> None:
        """Send a message. A failure is one warning, which names neither the address nor the command."""
        send = {"webhook": _post, "command": _run, "desktop": _show}[self.kind]
        try:
            send(self.place, message)
        except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
            log.warning("%s %s: the message was not delivered: %s", OPTION, self.kind, _reason(error))


def way_of(text: str | None) -> Way | None:
    """Return how a person is told, by --notify or the environment variable; None without both. Raises InputError."""
    given = os.environ.get(VARIABLE, "") if text is None else text
    where = OPTION if text is not None else VARIABLE
    kind, _, place = given.partition("=")  # messages name the kind alone, since the place may be secret
    if not given and text is None:
        return None
    if kind == "webhook":
        try:
            parts = urlsplit(place)
            usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            usable = False
        if not usable or not place.isprintable() or " " in place:
            raise InputError(f"{where} webhook=... is no address that begins with http:// or https:// and has a host")
    elif kind == "command":
        if not place.strip() or "\0" in place:
            raise InputError(f"{where} command=... names no command; give one, as in command='mail -s study me'")
    elif given != "desktop":
        raise InputError(f"{where} takes desktop, webhook=URL or command=PROGRAM")
    elif not _desktop_program():
        log.warning(
            "%s desktop: neither notify-send nor osascript is installed here, so nothing will be shown; "
            "give webhook=URL or command=PROGRAM", where,
        )  # fmt: skip
        return None
    return Way(kind, place)


@contextlib.contextmanager
def told(way: Way, root: Path, experiment: str) -> Iterator[list[Outcome]]:
    """Tell a person of the end of the study that the block carries out in the store `root`; it appends its outcome.

    Nobody is told of wrong input that is found before any run is recorded.
    """
    outcomes: list[Outcome] = []
    begun = now()
    try:
        yield outcomes
    except BaseException as error:
        message = _stopped(root, experiment, begun, isinstance(error, KeyboardInterrupt | Interrupted))
        if message.runs or not isinstance(error, InputError):
            way.tell(message)
        raise
    way.tell(message_of(outcomes[0]))


def message_of(outcome: Outcome) -> Message:
    """Return the message on a study that was carried out to its report."""
    states = Counter(state for state, _ in outcome.runs.values())
    broken = states["failed"] + states["diverged"] + states["damaged"]
    finished = states["done"] + states["trained"] == len(outcome.runs)
    state = "done" if finished else "failed" if broken else "unfinished"
    return _message(outcome.record, state, states, outcome.verdict)


def _message(study: str, state: str, states: Counter[str], verdict: Mapping[str, Any] | None) -> Message:
    from workbench.report import verdict_line
    from workbench.report.load.run_files import FINISHED

    done = sum(states[each] for each in FINISHED)
    return Message(study, state, done, states.total(), verdict_line(verdict or {}), socket.gethostname())


def _stopped(root: Path, experiment: str, begun: str, interrupted: bool) -> Message:
    """Return the message on a study that ended early, by the record that it has written since it was begun."""
    from workbench.report.load import runs_table
    from workbench.store.run_store import RunStore

    state = "interrupted" if interrupted else "failed"
    with contextlib.suppress(InputError, OSError):
        store = RunStore.existing(root)
        records = [each for each in store.experiments() if each.experiment == experiment and each.updated >= begun]
        if records:
            record = max(records, key=lambda each: each.updated)
            return _message(record.name, state, runs_table.record_states(store, record), record.verdict)
    return _message(experiment, state, Counter(), None)


def _post(address: str, message: Message) -> None:
    """Send a message as JSON, in which `text` is the field that chat services show."""
    parts = urlsplit(address)
    body = json.dumps({"text": message.text, **asdict(message)}).encode()
    headers = {"content-type": "application/json", "user-agent": "workbench"}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
    request = urllib.request.Request(plain, body, headers)
    errors: list[BaseException] = []

    def send() -> None:
        try:
            urllib.request.urlopen(request, timeout=PATIENCE).close()
        except Exception as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            errors.append(error)

    thread = threading.Thread(target=send, daemon=True)  # a socket's time limit holds for each packet alone
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        raise TimeoutError
    if errors:
        raise errors[0] if isinstance(errors[0], OSError | ValueError | http.client.HTTPException) else OSError()


def _run(command: str, message: Message) -> None:
    facts = {f"WORKBENCH_{key.upper()}": str(value) for key, value in asdict(message).items()}
    others = {key: value for key, value in os.environ.items() if key != VARIABLE}
    _start(["/bin/sh", "-c", command], others | facts | {"WORKBENCH_MESSAGE": message.text}, message.text)


def _show(_: str, message: Message) -> None:
    title = f"workbench: {message.study} is {message.state}"
    words = [title, message.text]
    program = _desktop_program()
    _start([program, "-e", APPLESCRIPT, *words] if program.endswith("osascript") else [program, "--", *words])


def _desktop_program() -> str:
    return shutil.which("osascript" if sys.platform == "darwin" else "notify-send") or ""


def _start(words: list[str], environment: dict[str, str] | None = None, given: str = "") -> None:
    """Run a program, and end it with its children after PATIENCE seconds. Raises SubprocessError if it fails."""
    # A session of its own, so that Ctrl-C does not end it; results alone go to standard output.
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=sys.__stderr__, env=environment, start_new_session=True
    )
    try:
        process.communicate(given.encode(), PATIENCE)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "")


def _reason(error: BaseException) -> str:
    """Return why a message was not delivered, without the address or command that most errors name."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, TimeoutError | subprocess.TimeoutExpired):
        return f"no answer within {PATIENCE:.0f} seconds"
    if isinstance(error, subprocess.CalledProcessError):
        return f"it ended with exit code {error.returncode}"
    return getattr(error, "strerror", None) or type(error).__name__
