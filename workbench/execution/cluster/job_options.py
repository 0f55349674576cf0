"""The options of jobs on a cluster, read from --launcher and the settings `launch.*`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from workbench.errors import InputError, one_line
from workbench.spec.host import KEY, Launch, checked, seconds
from workbench.store.atomic import read_bytes, user_path

LARGEST = 1 << 20  # bytes of a profile


def launch_of(launcher: str, settings: Sequence[str]) -> tuple[list[str], Launch | None]:
    """Divide the settings of --set into those of the spec and the options of jobs, None for the launcher `local`.

    `launch.profile` names a TOML file with such options, over which those of --set take precedence. Raises InputError.
    """
    if launcher not in ("local", "slurm"):
        raise InputError(f"--launcher {launcher!r:.80} must be local or slurm")
    launch_settings = [text for text in settings if text.strip().startswith(KEY)]
    rest = [text for text in settings if text not in launch_settings]
    if launcher == "local":
        if launch_settings:
            raise InputError(
                f"--set {launch_settings[0]} is an option of a cluster's jobs; add --launcher slurm, or leave it out"
            )
        return rest, None
    given: dict[str, Any] = {}
    for text in launch_settings:
        key, equals, value = (part.strip() for part in text.strip().removeprefix(KEY).partition("="))
        if not equals:
            raise InputError(f"--set {text!r} is not of the form launch.key=value, as in --set launch.time=04:00:00")
        given |= checked({key: value}, "--set")
    name = given.pop("profile", None)
    profile = checked(_toml(name), f"--set launch.profile={name}") if name else {}
    launch = Launch(**(profile | given))
    if launch.time is not None and 0 < seconds(launch.time) <= launch.seconds_before:
        raise InputError(
            f"launch.time={launch.time} is not longer than launch.seconds_before={launch.seconds_before}, so each job "
            f"would end as it begins; give it more time"
        )
    return rest, launch


def _toml(name: str) -> dict[str, Any]:
    """Return the content of a TOML file. Raises InputError if it cannot be read."""
    path = user_path(name, "--set launch.profile")
    try:
        content = read_bytes(path.resolve(), LARGEST)
    except OSError as error:
        raise InputError(f"--set launch.profile={name}: {error.strerror}") from None
    except (ValueError, RuntimeError) as error:  # resolve raises the second for links in a circle
        raise InputError(f"--set launch.profile={name}: it {error}; name a file of TOML") from None
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise InputError(f"--set launch.profile={name} is not TOML: {one_line(error)}") from None
