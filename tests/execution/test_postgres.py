"""Trials in PostgreSQL: the driver that is taken, what is said without one, and a real database where there is one."""

from __future__ import annotations

import importlib.util
import logging
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from workbench.errors import InputError
from workbench.execution.search import Mirror, Search, Trial, database_address, open_storage
from workbench.spec.experiment import Range

PASSWORD = "planted-pw"
SPACE = {"optim.lr": Range(1e-4, 1e-2, log=True, whole=False)}


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_psycopg_is_the_driver_of_an_address_that_names_none(scheme: str) -> None:
    assert database_address(f"{scheme}://me@host/db?x=1") == "postgresql+psycopg://me@host/db?x=1"


@pytest.mark.parametrize("place", ["postgresql+asyncpg://h/db", "mysql://h/db", "sqlite:///trials.db"])
def test_other_addresses_stay_as_they_are(place: str) -> None:
    assert database_address(place) == place


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
def test_a_missing_driver_is_named_with_what_installs_it(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError) as caught:
        open_storage(Search(SPACE, 2, storage=f"{scheme}://me:{PASSWORD}@127.0.0.1:1/db"))
    said = str(caught.value)
    assert "pip install 'encoder-workbench[postgres]'" in said and "\n" not in said and PASSWORD not in said


@pytest.mark.parametrize("scheme, module", [("mysql", "MySQLdb"), ("mysql+pymysql", "pymysql")])
def test_a_missing_driver_of_another_database_is_named(
    scheme: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"the Python module '{module}'$"):
        open_storage(Search(SPACE, 2, storage=f"{scheme}://me@127.0.0.1:1/db"))


def test_a_file_that_is_no_database_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "trials.db").write_text("no database" * 100)
    with pytest.raises(InputError, match=r"--storage sqlite:.* cannot be opened: ") as caught:
        open_storage(Search(SPACE, 2, storage=f"sqlite:///{tmp_path / 'trials.db'}"))
    assert "\n" not in str(caught.value)


class Server:
    """A PostgreSQL server at an address, which can be killed and started again."""

    def __init__(self, address: str, control: list[str], options: str, quiet: dict[str, Any]) -> None:
        self.address, self.control, self.options, self.quiet = address, control, options, quiet

    def start(self) -> None:
        subprocess.run([*self.control, "-o", self.options, "start"], **self.quiet)

    def kill(self) -> None:
        """Stop without a shutdown: connections break, and the next start recovers from the log."""
        subprocess.run([*self.control, "-m", "immediate", "stop"], **self.quiet)


@pytest.fixture(scope="module")
def database(server: Server) -> str:
    """The address of an empty PostgreSQL of our own, on the loopback interface."""
    return server.address


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    programs = Path(shutil.which("initdb") or (found[-1] if found else "/nowhere/initdb")).parent
    if not (programs / "initdb").exists():
        pytest.skip("PostgreSQL is not installed here (initdb is in no known place)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed here; it is part of the extras dev and postgres")
    account: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="workbench-postgres-") as name, socket.socket() as free:
        folder = Path(name)
        (folder / "password").write_text(PASSWORD)
        if account:
            for path in (folder, folder / "password"):
                shutil.chown(path, "postgres", "postgres")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        data, log = str(folder / "data"), str(folder / "log")
        make = [programs / "initdb", "-D", data, "-N", "-A", "scram-sha-256", "-U", "me",
                f"--pwfile={folder / 'password'}"]  # fmt: skip
        options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder}"
        control = [str(programs / "pg_ctl"), "-D", data, "-l", log, "-w"]
        quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "cwd": "/", **account}
        subprocess.run(make, **quiet)
        server = Server(f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/postgres", control, options, quiet)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def mirror(search: Search, folder: Path, record: str = "tune-1") -> Mirror:
    return Mirror(SimpleNamespace(record=record, store=SimpleNamespace(root=folder)), search)  # type: ignore[arg-type]


def trial(number: int, score: float) -> Trial:
    return Trial("rtd", number, {"optim.lr": 1e-3 * (number + 1)}, (0,), (f"run-{number}",), score)


@pytest.mark.slow
def test_trials_are_kept_in_a_real_database(database: str, tmp_path: Path) -> None:
    search = Search(SPACE, 2, storage=database)
    open_storage(search)
    mirror(search, tmp_path).show([trial(0, 50.0)])
    mirror(search, tmp_path).show([trial(0, 50.0), trial(1, 60.0)])  # what is there already is not written again
    storage = optuna.storages.RDBStorage(database_address(database))
    study = optuna.load_study(study_name="tune-1: rtd", storage=storage)
    assert [found.value for found in study.get_trials()] == [50.0, 60.0] and study.best_params == {"optim.lr": 2e-3}
    storage.remove_session()
    storage.engine.dispose()


@pytest.mark.slow
def test_a_password_that_is_refused_is_not_shown(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    search = Search(SPACE, 2, storage=database.replace(PASSWORD, "wrong-pw"))
    with pytest.raises(InputError, match="password authentication failed") as caught:
        open_storage(search)
    assert "wrong-pw" not in str(caught.value) and "\n" not in str(caught.value)
    with caplog.at_level(logging.WARNING, logger="workbench"):
        mirror(search, tmp_path).show([trial(0, 50.0)])  # as where the database goes away during a search
    assert "was not written" in caplog.text and "wrong-pw" not in caplog.text


@pytest.mark.slow
def test_the_password_can_be_in_the_environment_or_in_a_file(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ways that the refusal of an address with a password names."""
    without = database.replace(f":{PASSWORD}@", "@")
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        open_storage(Search(SPACE, 2, storage=without))
    (tmp_path / "pgpass").write_text(f"*:*:*:me:{PASSWORD}\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    open_storage(Search(SPACE, 2, storage=without))


def show_one_by_one(search: Search, folder: Path, count: int) -> None:
    """Add one trial more in each call, as a search does after each of its rounds."""
    trials = [trial(number, 50.0 + number) for number in range(count)]
    for number in range(count):
        mirror(search, folder, "drill").show(trials[: number + 1], patience=60.0 if number == count - 1 else 0.0)
        time.sleep(0.5)  # as long as a round of runs would take at least


@pytest.mark.slow
def test_eight_equal_searches_and_a_database_that_is_killed_lose_nothing_and_add_nothing_twice(
    server: Server, tmp_path: Path
) -> None:
    search = Search(SPACE, 6, storage=f"{server.address}")
    forked = multiprocessing.get_context("forkserver")
    searches = [forked.Process(target=show_one_by_one, args=(search, tmp_path, 6)) for _ in range(8)]
    for each in searches:
        each.start()
    for pause in (4.0, 1.0, 3.0):
        time.sleep(pause)
        server.kill()
        time.sleep(pause / 2)
        server.start()
    for each in searches:
        each.join(timeout=180)
    assert [each.exitcode for each in searches] == [0] * 8
    storage = optuna.storages.RDBStorage(database_address(search.storage or ""))
    found = optuna.load_study(study_name="drill: rtd", storage=storage).get_trials()
    assert sorted(each.user_attrs["trial"] for each in found) == list(range(6))
    assert all(each.value == 50.0 + each.user_attrs["trial"] for each in found)
    storage.remove_session()
    storage.engine.dispose()
