"""Process that copies a run's metrics to wandb, apart from the run: `python -m workbench.trackers`.

Without arguments it reads JSON lines from stdin, first a description of the run, then rows, and reports problems as
JSON lines on stdout. With run folders as arguments it sends their metrics to wandb, for runs whose copy is missing
or incomplete.
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

from workbench import progress
from workbench.errors import DamagedRun, InputError
from workbench.store.atomic import free
from workbench.store.redact import redact, redact_addresses
from workbench.store.run_directory import RunDir

ANSWER = 2.0  # seconds within which a server must answer the first request
INIT = 20.0  # seconds within which it must accept the run
ORPHAN = 30.0  # seconds for finishing after the run's process has ended or closed the pipe
Say = Callable[[str], None]


def serve() -> None:
    """Copy the rows of one run until its pipe is closed.

    Raises InputError if the first line is not the description of a run, which may be missing if the run was killed.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # these signals are meant for the run, which then closes the pipe
    source, report = os.fdopen(os.dup(0), "rb"), os.dup(1)
    header: Any = None
    with contextlib.suppress(ValueError):
        header = None if source.isatty() else json.loads(source.readline() or "null")
    if not _describes_a_run(header):
        raise InputError(
            "standard input does not describe a run, as `workbench run --track wandb` does for this process; to send "
            "the metrics of runs again, name their folders: python -m workbench.trackers RUN..."
        )
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # child processes must neither keep the pipes open nor write into them
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

    rows = (row for message in lines() for row in message["rows"])
    copy(header, rows, lambda problem: tell(problem=problem))
    tell(finished=True)
    os._exit(0)  # at a normal exit wandb waits for servers that never answer


def _describes_a_run(header: Any) -> bool:
    """Return whether a value has folder, name and settings of a run."""
    kinds = {"folder": str, "name": str, "config": dict}
    return isinstance(header, dict) and all(isinstance(header.get(key), kind) for key, kind in kinds.items())


def copy(header: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], say: Say) -> None:
    """Send `rows` to wandb under the run's id; report problems by `say`."""
    folder = Path(header["folder"])
    later = _Later(_mode)  # computed while wandb is imported, which takes as long
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
        run = _begin(wandb, header, folder, mode)
    except Exception as error:
        say(f"the server did not accept the run ({_short(error)}), so the copy is kept in {folder / 'wandb'}")
        try:
            run = _begin(wandb, header, folder, "offline")
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
    """Result of a function that is computed in a thread."""

    def __init__(self, compute: Callable[[], tuple[str, str]]) -> None:
        self._result = "offline", "the state of its server is unknown, so the copy is kept in the run's folder"
        self._thread = threading.Thread(target=lambda: setattr(self, "_result", compute()), daemon=True)
        self._thread.start()

    def value(self) -> tuple[str, str]:
        """Wait for the result and return it."""
        self._thread.join()
        return self._result


def _begin(wandb: Any, header: Mapping[str, Any], folder: Path, mode: str) -> Any:
    """Start a run of wandb in this mode and return it."""
    quiet = {
        "console": "off", "silent": True, "init_timeout": INIT, "disable_git": True, "disable_code": True,
        # what wandb collects by itself (arguments, packages, host) is left out: env.json holds an allowed part of it
        "x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True, "x_save_requirements": False,
    }  # fmt: skip
    known = {name: value for name, value in quiet.items() if name in wandb.Settings.model_fields}
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", "workbench"),
        id=header["name"],
        name=header["name"],
        config=json.loads(redact_addresses(json.dumps(header["config"]))),
        dir=str(folder),
        mode=mode,
        resume="allow" if mode == "online" else None,
        settings=wandb.Settings(**known),
    )


def _mode() -> tuple[str, str]:
    """Return wandb's mode and the reason for it: "online" if there is a login and its server answers, else "offline".

    WANDB_MODE has precedence.
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
        pass  # any answer shows that the server can be reached
    except (OSError, ValueError, http.client.HTTPException) as error:
        return "offline", f"{name} does not answer ({_short(error)}), so the copy is kept in the run's folder"
    return "online", ""


def _address() -> str:
    """Return the server's address: WANDB_BASE_URL, the one that `wandb login --host` stored, or the public one."""
    settings = configparser.ConfigParser(interpolation=None)
    home = Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
        settings.read(home / "settings")
    written = settings.get("default", "base_url", fallback="https://api.wandb.ai")
    return os.environ.get("WANDB_BASE_URL") or written


def _login(url: str) -> bool:
    """Return whether there is a login for this server."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    with contextlib.suppress(OSError, netrc.NetrcParseError, RuntimeError):
        return netrc.netrc(os.environ.get("NETRC")).authenticators(urlsplit(url).netloc) is not None
    return False


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"flops/paper": 1} for {"flops": {"paper": 1}}, without undefined values."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        flat |= {f"{key}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return {key: value for key, value in flat.items() if value is not None}


def _short(error: BaseException) -> str:
    """Return type and message of an error on one line, with secrets removed."""
    return redact(" ".join(f"{type(error).__name__}: {error}".split()))[:200]


def send(folder: Path) -> None:
    """Copy the metrics of a run on disk to wandb. Raises InputError if the run cannot be read."""
    if not folder.is_dir():
        raise InputError(f"{str(folder)[:200]} is not the folder of a run; name one, such as runs/NAME")
    run = RunDir(folder.resolve())
    header = {"folder": str(run.path), "name": run.run_id, "config": run.spec().model_dump(mode="json")}
    problems: list[str] = []
    copy(header, run.metrics(), problems.append)
    for problem in problems or ["sent"]:
        progress.say(f"{run.run_id}: {problem}")


if __name__ == "__main__":
    try:
        if len(sys.argv) == 1:
            serve()
        for word in sys.argv[1:]:
            send(Path(word))
    except (InputError, OSError) as error:
        progress.say(str(error))
        sys.exit(1 if isinstance(error, DamagedRun) else 2)
    os._exit(0)
