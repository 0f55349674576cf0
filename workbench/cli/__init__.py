"""The command line: each command parses its options, calls one function and prints the result.

Heavy imports are inside the functions, so that commands start fast. Results go to stdout (one JSON document with
--json), everything else to stderr. Exit codes: 0 done, 1 some run failed or is damaged, 2 bad input, 74 disk,
130 interrupted (Ctrl-C), 143 interrupted (SIGTERM, SIGUSR1).
"""

from __future__ import annotations

import errno
import io
import itertools
import logging
import os
import select
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench import __version__, errors
from workbench.cli import edit, read, tools, train
from workbench.cli.command import as_command, help_of, in_sections, only_printed
from workbench.errors import DAMAGE, DamagedRun, InputError, Interrupted, RankLost, is_memory, message_of, one_line
from workbench.process import interrupting
from workbench.progress import log, say, visible
from workbench.spec.run_spec import other_name
from workbench.store.atomic import ADVICE, DISK, FAILING, FULL, no_room
from workbench.store.redact import redact_addresses

SECTIONS = {  # of the help
    "Train and measure": "run sweep evaluate submit",
    "Plan and prepare": "data plan-study flops bench doctor list new check",
    "Read results": "report view status runs diff export push",
    "Look after runs": "note tag archive track rm restore prune du gc cp mv import verify",
}
app = typer.Typer(
    help="Which pre-training objective, generator size and weight tying make the best text encoder?",
    cls=in_sections(SECTIONS), no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False,
    rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
data_app = typer.Typer(
    help="Prepare text before any run, and print its size.", no_args_is_help=True, rich_markup_mode=None
)
LISTED: tuple[Callable[..., None], ...] = (
    train.run, train.sweep_, read.report, read.view, read.status, read.runs_, read.verify, read.diff, edit.note,
    edit.tag, edit.archive, edit.track, edit.rm, edit.restore, edit.prune, edit.du, edit.gc, edit.cp,
    edit.mv, edit.import_, read.export, read.push, train.submit, tools.plan_study, tools.flops, tools.bench,
    tools.doctor, tools.list_, tools.new, tools.check, train.evaluate,
)  # fmt: skip
COMMANDS = {function.__name__.rstrip("_").replace("_", "-"): function for function in LISTED}


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"workbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _add(group: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Add a command to a group, whose help shows the whole first line of the command's, where typer would cut it."""
    summary = (function.__doc__ or "").partition("\n")[0]
    by_first = function in (train.run, train.sweep_)
    group.command(name, short_help=summary, cls=help_of(function))(as_command(function, by_first))


for name, function in COMMANDS.items():
    _add(app, name, function)
app.command("worker", hidden=True)(train.worker)
app.command("rank", hidden=True)(train.rank)
app.command("encode-slices", hidden=True)(train.encode_slices)
_add(data_app, "prepare", train.prepare_)
app.add_typer(data_app, name="data")

NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)  # errors of a path that the user named
LIMITS = {  # what the system refuses, and what to do
    errno.EMFILE: "a process may open no more files; raise ulimit -n",
    errno.ENFILE: "the system opens no more files; end other programs",
    errno.EAGAIN: "the system starts no more processes; end other programs, or raise ulimit -u",
}
INTERRUPTED = "interrupted; the same command goes on from what is saved"


def main() -> None:
    """Run the command line; every end has one line on stderr, if any, and one exit code."""
    guard()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Sentences("workbench: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    damages: list[logging.LogRecord] = []  # warnings of damaged runs, after which no command ends with 0

    def keep(record: logging.LogRecord) -> bool:
        damages.append(record)
        return True

    DAMAGE.addFilter(keep)
    try:
        with interrupting():
            _refuse_empty_words(sys.argv)
            code = app(standalone_mode=False, prog_name="workbench")
            if code == 130:  # typer's exit code for Ctrl-C outside of training
                code = _fail(INTERRUPTED, 130)
    except InputError as error:
        code = _fail(str(error), 1 if isinstance(error, DamagedRun) else 2)
    except Interrupted as stop:
        code = _fail(INTERRUPTED, 128 + stop.signal)
    except KeyboardInterrupt:
        code = _fail(INTERRUPTED, 130)
    except OSError as error:
        code = _system_error(error)
    except (errors.LeaseHeld, errors.LeaseLost) as error:
        code = _fail(f"{error}; give the same command again", 1)
    except RankLost as error:
        code = _fail(str(error), 1)
    except Exception as error:
        if is_memory(error):
            code = _fail(_no_memory(), 2)
        elif hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's error for a wrong option
            code = _wrong_words(error)
        elif type(error).__name__ == "Abort":  # typer's exception for Ctrl-C
            code = _fail(INTERRUPTED, 130)
        elif type(error).__name__ == "Exit":
            code = getattr(error, "exit_code", 0)
        else:
            code = _unexpected(error)
    except SystemExit as end:
        # No command raises SystemExit: this is shell completion, or code of the user.
        completes = "_WORKBENCH_COMPLETE" in os.environ or any(word.endswith("-completion") for word in sys.argv[1:2])
        code = end.code if completes else _ended(end)
    except BaseException as error:
        code = _ended(error)
    code = code if isinstance(code, int) else 0
    if lost := write_error():
        if only_printed():
            code = code or _system_error(lost)
        else:
            log.warning("%s: standard output is incomplete; the results are in files", lost.strerror)
    sys.exit(1 if damages and code in (0, 2) else code)


class _Sentences(logging.Formatter):
    """Log records of workbench on one line each, since a name in them may contain line breaks."""

    def format(self, record: logging.LogRecord) -> str:
        text = redact_addresses(super().format(record))
        return visible(text, lines=False) if record.name in (log.name, DAMAGE.name) else text


def _refuse_empty_words(words: list[str]) -> None:
    """Raise InputError for an empty word or `--option=`: as a path it would be this folder, as a list no names."""
    for before, word in itertools.pairwise(words):
        option, sign, value = word.partition("=")
        if not word or (option.startswith("--") and sign and not value):
            place = f"after {before}" if not word else f"after {option}="
            raise InputError(f"nothing is written {place}, as if a variable of the shell were not set; give a value")


def _wrong_words(error: Any) -> int:
    """Print an error of typer on one line, or the whole help if the command line has no words."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return int(error.exit_code)
    sentence = error.format_message().replace("\n", " ")
    if "unable to parse string as an integer" in sentence:
        sentence = f"{sentence.partition(': Input')[0]}: give a whole number"
    missing = getattr(error, "param", None) if "Missing" in sentence else None
    if missing is not None and error.ctx.info_name in ("run", "plan-study"):
        from workbench.cli.lists import experiment_rows

        command = f"workbench {error.ctx.info_name} ablation"
        _fail(f"name an experiment, as in {command}, or the file of one; there are:", error.exit_code)
        for row in experiment_rows():
            say(f"  {row['name']:<20} {row['question']}")
        return int(error.exit_code)
    if missing is not None:
        what = missing.metavar if missing.param_type_name == "argument" else missing.opts[0]
        sentence = f"{error.ctx.info_name}: {what} is missing: {missing.help}"
    if sentence.startswith("No such command") and "Did you mean" not in sentence:
        sentence = f"{sentence.rstrip('.')}; workbench -h lists what there is"
    if other := other_name(str(getattr(error, "option_name", ""))):
        option = other if other.startswith("--") else f"--set {other}=VALUE"
        sentence = f"{error.option_name}: there is no such option; give {option}"
    return _fail(sentence, error.exit_code)


def _fail(sentence: str, code: int) -> int:
    say(f"workbench: {redact_addresses(sentence)}")  # on one line: a name that the user typed may contain line breaks
    return code


def _system_error(error: OSError) -> int:
    """Report an error of the operating system: exit code 74 for the disk, 2 for a path or file named by the user."""
    name = str(error.filename)[:200] if error.filename else ""
    if error.errno in FULL:
        output = Path("/dev/stdout").resolve()  # errors of writing there name no file
        name = name or (str(output) if output.is_file() else "")
        if not name:
            return _fail(f"{os.strerror(error.errno)}: the output cannot be written; send it to another disk", 74)
        full = error if str(error.strerror).endswith(ADVICE) else no_room(Path(name), None, error)
        return _fail(f"{full.strerror} ({name})", 74)
    places = [*reversed(Path(name).absolute().parents), Path(name).absolute()] if name else []
    if error.errno in (errno.EACCES, errno.EPERM) and os.path.exists(name) and not os.access(name, os.R_OK):
        return _fail(f"{name} cannot be read: you have no permission; change its permissions or name another file", 2)
    closed = [place for place in places[:-1] if place.is_dir() and not os.access(place, os.X_OK)]
    if error.errno in (errno.EACCES, errno.EPERM) and closed:
        return _fail(f"{name} cannot be reached: you have no permission to enter {closed[0]}; name another path", 2)
    gone = [place for place in places if not os.path.lexists(place)]
    if error.errno == errno.ENOENT and gone:
        return _fail(f"{gone[0]} is missing; if it was moved or removed meanwhile, give the same command again", 74)
    if error.errno in FAILING and error.strerror == os.strerror(error.errno):  # a text of our own has its own advice
        where = f"{name}: " if name else ""
        return _fail(f"{where}{error.strerror}; see that the disk and the connection to it work{ADVICE}", 74)
    if error.errno in LIMITS:
        return _fail(f"{error.strerror}: {LIMITS[error.errno]}{ADVICE}", 2)
    if error.errno in (*DISK, *NO_PATH):
        where = f" ({name})" if name and name not in str(error.strerror) else ""
        return _fail(f"{error.strerror or error}{where}", 74 if error.errno in DISK else 2)
    return _fail(_no_memory(), 2) if is_memory(error) else _unexpected(error)


def _no_memory() -> str:
    limit = errors.address_space()
    allowed = f" (this process may use {limit / 1e9:.1f} GB of address space, ulimit -v)" if limit else ""
    return f"memory ran out{allowed}; free memory, raise the limit, or compute fewer rows at once with --micro-batch"


def _ended(error: BaseException) -> int:
    """Report an exception that would end the program without a message, raised by code that the user named."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return _fail(f"{one_line(error)} was raised{place} and ended the command", 1)


def _unexpected(error: BaseException) -> int:
    """Report an error in workbench itself: one line, and a file with the traceback."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", errors="backslashreplace", prefix="workbench-", suffix=".log", delete=False
    ) as file:
        traceback.print_exception(error, file=file)
    return _fail(f"internal error: {type(error).__name__}: {message_of(error)}; the traceback is in {file.name}", 1)


# ----------------------------------------
# The standard streams of a command: writing to them never fails, and no text can steer the terminal.
#
# A stream that is closed, a pipe without a reader and a full disk end no work: what cannot be written is dropped, and
# `write_error` says so at the end. Characters that the encoding of a stream lacks are written as escapes, and so are
# control characters, except for line ends and tabs.

GONE = (errno.EPIPE, errno.EBADF)  # errors of writing where nobody reads


class _Descriptor(io.FileIO):
    """A file descriptor whose `write` drops what cannot be written and keeps the first error that matters."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        while True:
            try:
                if (count := super().write(data)) is not None:
                    return count
                select.select([], [self], [])  # another process has set the pipe to return instead of waiting
            except OSError as error:
                # A terminal that was closed answers with EIO.
                hung_up = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
                if self.error is None and error.errno not in GONE and not hung_up:
                    self.error = error
                return memoryview(data).nbytes


class StandardStream(io.TextIOWrapper):
    """Text for a descriptor of the process, with control characters as escapes."""

    def __init__(self, descriptor: int, like: io.TextIOWrapper | None) -> None:
        self.descriptor = _Descriptor(descriptor, "w", closefd=False)
        super().__init__(
            io.BufferedWriter(self.descriptor), like.encoding if like else "utf-8", "backslashreplace", None,
            like.line_buffering if like else False, like.write_through if like else False,
        )  # fmt: skip

    def write(self, text: str, /) -> int:
        super().write(visible(text))
        return len(text)

    def write_verbatim(self, text: str) -> int:
        """Write text whose control characters are meant for the terminal, such as a progress bar."""
        return super().write(text)


def guard() -> None:
    """Replace the standard streams of this process, unless other code has done so.

    Descriptors 0 to 2 that are closed are opened on the null device first. Otherwise the next file that is opened would
    get their numbers, and would receive what libraries and child processes write to standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and (stream is None or isinstance(stream, io.TextIOWrapper)):
            setattr(sys, name, StandardStream(number, stream))


def write_error() -> OSError | None:
    """Write what is buffered for standard output, and return the first error, unless there is no reader any more."""
    try:
        sys.stdout.flush()
    except OSError as error:  # of a stream that is not guarded
        return error
    return sys.stdout.descriptor.error if isinstance(sys.stdout, StandardStream) else None
