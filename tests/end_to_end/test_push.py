"""`workbench push RUN OWNER/NAME` against a local stand-in of the hub's HTTP interface."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from .conftest import SETS, Command, environment

TOKEN = "hf_" + "a" * 30


class Hub(ThreadingHTTPServer):
    """Repositories by name, each with its files; only requests with the token are answered."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.stored: dict[str, bytes] = {}
        self.done: dict[str, Any] = {}  # keys of the answer to a commit that are to be other than the hub's
        self.address = f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    """The requests of an upload: make a repository, ask how to send each file, send large ones, commit."""

    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, {"id": self.path, "siblings": [], "sha": "0" * 40})

    def do_PUT(self) -> None:
        self.server.stored[self.path.rpartition("/")[2]] = self._body()
        self._answer(200, {})

    def do_POST(self) -> None:
        body = self._body()
        if self.headers.get("Authorization") not in (f"Bearer {TOKEN}", None) or (
            self.path.startswith("/api") and "validate" not in self.path and "Authorization" not in self.headers
        ):
            self._answer(401, {"error": "Invalid credentials"})
        elif self.path == "/api/repos/create":
            raw = json.loads(body)
            name = f"{raw['organization']}/{raw['name']}" if raw.get("organization") else raw["name"]
            self.server.repositories.setdefault(name, {})
            self.server.private[name] = raw.get("private") or raw.get("visibility") == "private"
            self._answer(200, {"url": f"{self.server.address}/{name}", "name": name, "id": "1"})
        elif "/preupload/" in self.path:
            modes = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith("safetensors") else "regular",
                 "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]  # fmt: skip
            self._answer(200, {"files": modes})
        elif self.path.endswith("/objects/batch"):
            objects = [
                {**each, "actions": {"upload": {"href": f"{self.server.address}/lfs/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            self._answer(200, {"transfer": "basic", "objects": objects}, "application/vnd.git-lfs+json")
        elif "/commit/" in self.path:
            self._commit(self.path.split("/commit/")[0].removeprefix("/api/models/"), body)
        else:
            self._answer(200, {})

    def _commit(self, name: str, body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            value: dict[str, Any] = line["value"]
            if line["key"] == "file":
                self.server.repositories[name][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.repositories[name][value["path"]] = self.server.stored[value["oid"]]
        done = {"commitUrl": f"{self.server.address}/{name}/commit/{'0' * 40}", "commitOid": "0" * 40, "success": True}
        self._answer(200, done | self.server.done)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, code: int, value: dict[str, Any], kind: str = "application/json") -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def store(text: Path, workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("push")
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", "none", "--budget", "steps=2"]
    done = workbench(*words, *SETS, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def push(store: Path, cache: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Push in a new process, since the hub's client reads its address when it is loaded."""
    paths = {"PYTHONPATH": str(Path(__file__).parents[2]), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    return subprocess.run(
        [sys.executable, "-m", "workbench", "push", *words], env=environment(cache) | paths | more, cwd=store,
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_both_models_arrive_whole(store: Path, cache: Path, hub: Hub, workbench: Command, tmp_path: Path) -> None:
    [run] = (store / "runs").glob("rtd-*")
    done = push(store, cache, run.name, "owner/mine", "--private", HF_ENDPOINT=hub.address, HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    names = ["owner/mine-discriminator", "owner/mine-generator"]
    assert done.stdout.split() == [f"{hub.address}/{name}" for name in names]
    assert sorted(hub.repositories) == names and all(hub.private.values())
    assert workbench("export", run.name, "--checkpoint", tmp_path / "m", cwd=store).returncode == 0
    for name in names:
        local = {file.name: file.read_bytes() for file in (tmp_path / "m" / name.rpartition("-")[2]).iterdir()}
        held = {file: content for file, content in hub.repositories[name].items() if file != ".gitattributes"}
        loads = f'from_pretrained("{name}")'.encode()
        assert held["README.md"].count(loads) == 2  # the card of a model on the hub loads it from there
        held["README.md"] = held["README.md"].replace(loads, b'from_pretrained(".")')
        assert {file: hashlib.sha256(held[file]).hexdigest() for file in held} == {
            file: hashlib.sha256(local[file]).hexdigest() for file in local
        }


def test_a_dry_run_prints_names_files_and_cards_and_sends_nothing(store: Path, cache: Path, hub: Hub) -> None:
    [run] = (store / "runs").glob("rtd-*")
    words = ("--dry-run", "--license", "cc-by-sa-4.0", "--language", "da,en")
    done = push(store, cache, run.name, "owner/mine", *words, HF_ENDPOINT=hub.address, HF_TOKEN="", HF_HUB_OFFLINE="1")
    assert done.returncode == 0 and not hub.repositories, done.stderr
    first, second = re.split(r"(?=^owner/mine-\w+ \(public if it is new\))", done.stdout, flags=re.MULTILINE)[1:]
    for name, text in (("owner/mine-discriminator", first), ("owner/mine-generator", second)):
        listing, _, card = text.partition("\n\n---\n")
        assert listing.startswith(f"{name} (public if it is new) would get {listing.count(' bytes  ')} files:")
        assert re.search(r"^ +[\d,]+ bytes  model\.safetensors$", listing, flags=re.MULTILINE)
        data = ModelCard(f"---\n{card}").data
        assert data.get("license") == "cc-by-sa-4.0" and data.get("language") == ["da", "en"]
        assert f'from_pretrained("{name}")' in card


REFUSED: dict[str, tuple[list[str], str]] = {
    "a wrong token": (["owner/mine"], "could not be uploaded"),
    "no owner": (["mine"], "give OWNER/NAME"),
    "a bad name": (["owner/mi ne"], "give OWNER/NAME"),
    "a licence by its title": (["owner/mine", "--license", "MIT License"], "not the hub's identifier of a licence"),
    "a language by its name": (["owner/mine", "--language", "Danish", "--dry-run"], "is not a code of a language"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_hub_refuses_is_one_sentence(case: str, store: Path, cache: Path, hub: Hub) -> None:
    words, told = REFUSED[case]
    [run] = (store / "runs").glob("rtd-*")
    done = push(store, cache, run.name, *words, HF_ENDPOINT=hub.address, HF_TOKEN="hf_wrong")
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not hub.repositories


def test_a_hub_that_cannot_be_reached_is_one_sentence(store: Path, cache: Path) -> None:
    [run] = (store / "runs").glob("rtd-*")
    done = push(store, cache, run.name, "owner/mine", HF_ENDPOINT="http://127.0.0.1:9", HF_TOKEN=TOKEN)
    assert done.returncode == 2 and "could not be uploaded" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["not an address", None, 7])
def test_a_malformed_answer_is_one_sentence(url: object, store: Path, cache: Path, hub: Hub) -> None:
    hub.done = {"commitUrl": url}
    [run] = (store / "runs").glob("rtd-*")
    done = push(store, cache, run.name, "owner/mine", HF_ENDPOINT=hub.address, HF_TOKEN=TOKEN)
    assert done.returncode == 2 and "not a model hub's" in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
