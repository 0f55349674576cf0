"""Copies of runs in trackers, read back by the trackers' own libraries, and a server of W&B that keeps what arrives."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from workbench.store.run_store import RunDir

Row = dict[str, float]


@dataclass
class Read:
    """One run as a tracker has it; `scores` has values by name, and of points of training by (name, step)."""

    rows: dict[int, Row] = field(default_factory=dict)
    scores: dict[Any, float] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    study: str = ""
    tags: list[str] = field(default_factory=list)
    notes: str = ""
    state: str = ""
    runs: int = 1  # that the tracker has under the run's name


def stored_rows(run: RunDir) -> dict[int, Row]:
    """Return the rows of a run by step, with flat names, as `metrics.jsonl` has them."""
    rows = {}
    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        row: Row = {}
        for key, value in json.loads(line).items():
            inner = {f"{key}/{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
            row |= {name: each for name, each in inner.items() if each is not None}
        rows[int(row["step"])] = row
    return rows


def is_score(name: str) -> bool:
    return name.partition("/")[0] in ("score", "untrained", "arm", "spent")


def read(tracker: str, run: RunDir, study: str = "") -> Read:
    """Return a run as one of the trackers has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        readers = {"wandb": read_wandb, "trackio": read_trackio, "tensorboard": read_tensorboard, "mlflow": read_mlflow}
        return readers[tracker](run)


def read_wandb(run: RunDir) -> Read:
    """Read the one offline file of a run."""
    (path,) = run.path.glob("wandb/*run-*/*.wandb")
    return read_wandb_file(path)


BLOCK, HEADER = 1 << 15, 7  # bytes of a block of W&B's files, and of the header of the file and of each piece


def wandb_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file of W&B, which is a log of LevelDB (log_format.md) with another start."""
    data, place, parts = path.read_bytes(), HEADER, []
    assert data[:4] == b":W&B"
    while place + HEADER <= len(data):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        crc, length, kind = struct.unpack("<IHB", data[place : place + HEADER])
        piece = data[place + HEADER : place + HEADER + length]
        if kind == 0 or len(piece) < length:  # a block that was not written whole
            return
        assert crc == zlib.crc32(piece, zlib.crc32(bytes([kind])))
        place += HEADER + length
        parts.append(piece)
        if kind in (1, 4):  # the whole of a record, or its last piece
            yield b"".join(parts)
            parts = []


def read_wandb_file(path: Path) -> Read:
    """Read an offline file by W&B's own messages, up to a torn end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from wandb.proto import wandb_internal_pb2

    found, last = Read(), 0
    for data in wandb_records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.study, found.notes, found.tags = record.run.run_group, record.run.notes, list(record.run.tags)
            found.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            assert record.history.step.num > last, "the server drops rows that are not in order"
            last = record.history.step.num
            found.rows[last] = {key: value for key, value in row.items() if not key.startswith("_")}
        elif kind == "summary":
            for item in record.summary.update:
                key, value = item.key or "/".join(item.nested_key), json.loads(item.value_json)
                name, at, step = key.partition("/step ")
                if is_score(key):
                    found.scores[(name, int(step)) if at else key] = value
                elif key == "state":
                    found.state = value
    return found


# In a process of its own, since trackio reads the name of its folder when it is imported.
READ_TRACKIO = """
import json, sys
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage as storage
project, run = "workbench", sys.argv[1]
same = [each for each in Api().runs(project) if each.name == run]
print(json.dumps({
    "runs": len(same), "logs": storage.get_logs(project, run), "config": storage.get_run_config(project, run),
    "artifacts": [each["type"] for each in storage.get_artifacts(project)],
}, default=str))
"""


def trackio_database(run: RunDir) -> dict[str, Any]:
    """Return the runs of a name in trackio's database, with logs and settings, and the kinds of all artifacts."""
    command = [sys.executable, "-c", READ_TRACKIO, run.run_id]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def read_trackio(run: RunDir) -> Read:
    """Read trackio's database by its own functions."""
    database = trackio_database(run)
    found, logs = Read(runs=database["runs"]), database["logs"]
    last = max((each["step"] for each in logs), default=0)
    for each in logs:
        step = each["step"]
        values = {key: value for key, value in each.items() if key not in ("step", "timestamp")}
        if row := {key: value for key, value in values.items() if not is_score(key)}:
            assert step not in found.rows, "a row is there twice"
            found.rows[step] = row | {"step": step}
        found.scores |= {k if step == last else (k, step): v for k, v in values.items() if is_score(k)}
    config = database["config"] or {}
    found.study, found.tags = config.pop("_Group") or "", config.pop("tags")
    found.notes, found.state = config.pop("notes"), config.pop("state")
    found.config = config
    return found


def read_tensorboard(run: RunDir) -> Read:
    """Read the event files of a run by TensorBoard's accumulator."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2
    from tensorboard.util import tensor_util

    folder = run.path / "tensorboard"
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    found = Read(runs=len(list(folder.iterdir())))
    last = max((each.step for tag in events.Tags()["tensors"] for each in events.Tensors(tag)), default=0)
    texts = {}
    for tag in events.Tags()["tensors"]:
        plugin = events.SummaryMetadata(tag).plugin_data
        if plugin.plugin_name == metadata.PLUGIN_NAME:
            session = plugin_data_pb2.HParamsPluginData.FromString(plugin.content)
            for key, value in session.session_start_info.hparams.items():
                found.config[key] = getattr(value, value.WhichOneof("kind"))
            continue
        for each in events.Tensors(tag):
            value = tensor_util.make_ndarray(each.tensor_proto)
            if plugin.plugin_name == "text":
                texts[tag] = value[0].decode()
            elif is_score(tag):
                found.scores[tag if each.step == last else (tag, each.step)] = value.item()
            else:
                row = found.rows.setdefault(each.step, {})
                assert tag not in row, "a row is there twice"
                row[tag] = value.item()
    found.study, found.notes, found.state = (texts.get(key, "") for key in ("study", "notes", "state"))
    found.tags = [tag for tag in texts.get("tags", "").split(", ") if tag]
    return found


def read_mlflow(run: RunDir) -> Read:
    """Read MLflow's store by its own client: a server, or the database in the run store."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow.tracking import MlflowClient

    client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.path.parent / 'mlflow.db'}")
    experiments = {each.experiment_id: each.name for each in client.search_experiments()}
    every = client.search_runs(list(experiments), f"tags.`workbench.run_id` = '{run.run_id}'")
    (one, *_), found = every, Read(runs=len(every))
    metrics = {name: client.get_metric_history(one.info.run_id, name) for name in one.data.metrics}
    last = max((each.step for history in metrics.values() for each in history), default=0)
    for name, history in metrics.items():
        for each in history:
            if is_score(name):
                # An untrained encoder's score stays at the step of the copy that a killed run began with.
                is_point = name.startswith("score") and each.step != last
                found.scores[(name, each.step) if is_point else name] = each.value
                continue
            row = found.rows.setdefault(each.step, {})
            assert name not in row, "a row is there twice"
            row[name] = each.value
    tags: Mapping[str, str] = one.data.tags
    found.config = dict(one.data.params) | {key: value for key, value in tags.items() if key.startswith("env.")}
    found.study, found.notes = experiments[one.info.experiment_id], tags["mlflow.note.content"]
    found.tags, found.state = [key[4:] for key in tags if key.startswith("tag.")], tags["state"]
    return found


ME = {"id": "u", "username": "me", "entity": "me", "flags": "{}", "teams": {"edges": []}}


@dataclass
class Kept:
    """The runs of a server by name: lines of history, the summary, and the variables of the last request about it."""

    address: str
    history: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    summary: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)


@contextmanager
def wandb_server() -> Iterator[Kept]:
    """Serve inside the block; lines of history that come from a place on replace those that were there."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer({})

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer({})

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            if self.path.endswith("/graphql"):
                self._answer({"data": self._graphql(json.loads(data))})
                return
            if self.path.endswith("/file_stream"):
                self._keep(self.path.split("/")[-2], json.loads(data).get("files") or {})
            self._answer({"exitcode": None, "limits": {}})

        def _graphql(self, request: dict[str, Any]) -> dict[str, Any]:
            query, given = request.get("query", ""), request.get("variables") or {}
            if "createRunFiles" in query:
                files = [{"name": name, "uploadUrl": f"{kept.address}/{name}"} for name in given["files"]]
                return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
            if "upsertBucket" not in query:
                return {"viewer": ME, "serverInfo": {"features": [], "latestLocalVersionInfo": None}}
            name = given.get("name")
            kept.facts.setdefault(name, {}).update({key: each for key, each in given.items() if each is not None})
            project = {"id": "p", "name": given.get("project"), "entity": {"id": "e", "name": "me"}}
            bucket = {"id": "b", "name": name, "displayName": name, "config": "{}", "project": project}
            return {"upsertBucket": {"bucket": bucket | {"historyLineCount": 0}, "inserted": True}}

        def _keep(self, run: str, files: dict[str, Any]) -> None:
            if history := files.get("wandb-history.jsonl"):
                lines, place = kept.history.setdefault(run, []), history["offset"]
                lines[place : place + len(history["content"])] = map(json.loads, history["content"])
            if summary := files.get("wandb-summary.json"):
                kept.summary[run] = json.loads(summary["content"][-1])

        def _answer(self, value: dict[str, Any]) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Kept(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
