"""The entry point of the command line: until its modules are loaded, Ctrl-C ends the process as SIGTERM does.

Python's own handler would print a traceback through the module that is being imported. The handlers of
`workbench.process` take over in `main`.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)

from workbench.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
