"""The process that talks to wandb, apart from the run: `python -m workbench.tracking`.

Without arguments it reads JSON lines from stdin, first who the run is, then rows, and reports problems as JSON lines on
stdout. With run folders as arguments it sends what they hold to wandb, for runs whose copy is missing or incomplete.
"""

from __future__ import annotations

import configparser
import contextlib
import http.client
import json
import netrc
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.errors import InputError
from workbench.store.atomic import free
from workbench.store.redact import redact
from workbench.store.run_directory import RunDir

ANSWER = 2.0  # seconds in which a server must answer a first question
INIT = 20.0  # seconds in which it must have taken the run
ORPHAN = 30.0  # seconds to finish in after the run's process has ended or closed the pipe
Say = Callable[[str], None]


def serve() -> None:
    """Follow one run until its pipe closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # meant for the run, which then closes the pipe
    source, report = os.fdopen(os.dup(0), "rb"), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # children of ours must not hold the pipes open, nor write into them
        os.dup2(null, standard)

    def tell(**message: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(report, (json.dumps(message) + "\n").encode())

    def lines() -> Iterator[dict[str, Any]]:
        for line in source:
            yield json.loads(line)
        last = threading.Timer(ORPHAN, os._exit, (1,))
        last.daemon = True
        last.start()

    messages = lines()
    hello = next(messages, None)
    if hello is not None:
        rows = (row for message in messages for row in message["rows"])
        copy(hello, rows, lambda problem: tell(problem=problem))
        tell(finished=True)
    os._exit(0)  # wandb's own goodbye waits for servers that never answer


def copy(hello: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], say: Say) -> None:
    """Send `rows` to wandb under the run's own name. Problems are told to `say`."""
    folder = Path(hello["folder"])
    later = _Later(_mode)  # asked for while wandb is imported, which takes as long
    try:
        (folder / "wandb").mkdir(exist_ok=True)
        os.environ.setdefault("WANDB_CACHE_DIR", str(folder / "wandb" / "cache"))
        os.environ.setdefault("WANDB_DATA_DIR", str(folder / "wandb" / "cache"))
        import wandb
    except (ImportError, OSError) as error:
        say(f"cannot begin ({error})")
        return
    mode, note = later.value()
    if note:
        say(note)
    try:
        run = _begin(wandb, hello, folder, mode)
    except Exception as error:
        say(f"the server did not take the run ({_short(error)}), so the copy is kept in {folder / 'wandb'}")
        try:
            run = _begin(wandb, hello, folder, "offline")
        except Exception as second:
            say(f"cannot begin ({_short(second)})")
            return
    try:
        for row in rows:
            run.log(_flat(row), step=row["step"])
        run.finish()
        if free(folder) < 1 << 16:
            say("the disk is full, so the copy may be incomplete")
    except Exception as error:
        say(f"stopped early ({_short(error)})")


class _Later:
    """The result of a function that runs meanwhile."""

    def __init__(self, ask: Callable[[], tuple[str, str]]) -> None:
        self._found = "offline", "nothing is known of its server, so the copy is kept in the run's folder"
        self._thread = threading.Thread(target=lambda: setattr(self, "_found", ask()), daemon=True)
        self._thread.start()

    def value(self) -> tuple[str, str]:
        self._thread.join()
        return self._found


def _begin(wandb: Any, hello: Mapping[str, Any], folder: Path, mode: str) -> Any:
    quiet = {
        "console": "off", "silent": True, "init_timeout": INIT, "disable_git": True, "disable_code": True,
        # what wandb gathers by itself (arguments, packages, host) stays out: env.json has an allow-list of it
        "x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True, "x_save_requirements": False,
    }  # fmt: skip
    known = {name: value for name, value in quiet.items() if name in wandb.Settings.model_fields}
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", "workbench"),
        id=hello["name"],
        name=hello["name"],
        config=dict(hello["config"]),
        dir=str(folder),
        mode=mode,
        resume="allow" if mode == "online" else None,
        settings=wandb.Settings(**known),
    )


def _mode() -> tuple[str, str]:
    """ "online" when there is a login and its server answers, else "offline" and why.

    What WANDB_MODE says goes first.
    """
    chosen = os.environ.get("WANDB_MODE")
    if chosen in ("offline", "disabled", "dryrun"):
        return "offline" if chosen == "dryrun" else chosen, ""
    url = _address()
    name = urlsplit(url).hostname
    if not _login(url):
        return "offline", f"there is no login for {name} (`wandb login`), so the copy is kept in the run's folder"
    try:
        urllib.request.urlopen(url, timeout=ANSWER).close()
    except urllib.error.HTTPError:
        pass  # an answer, whatever it is
    except (OSError, ValueError, http.client.HTTPException) as error:
        return "offline", f"{name} does not answer ({_short(error)}), so the copy is kept in the run's folder"
    return "online", ""


def _address() -> str:
    """The server: WANDB_BASE_URL, what `wandb login --host` wrote down, or the public one."""
    settings = configparser.ConfigParser(interpolation=None)
    home = Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
        settings.read(home / "settings")
    written = settings.get("default", "base_url", fallback="https://api.wandb.ai")
    return os.environ.get("WANDB_BASE_URL") or written


def _login(url: str) -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    with contextlib.suppress(OSError, netrc.NetrcParseError, RuntimeError):
        return netrc.netrc(os.environ.get("NETRC")).authenticators(urlsplit(url).netloc) is not None
    return False


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """{"flops": {"paper": 1}} is {"flops/paper": 1}; what is undefined is left out."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        flat |= {f"{key}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return {key: value for key, value in flat.items() if value is not None}


def _short(error: BaseException) -> str:
    return redact(" ".join(f"{type(error).__name__}: {error}".split()))[:200]


def send(folder: Path) -> None:
    """Copy a run that is already on disk. Raises InputError when it cannot be read."""
    run = RunDir(folder.resolve())
    hello = {"folder": str(run.path), "name": run.run_id, "config": run.spec().model_dump(mode="json")}
    problems: list[str] = []
    copy(hello, run.metrics(), problems.append)
    sys.stderr.write("".join(f"{run.run_id}: {problem}\n" for problem in problems or ["sent"]))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    for word in sys.argv[1:]:
        try:
            send(Path(word))
        except InputError as error:
            sys.exit(str(error))
    sys.stderr.flush()
    os._exit(0)
