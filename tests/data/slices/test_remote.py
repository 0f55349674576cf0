"""Text on servers: an S3 server and a web server on this machine, of which every tenth answer fails."""

from __future__ import annotations

import base64
import functools
import gzip
import http.server
import itertools
import json
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench.data import formats, prepare, preprocessing, sources, streams, tokenizer
from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.parts import DataSpec
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

TEXTS = [" ".join(random.Random(n).choices(["one", "two", "three", "four"], k=90)) for n in range(1500)]
EVERY = 10  # answers of which one fails


class Failing:
    """A WSGI application that answers as another does, but every tenth time with an error or half of the content."""

    def __init__(self, application: Any) -> None:
        self.application, self.requests, self.failures, self.on = application, itertools.count(1), 0, False

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not self.on or next(self.requests) % EVERY:
            return self.application(environ, start_response)  # type: ignore[no-any-return]
        self.failures += 1
        if self.failures % 2:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"slow down"]
        content = b"".join(self.application(environ, start_response))
        return [content[: len(content) // 2]]  # shorter than the length that was announced


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[Any, Failing]]:
    """A bucket `text` of an S3 server, and the switch of its failures."""
    boto3 = pytest.importorskip("boto3", reason="needs boto3 and s3fs: make setup")
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    from werkzeug.serving import make_server

    failing = Failing(moto.DomainDispatcherApplication(moto.create_backend_app))
    server = make_server("127.0.0.1", 0, failing, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        client = boto3.client("s3")
        client.create_bucket(Bucket="text")
        client.put_object(Bucket="text", Key="corpus/README.md", Body=b"not text")
        yield client, failing
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def files(bucket: tuple[Any, Failing], tmp_path: Path) -> Iterator[tuple[Any, Failing, Path]]:
    """The same text in three kinds of files, here and in the bucket; every tenth answer fails from now on."""
    client, failing = bucket
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "a.txt").write_text("\n\n".join(TEXTS[:500]))
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[500:1000]))
    pq.write_table(pa.table({"text": TEXTS[1000:]}), folder / "c.parquet", row_group_size=50)
    for path in folder.iterdir():
        client.put_object(Bucket="text", Key=f"corpus/{path.name}", Body=path.read_bytes())
    failing.on = True
    yield client, failing, folder
    failing.on = False


def spec_of(corpus: str) -> RunSpec:
    return resolve("nano", {"data.corpus": (corpus,), "encoder.vocab": 300, "batch.size": 4, "data.length": 32})


def make(corpus: str, cache: Path, workers: int = 1) -> Prepared:
    return prepare.prepare(spec_of(corpus), silent, cache, workers)


def test_text_on_a_server_that_fails_one_request_in_ten_is_the_text(
    files: tuple[Any, Failing, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, failing, folder = files
    monkeypatch.setattr(streams, "REQUEST", 10_000)
    monkeypatch.setattr(streams, "PAUSE", 0.01)
    monkeypatch.setattr(tokenizer, "SAMPLE", 50_000)
    here = make(str(folder), tmp_path / "here-cache")
    monkeypatch.setattr(preprocessing, "SLICE", 60_000)
    before = failing.failures
    there = make("s3://text/corpus", tmp_path / "there-cache")
    assert failing.failures - before >= 5
    assert len(list((tmp_path / "there-cache/slices").iterdir())) > 5
    assert (there.fingerprint, there.tokens, there.sources) == (here.fingerprint, here.tokens, here.sources)
    named = make("s3://text/corpus/*.[jtp]*", tmp_path / "named-cache")
    assert named.fingerprint == here.fingerprint


def test_the_same_files_of_a_folder_are_read_here_and_there(
    bucket: tuple[Any, Failing], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contents = {
        "c4-train.00000-of-00001.json.gz": gzip.compress(b'{"text": "a"}\n{"text": "b"}\n'), "AA/wiki_00": b"c\r\rd",
        "README.md": b"# A", "LICENSE": b"MIT", "binary": b"\0", "AA/.e.txt": b"e", ".git/f.txt": b"f", "g.TXT": b"g",
        "info.json": b'{"name": "h"}',
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / "layout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "layout" / name).write_bytes(content)
        bucket[0].put_object(Bucket="text", Key=f"layout/{name}", Body=content)
    here = list(sources.documents(DataSpec(corpus=(str(tmp_path / "layout"),))))
    there = list(sources.documents(DataSpec(corpus=("s3://text/layout",))))
    assert here == there == ["c", "d", "a", "b", "g"]
    assert "/layout: .git, AA/.e.txt, LICENSE, README.md, binary, info.json are not read" in caplog.text
    assert "'s3://text/layout': .git/f.txt, AA/.e.txt, LICENSE, README.md, binary, info.json are not" in caplog.text


def test_a_changed_object_is_prepared_again(files: tuple[Any, Failing, Path], tmp_path: Path) -> None:
    client = files[0]
    first = make("s3://text/corpus/a.txt", tmp_path)
    assert make("s3://text/corpus/a.txt", tmp_path) == first
    client.put_object(Bucket="text", Key="corpus/a.txt", Body="\n\n".join(TEXTS[1:501]).encode())  # of the same size
    assert make("s3://text/corpus/a.txt", tmp_path).fingerprint != first.fingerprint
    (source,) = sources.resolve(DataSpec(corpus=("s3://text/corpus/a.txt",)))
    sources.check_unchanged([source])
    client.put_object(Bucket="text", Key="corpus/a.txt", Body="\n\n".join(TEXTS[:500]).encode())
    with pytest.raises(InputError, match="changed while it was read"):
        sources.check_unchanged([source])


class Closed(http.server.BaseHTTPRequestHandler):
    """A web server with one file, for a user with a password or a bearer with a token."""

    ALLOWED = (f"Basic {base64.b64encode(b'me:planted').decode()}", "Bearer planted")

    def do_GET(self) -> None:
        known = self.headers["Authorization"] in self.ALLOWED
        content = b"one document\n" if known else b""
        start, _, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = content[int(start) : int(end or len(content)) + 1]
        self.send_response((206 if "Range" in self.headers else 200) if known else 401)
        sizes = {"Content-Length": len(part), "Content-Range": f"bytes {start}-{end}/{len(content)}"}
        for name, value in {**sizes, "Accept-Ranges": "bytes", "ETag": '"1"'}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(part if self.command == "GET" else b"")

    do_HEAD = do_GET  # noqa: N815 - named by http.server

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.parametrize("way", ["netrc", "header", "none"])
def test_credentials_of_a_web_server_are_not_in_the_address(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are the ways that the refusal of an address with a password names."""
    from fsspec import config

    monkeypatch.setattr(streams, "PAUSE", 0.0)
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password planted\n" if way == "netrc" else "")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    header = {"FSSPEC_HTTP": json.dumps({"headers": {"Authorization": "Bearer planted"}})} if way == "header" else {}
    monkeypatch.setattr(config, "conf", {})
    config.set_conf_env(config.conf, header)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        spec = DataSpec(corpus=(f"http://127.0.0.1:{server.server_port}/{way}.txt",))
        if way == "none":
            with pytest.raises(InputError, match="cannot be read"):
                list(sources.documents(spec))
        else:
            assert list(sources.documents(spec)) == ["one document"]
        server.shutdown()


@pytest.mark.parametrize(
    "error", [ValueError("Cannot traverse all of S3"), type("NoCredentialsError", (Exception,), {})("none")]
)
def test_what_no_repetition_helps_is_told_after_a_second(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PAUSE", 0.0)

    def failing() -> None:
        raise error

    with pytest.raises(InputError, match=rf"after 3 tries: {type(error).__name__}: {error}"):
        streams.repeated("s3://text", failing)


def test_a_server_that_keeps_failing_ends_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streams, "PAUSE", 0.0)
    tries: list[int] = []

    def failing() -> None:
        tries.append(0)
        raise ConnectionError("reset by peer")

    with pytest.raises(InputError, match=r"after 9 tries: ConnectionError: reset by peer"):
        streams.repeated("s3://text/a.txt", failing)
    assert len(tries) == streams.TRIES and caplog.text.count("it is repeated for up to a minute") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("s3://text/none.txt", "after 3 tries: there is no such file"),
        ("s3://text/corpus/README.md", "names no file that can be read"),
        ("s3://user:secret@host/text.txt", "may hold no user or password"),
        ("nonsense://text/a.txt", "Protocol not known: nonsense"),
        ("http://[::1/a.txt", "is no URL: Invalid IPv6 URL"),
        ("file:///", "files of this machine are named by path: --corpus /$"),
        ("local:///some/text", "files of this machine are named by path: --corpus /some/text$"),
        ("http://127.0.0.1:1/a.txt", "after 9 tries: ClientConnectorError: Cannot connect to host"),
        ("ftp://127.0.0.1:1/a.txt", "ConnectionRefusedError"),
        ("zip://a.txt::file://{folder}/a.csv", "BadZipFile: File is not a zip file"),
        ("reference://a.txt", "TypeError: ReferenceFileSystem"),
        ("dir://a/b.txt", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    name: str, message: str, bucket: tuple[Any, Failing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("http:"):
        pytest.importorskip("aiohttp")
    monkeypatch.setattr(streams, "PAUSE", 0.0)
    (tmp_path / "a.csv").write_text("no archive")
    with pytest.raises(InputError, match=message) as caught:
        sources.resolve(DataSpec(corpus=(name.format(folder=tmp_path),)))
    assert len(str(caught.value)) < 600 and "secret" not in str(caught.value)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """A web server that sends parts of files, or whole files although parts were asked for; every second GET fails."""

    whole = False
    gets = itertools.count(1)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        if next(self.gets) % 2:
            return self.send_error(503)
        if self.whole or "Range" not in self.headers:
            return super().do_GET()
        content = Path(self.translate_path(self.path)).read_bytes()
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = content[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)
        return None


@pytest.mark.parametrize("whole", [False, True])
def test_text_on_a_web_server(whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client, unlike that of S3, repeats nothing by itself."""
    pytest.importorskip("aiohttp", reason="needs aiohttp: pip install 'encoder-workbench[remote]'")
    monkeypatch.setattr(Ranges, "whole", whole)
    monkeypatch.setattr(streams, "REQUEST", 5_000)
    monkeypatch.setattr(streams, "PAUSE", 0.01)
    (tmp_path / "t.txt").write_text("\n\n".join(TEXTS))
    handler = functools.partial(Ranges, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (source,) = sources.resolve(DataSpec(corpus=(f"http://127.0.0.1:{server.server_port}/t.txt",)))
        assert source.size == (tmp_path / "t.txt").stat().st_size
        if whole:
            with pytest.raises(InputError, match="sends no parts of files"):
                list(sources.read(source, "text"))
        else:
            assert list(sources.read(source, "text")) == list(formats.read(tmp_path / "t.txt", "text"))
        server.shutdown()
