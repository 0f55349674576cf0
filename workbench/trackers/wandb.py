"""Weights & Biases, online if there is a login and its server answers, else offline in the run's folder.

WANDB_PROJECT, WANDB_BASE_URL, WANDB_ENTITY and WANDB_MODE have their usual meaning.

A run that is sent or synced again replaces what the server has under its name (wandb#5865), so every copy must hold the
whole run. An offline copy is therefore written aside, and put in place of the former one, in the same folder and by one
rename, when it has all rows that were there at its beginning. At every moment there is one folder to sync for a run.
"""

from __future__ import annotations

import configparser
import contextlib
import http.client
import netrc
import os
import shutil
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.trackers import Row, Score, TrackedRun, missing, short

ANSWER = 2.0  # seconds within which a server must answer the first request
INIT = 20.0  # seconds within which it must accept the run
NAME, TAG = 128, 64  # letters that names of groups and tags may have
ASIDE = ".new-"  # begins the name of the folder in which a copy is written first
available = partial(missing, "wandb")


def open(run: TrackedRun) -> Copy:
    """Begin the copy of a run. Raises OSError or an error of wandb."""
    home = run.folder / "wandb"
    home.mkdir(exist_ok=True)
    for leftover in home.glob(f"{ASIDE}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        if os.environ.get(name, "").endswith("/wandb/cache") or name not in os.environ:  # of the run before
            os.environ[name] = str(home / "cache")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    mode, note = "offline", "the state of its server is unknown, so the copy is kept in the run's folder"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_mode)  # while wandb is imported, which takes as long
        import wandb

        with contextlib.suppress(Exception):
            mode, note = asked.result()
    if note:
        run.say(note)
    try:
        return Copy(wandb, run, mode)
    except Exception as error:
        if mode != "online":
            raise
        run.say(f"the server did not accept the run ({short(error)}), so the copy is kept in the run's folder")
        return Copy(wandb, run, "offline")


class Copy:
    """The open copy of one run."""

    def __init__(self, wandb: Any, run: TrackedRun, mode: str) -> None:
        self._wandb, self._tracked = wandb, run
        self._home = run.folder / "wandb"
        self._aside, self._placed = self._home / f"{ASIDE}{uuid.uuid4().hex[:8]}", False
        self._aside.mkdir()
        self._run = self._begun(mode)
        if run.reached == 0:
            self._place()

    def _begun(self, mode: str) -> Any:
        quiet = {
            "console": "off", "silent": True, "init_timeout": INIT, "disable_git": True, "disable_code": True,
            # what wandb collects by itself (arguments, packages, host) is left out: env.json holds an allowed part
            "x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True,
            "x_save_requirements": False,
        }  # fmt: skip
        known = {name: value for name, value in quiet.items() if name in self._wandb.Settings.model_fields}
        run = self._tracked
        return self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "workbench"),
            id=run.run_id,
            name=run.run_id,
            group=run.study[:NAME] or None,
            job_type=run.job_type,
            tags=[tag[:TAG] for tag in run.tags],
            notes=run.notes,
            config=dict(run.config),
            dir=str(self._aside),
            mode=mode,
            settings=self._wandb.Settings(**known),
        )

    def log(self, rows: Sequence[Row]) -> None:
        """Add rows; once all that were there at the beginning are added, the copy takes its place."""
        for row in rows:
            self._run.log(dict(row), step=int(row["step"]))
        if rows and rows[-1]["step"] >= self._tracked.reached:
            self._place()

    def finish(self, scores: Sequence[Score], files: Mapping[str, Path]) -> None:
        """Add the summary, tags and notes of the end, and the files as artifacts."""
        run = self._tracked
        self._run.tags, self._run.notes = [tag[:TAG] for tag in run.tags], run.notes
        self._run.summary.update({
            "state": run.state,
            **{each.name if each.step is None else f"{each.name}/step {each.step}": each.value for each in scores},
        })  # fmt: skip
        for kind, path in files.items():
            name, what = (run.run_id, "model") if kind == "encoder" else (f"{run.study}-report", kind)
            artifact = self._wandb.Artifact(name[-NAME:], type=what)
            artifact.add_dir(str(path)) if path.is_dir() else artifact.add_file(str(path))
            self._run.log_artifact(artifact)
        self._run.finish(exit_code=int(run.state != "done"))
        self._place()
        shutil.rmtree(self._aside, ignore_errors=True)

    def _place(self) -> None:
        """Put the copy in place of all former ones; wandb goes on writing to the same open file."""
        if self._placed or self._run.settings.mode == "disabled":
            return
        written = Path(self._run.settings.sync_file)
        for _ in range(100):  # the file is made by a process of wandb
            if written.exists():
                break
            time.sleep(0.05)
        kind = written.parent.name.partition("run-")[0]  # "offline-" or ""
        former = [*self._home.glob(f"*run-*-{self._tracked.run_id}")]
        same = [folder for folder in former if folder.name.partition("run-")[0] == kind]
        folder = same[0] if same else self._home / written.parent.name
        (folder / "files").mkdir(parents=True, exist_ok=True)  # which `wandb sync` writes into
        (folder / f"{written.name}.synced").unlink(missing_ok=True)  # else `wandb sync` leaves the new copy out
        os.replace(written, folder / written.name)
        for other in former:
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        for link in self._home.iterdir():
            if link.is_symlink():
                link.unlink()
        self._placed = True


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
        return "offline", f"{name} does not answer ({short(error)}), so the copy is kept in the run's folder"
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
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    with contextlib.suppress(OSError, netrc.NetrcParseError, RuntimeError):
        return netrc.netrc(os.environ.get("NETRC")).authenticators(urlsplit(url).netloc) is not None
    return False
