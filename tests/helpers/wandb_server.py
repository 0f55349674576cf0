"""As much of a W&B server as its client needs to send runs, which keeps what arrives."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
