"""`workbench export RUN --checkpoint DIR` and `workbench push`: models with their heads, here and on a hub."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from workbench.tasks.common.sentence_scorers import put_together

from .conftest import Command, environment


def only(store: Path, objective: str) -> Path:
    [run] = (store / "runs").glob(f"{objective}-*")
    return run


@pytest.mark.parametrize("objective", ["rtd", "electra-15"])
def test_discriminator_and_generator_compute_what_the_run_computes(
    objective: str, store: Path, workbench: Command, tmp_path: Path
) -> None:
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    run = only(store, objective)
    done = workbench("export", run.name, "--checkpoint", tmp_path / "out" / "models", cwd=store, ends=0)
    assert done.stdout.split() == [str(tmp_path / "out/models/discriminator"), str(tmp_path / "out/models/generator")]
    spec, model = put_together(run / "encoder", "cpu")
    objective_model: Any = model
    ids = torch.randint(5, spec.encoder.vocab, (3, 20), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        for name, kind, body, head in (
            ("discriminator", ElectraForPreTraining, objective_model.encoder, objective_model.head),
            ("generator", ElectraForMaskedLM, objective_model.generator.body, objective_model.generator.head),
        ):
            loaded: Any = kind
            loaded, report = loaded.from_pretrained(tmp_path / "out/models" / name, output_loading_info=True)
            assert not report["missing_keys"] and not report["unexpected_keys"], "a head would be random"
            assert torch.allclose(loaded.eval()(input_ids=ids).logits, head(body(ids)), atol=1e-4)


def test_the_generator_fills_masks_and_cards_have_text_compute_and_scores(
    store: Path, workbench: Command, tmp_path: Path
) -> None:
    from transformers import pipeline

    words = ("export", only(store, "rtd").name, "--checkpoint", tmp_path / "m", "--license", "mit", "--language", "en")
    assert workbench(*words, cwd=store).returncode == 0
    fill: Any = pipeline("fill-mask", model=str(tmp_path / "m" / "generator"))
    assert len(fill("the cat [MASK] a dog.")) == 5
    for name in ("discriminator", "generator"):
        card = (tmp_path / "m" / name / "README.md").read_text()
        assert "fingerprint" in card and "(matmul)" in card and "| animals | accuracy |" in card and "| 2 |" in card
        assert "- command: `" in card and "- versions: workbench " in card and "\n## Limits\n" in card
        data = ModelCard(card).data
        assert (data.get("license"), data.get("language")) == ("mit", ["en"])
        if name == "generator":
            assert data.get("eval_results") is None  # the scores are of the encoder
            continue
        [result] = data.get("eval_results")
        files = [json.loads(path.read_text()) for path in (only(store, "rtd") / "scores").glob("*.json")]
        assert result.metric_value == pytest.approx(statistics.fmean(file["value"] for file in files), abs=1e-4)
        assert (result.dataset_name, result.metric_type, result.metric_args["scores"]) == ("animals", "accuracy", 2)


def test_what_was_exported_can_be_gone_on_from(store: Path, text: Path, workbench: Command, tmp_path: Path) -> None:
    assert workbench("export", only(store, "rtd").name, "--checkpoint", tmp_path / "m", cwd=store).returncode == 0
    start = f"start.from={tmp_path / 'm/discriminator'},{tmp_path / 'm/generator'}"
    words = ["--objective", "rtd", "--corpus", text, "--tasks", "none", "--budget", "steps=2", "--set", start]
    workbench("run", "ablation", *words, "--set", "data.length=32", "--set", "batch.size=8", cwd=tmp_path, ends=0)


def test_bert_is_one_model(store: Path, workbench: Command, tmp_path: Path) -> None:
    done = workbench("export", only(store, "bert-mlm").name, "--checkpoint", tmp_path / "m", cwd=store)
    assert done.returncode == 0 and done.stdout.split() == [str(tmp_path / "m" / "masked-lm")]
    assert "Its run has no scores" in (tmp_path / "m/masked-lm/README.md").read_text()


REFUSED: dict[str, tuple[list[str], str]] = {
    "an objective without these heads": (["causal-lm"], "neither a head that detects"),
    "a run that is not there": (["nothing-like-it"], "no run 'nothing-like-it'"),
    "a table as well": (["rtd-", "--format", "latex"], "remove --out, --format"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_refused_in_one_sentence(
    case: str, store: Path, workbench: Command, tmp_path: Path
) -> None:
    words, told = REFUSED[case]
    done = workbench("export", *words, "--checkpoint", tmp_path / "m", cwd=store)
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not list(tmp_path.iterdir())


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


def push(store: Path, cache: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Push in a new process, since the hub's client reads its address when it is loaded."""
    paths = {"PYTHONPATH": str(Path(__file__).parents[2]), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    return subprocess.run(
        [sys.executable, "-m", "workbench", "push", *words], env=environment(cache) | paths | more, cwd=store,
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_both_models_arrive_whole(store: Path, cache: Path, hub: Hub, workbench: Command, tmp_path: Path) -> None:
    run = only(store, "electra-15")  # without scores, beside which a card names the model
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


def test_a_dry_run_prints_names_files_and_cards_and_sends_nothing(store: Path, workbench: Command) -> None:
    """The hub cannot be reached: sending anything would fail."""
    run = only(store, "electra-15")
    words = ("--dry-run", "--license", "cc-by-sa-4.0", "--language", "da,en")
    done = workbench("push", run.name, "owner/mine", *words, cwd=store, ends=0, HF_TOKEN="", HF_HUB_OFFLINE="1")
    first, second = re.split(r"(?=^owner/mine-\w+ \(public if it is new\))", done.stdout, flags=re.MULTILINE)[1:]
    for name, text in (("owner/mine-discriminator", first), ("owner/mine-generator", second)):
        listing, _, card = text.partition("\n\n---\n")
        assert listing.startswith(f"{name} (public if it is new) would get {listing.count(' bytes  ')} files:")
        assert re.search(r"^ +[\d,]+ bytes  model\.safetensors$", listing, flags=re.MULTILINE)
        data = ModelCard(f"---\n{card}").data
        assert data.get("license") == "cc-by-sa-4.0" and data.get("language") == ["da", "en"]
        assert f'from_pretrained("{name}")' in card


NOT_PUSHED: dict[str, tuple[list[str], str]] = {
    "no owner": (["mine"], "give OWNER/NAME"),
    "a licence by its title": (["owner/mine", "--license", "MIT License"], "not the hub's identifier of a licence"),
    "a language by its name": (["owner/mine", "--language", "Danish", "--dry-run"], "is not a code of a language"),
}


@pytest.mark.parametrize("case", NOT_PUSHED)
def test_what_no_hub_takes_is_refused_before_it_is_asked(case: str, store: Path, workbench: Command) -> None:
    words, told = NOT_PUSHED[case]
    done = workbench("push", only(store, "electra-15").name, *words, cwd=store, HF_TOKEN=TOKEN)
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("place", ["a wrong token", "no hub"])
def test_what_a_hub_refuses_is_one_sentence(place: str, store: Path, cache: Path, hub: Hub) -> None:
    address, token = ("http://127.0.0.1:9", TOKEN) if place == "no hub" else (hub.address, "hf_wrong")
    done = push(store, cache, only(store, "electra-15").name, "owner/mine", HF_ENDPOINT=address, HF_TOKEN=token)
    assert done.returncode == 2 and "could not be uploaded" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not hub.repositories


@pytest.mark.parametrize("url", ["not an address", None])
def test_a_malformed_answer_is_one_sentence(url: object, store: Path, cache: Path, hub: Hub) -> None:
    hub.done = {"commitUrl": url}
    run = only(store, "electra-15")
    done = push(store, cache, run.name, "owner/mine", HF_ENDPOINT=hub.address, HF_TOKEN=TOKEN)
    assert done.returncode == 2 and "not a model hub's" in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
