"""The server of `workbench view`: who is let in, what a browser may do with a page, and the addresses of the pages.

A page shows settings and logs, so only the person who started the server sees it. The address that is printed has a
random token, which is exchanged for a cookie. A request needs the cookie, one of the names of this machine as its Host,
against pages elsewhere that pretend to be it, and no foreign Origin. Routes are for GET, except for one that changes
notes, tags and the archive. It is closed unless a person has allowed it, and a request to it needs this server's own
Origin and the key that its pages hold, which no page elsewhere can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import html
import ipaddress
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from workbench.errors import InputError, Interrupted, one_line, plural
from workbench.process import share_memory
from workbench.store import manage
from workbench.store.manage import Notes
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore
from workbench.view.pages import Pages, link
from workbench.view.watched import Watched, each_once

T = TypeVar("T")
log = logging.getLogger("workbench")
PORT = 8642  # if none is named and no other program has it
LOOPBACK = ("127.0.0.1", "localhost", "::1")
AT_ONCE = 2  # pages computed at the same time
BEAT = 0.25  # seconds between two looks for changes that pages are told of
SILENCE = 15.0  # seconds after which a line is sent although nothing has changed, so that lost readers are noticed
LARGEST_CHANGE = 2**20  # bytes of a request
LONGEST_NOTE = 10_000  # characters
KEY = "x-workbench-key"  # the header of the key that pages send with a change
HEADERS = {
    "cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    "x-frame-options": "DENY", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip
NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"  # for anything but a page
REFUSED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>workbench view</title>
<h1>Open the address that <code>workbench view</code> printed</h1>
<p>It holds a token, without which nothing is shown. It changes whenever the command is started.</p></html>"""
LET_IN = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={place}">
<title>workbench view</title><p><a href="{place}">The page</a></p></html>"""


class Guard:
    """Middleware data: the token, the cookie that it is exchanged for, and the names of this machine.

    If `edit`, pages may change notes, tags and the archive, by requests with the `key`; else that is "".
    """

    def __init__(self, host: str, port: int, token: str | None = None, edit: bool = False) -> None:
        self.host, self.port = host, port
        self.key = secrets.token_urlsafe(24) if edit else ""
        self.token = token or secrets.token_urlsafe(24)
        self.session, self.cookie = secrets.token_urlsafe(24), f"workbench_view_{port}"
        self.names = {*LOOPBACK, host} if host in LOOPBACK else {*LOOPBACK, host, socket.gethostname().lower()}
        self.remote = host not in LOOPBACK

    def address(self) -> str:
        """Return the address that opens the pages, with the token."""
        everywhere = self.host in ("0.0.0.0", "::")
        host = socket.gethostname() if everywhere else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={self.token}"

    def lines(self) -> list[str]:
        """Return what a person must know: the address, and how to reach it from another machine."""
        lines = [self.address()]
        if not self.remote:
            place = f"{self.port}:127.0.0.1:{self.port}"
            lines.append(f"from another machine: ssh -L {place} {socket.gethostname()}, and open the address there")
        else:
            lines.append("every machine that reaches this one can request the page, but the token is needed to see it")
        if self.key:
            lines.append("whoever has the token can change notes and tags, and archive runs")
        return [*lines, "Ctrl-C ends it; runs go on"]

    def knows(self, host: str) -> bool:
        """Return whether a Host header names this machine, as a defence against DNS rebinding.

        In such an attack, the Host header holds the attacker's domain name. Numeric addresses are therefore accepted
        with `--host`. Ports are not compared, since an SSH tunnel may use another port.
        """
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.remote

    def refusal(self, headers: Headers, cookies: dict[str, str]) -> str | None:
        """Return why a request without a token is refused, None if it is not."""
        host = headers.get("host", "")
        if not self.knows(host):
            return "this server does not answer for that host"
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return "pages of other sites are refused"
        if not secrets.compare_digest(cookies.get(self.cookie, "").encode(), self.session.encode()):
            return ""
        return None

    def refuses_change(self, headers: Headers) -> str | None:
        """Return why a request of somebody who was let in may change nothing, None if it may."""
        if not self.key:
            return "these pages only read; workbench view --allow-edit lets them change notes, tags and the archive"
        if headers.get("origin") is None or not secrets.compare_digest(
            headers.get(KEY, "").encode(), self.key.encode()
        ):
            return "only the pages of this server can change something; load the page again"
        return None


class Guarded:
    """Middleware that answers no request without the cookie, and adds the headers that keep pages apart."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                whole = HEADERS | {"content-security-policy": NOTHING}
                message["headers"] = [*message["headers"], *(
                    (name.encode(), value.encode()) for name, value in whole.items() if name.encode() not in present
                )]  # fmt: skip
            await send(message)

        response = self.answer(Request(scope))
        await (self.app if response is None else response)(scope, receive, sending)

    def answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is refused or brings the token; None if it is let through."""
        token = request.query_params.get("token")
        refusal = self.guard.refusal(request.headers, request.cookies)
        if refusal:
            return Response(refusal, 403, media_type="text/plain")
        if token is not None and request.method == "GET":
            if not secrets.compare_digest(token.encode(), self.guard.token.encode()):
                return HTMLResponse(REFUSED, 403)
            # A page that leads on, since a browser sends a strict cookie only to where a page of this server leads.
            path = quote("/" + request.url.path.lstrip("/"))  # one slash, since two begin the address of a machine
            place = path + link(request.query_params, token=None).rstrip("?")
            let_in = HTMLResponse(LET_IN.format(place=html.escape(place)))
            let_in.set_cookie(self.guard.cookie, self.guard.session, httponly=True, samesite="strict", path="/")
            return let_in
        return HTMLResponse(REFUSED, 403) if refusal is not None else None


def application(watched: Watched, guard: Guard) -> Guarded:
    """Return the application that answers requests on a store."""
    pages, pool = Pages(watched, guard.key), ThreadPoolExecutor(AT_ONCE)

    async def computed(make: Callable[..., T], *arguments: Any, **more: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, functools.partial(make, *arguments, **more))

    def page(make: Callable[..., Response]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                return await computed(make, request.query_params, **request.path_params)
            except (InputError, OSError) as error:
                return await computed(pages.refused, str(error))
            except Exception as error:  # files that change or are damaged in a way that no code has foreseen
                log.warning("%s could not be shown", request.url.path, exc_info=True)
                return await computed(pages.refused, f"this page cannot be made now: {one_line(error)}")

        return answer

    async def edit(request: Request) -> Response:
        if refusal := guard.refuses_change(request.headers):
            return PlainTextResponse(refusal, 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_CHANGE:
                return PlainTextResponse("the change is too large; choose fewer runs", 413)
        try:
            return PlainTextResponse(await computed(carry_out, watched, parse_qs(body.decode(errors="replace"))))
        except (InputError, OSError) as error:
            return PlainTextResponse(str(error), 422)

    routes = [
        Route("/", page(pages.studies)),
        Route("/runs", page(pages.runs)),
        Route("/compare", page(pages.compare)),
        Route("/study/{name}", lambda request: RedirectResponse(f"/study/{request.path_params['name']}/")),
        Route("/study/{name}/", page(pages.study)),
        Route("/study/{name}/{file}", page(pages.study_file)),
        Route("/run/{run_id}", page(pages.run)),
        Route("/run/{run_id}/{path:path}", page(pages.run_file)),
        Route("/events", lambda _: StreamingResponse(_changes(watched), media_type="text/event-stream")),
        Route("/edit", edit, methods=["POST"]),
        Route("/{rest:path}", page(lambda query, rest: pages.refused("there is no such page"))),
    ]
    return Guarded(Starlette(routes=routes), guard)


def carry_out(watched: Watched, form: Mapping[str, Sequence[str]]) -> str:
    """Carry out one change of some runs, and return a sentence on it.

    The fields of the form are `act`, `text`, and `run` with names of runs separated by commas. Raises InputError for an
    unknown change, or if some runs could not be changed; the other runs are changed all the same. Raises OSError if the
    disk fails.
    """
    act, text = (" ".join(form.get(key, ())).strip() for key in ("act", "text"))
    run_ids = each_once(form.get("run", ()))
    if not run_ids:
        raise InputError("no run is chosen; choose some")
    change, done = _change(act, text)
    folders = [RunDir(watched.store.root / run_id) for run_id in run_ids if run_id in watched.rows]
    known = [run for run in folders if run.path.is_dir()]
    failed = dict.fromkeys(set(run_ids) - {run.run_id for run in known}, "there is no such run any more")
    try:
        failed |= manage.each_run(lambda run: manage.annotate(run, change), known)
    finally:
        watched.look_at(run.run_id for run in known)
    if failed:
        run_id, reason = next(iter(failed.items()))
        raise InputError(f"{len(failed)} of {plural(len(run_ids), 'run')} not {done}; {run_id}: {reason}")
    return f"{plural(len(run_ids), 'run')} {done}"


def _change(act: str, text: str) -> tuple[Callable[[Notes], Notes], str]:
    if act in ("archive", "restore"):
        return lambda notes: replace(notes, archived=act == "archive"), f"{act}d"
    if not text:
        raise InputError("the text is empty; write some words")
    if act == "note":
        if len(text) > LONGEST_NOTE:
            raise InputError(f"the note has {len(text):,} characters; write at most {LONGEST_NOTE:,}")
        return lambda notes: notes.noted(text), "noted"
    if act == "remove note":
        return lambda notes: replace(notes, notes=tuple(n for n in notes.notes if f"{n['at']} {n['text']}" != text)), (
            "changed"
        )
    if act in ("tag", "untag"):
        tags = manage.checked_tags(text)
        return (lambda notes: notes.tagged(**{"add" if act == "tag" else "remove": tags})), f"{act}ged"
    raise InputError(f"there is no change {act[:40]!r}")


async def _changes(watched: Watched) -> AsyncIterator[str]:
    """Yield an event whenever something in the store has changed."""
    seen, quiet = watched.version, 0.0
    yield f"retry: 2000\ndata: {seen}\n\n"
    while not watched.stopped.is_set():
        await asyncio.sleep(BEAT)
        quiet += BEAT
        if watched.version != seen:
            seen, quiet = watched.version, 0.0
            yield f"data: {seen}\n\n"
        elif quiet >= SILENCE:
            quiet = 0.0
            yield ": nothing new\n\n"


def listening(host: str, port: int | None) -> socket.socket:
    """Return a socket on an address; without a port, on PORT or any free one. Raises InputError if it is not usable."""
    for number in (PORT, 0) if port is None else (port,):
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, number), family=family)
        except OverflowError:
            raise InputError(f"--port {port} is not a port; ports are from 1 to 65535") from None
        except OSError as error:
            if port is None and number and error.errno == errno.EADDRINUSE:
                continue
            elsewhere = "it is no name or address of this machine"
            reasons = {
                errno.EADDRINUSE: "another program listens there", errno.EACCES: "you may not listen there",
                errno.EADDRNOTAVAIL: elsewhere, socket.EAI_NONAME: elsewhere, socket.EAI_AGAIN: elsewhere,
            }  # fmt: skip
            reason = reasons.get(error.errno or 0, error.strerror or str(error))
            raise InputError(f"{host}:{number} cannot be used: {reason}; choose another --port or --host") from None
    raise AssertionError


def has_screen() -> bool:
    """Return whether a browser that is opened here would be seen: not over ssh, and on Linux with a display."""
    remote = "SSH_CONNECTION" in os.environ or "SSH_TTY" in os.environ
    return not remote and (sys.platform == "darwin" or any(os.environ.get(k) for k in ("DISPLAY", "WAYLAND_DISPLAY")))


def serve(store: RunStore, guard: Guard, sock: socket.socket) -> None:
    """Answer requests until Ctrl-C or SIGTERM. It can be called from a notebook, which has an event loop of its own."""
    share_memory()
    watched = Watched(store)
    config = uvicorn.Config(
        application(watched, guard), log_level="error", access_log=False, timeout_graceful_shutdown=1,
        server_header=False, lifespan="off", ws="none", http="h11",
    )  # fmt: skip
    server, ended = uvicorn.Server(config), threading.Event()

    def run() -> None:
        try:
            with contextlib.suppress(KeyboardInterrupt, Interrupted):  # `heed` raises it in pages being made
                server.run([sock])
        finally:
            ended.set()

    with watched.watching(), contextlib.suppress(KeyboardInterrupt, Interrupted):
        threading.Thread(target=run, daemon=True).start()
        ended.wait()  # in Python 3.11 a Thread.join that Ctrl-C interrupts counts the thread as ended
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # answers that are cut off now are no errors
    server.should_exit = True
    ended.wait(5.0)
