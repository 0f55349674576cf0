"""`workbench view`: pages about the runs of a store, served to a browser on this machine, which show what happens now.

Everything is read from run directories; nothing is written but the store's own index of finished runs, and notes, tags
and the archive if that is allowed.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.store.run_store import RunStore

LOCAL = "127.0.0.1"


def view(
    store: RunStore,
    host: str = LOCAL,
    port: int | None = None,
    browser: bool = True,
    allow_edit: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the pages of a store until Ctrl-C, and open them in the browser if this machine has a screen.

    `say` gets the lines that a person must see: the address, with the token that opens it, and how to reach it from
    elsewhere. With `allow_edit`, pages can change notes and tags, and archive runs. Raises InputError if the address
    cannot be used.
    """
    from workbench.view import server

    with server.listening(host, port) as sock:
        guard = server.Guard(host, sock.getsockname()[1], edit=allow_edit)
        for line in guard.lines():
            say(line)
        if browser and server.has_screen():
            webbrowser.open(guard.address())
        server.serve(store, guard, sock)
