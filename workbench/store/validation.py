"""Checks of a run's files when they are read: each must exist, be undamaged, belong to the run and have its format."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from workbench.errors import DamagedRun, InputError
from workbench.spec.run_spec import digest, parse_stored
from workbench.spec.scoring import score_file
from workbench.store import atomic, manifest
from workbench.store.atomic import checked_name, loads, own_folder, read_hashed

FORMAT = 1
NAMING = 2  # format of store.json and spec.json: how runs are named; in format 1 names depended on paths

_NUMBER = (int, float)
_FORMATS = {"spec.json": NAMING, "plan.json": None, "env.json": None}  # None: without a number; others have FORMAT
_KINDS: dict[str, dict[str, Any]] = {
    "done.json": {"steps": int, "tokens": _NUMBER, "flops": dict, "seconds": _NUMBER, "final": dict},
    "error.json": {"kind": str, "message": str, "time": str},
    "wanted.json": {"scores": list},
    "point.json": {"step": int, "mark": str, "tokens": _NUMBER, "flops": dict, "encoder": dict, "heads": dict},
    "scores": {"task": str, "metric": str, "seed": int, "value": (*_NUMBER, type(None))},
    "failures": {"task": str, "seed": int, "kind": str, "message": str, "time": str},
}
_FACTS: dict[str, dict[str, Any]] = {  # fields by which these files are recognised
    "plan.json": {"steps": _NUMBER, "tokens": _NUMBER, "flops": dict},
    "env.json": {"versions": dict, "machine": dict},
}
LOOKS = 5  # most checks of a run, if its manifest is replaced during each of them
POINT = re.compile(r"\d{8,}")  # the name of a point's folder is its step


def reason(error: Exception) -> str:
    """Return a short phrase about an exception."""
    if isinstance(error, FileNotFoundError):
        return f"{Path(str(error.filename)).name} is missing"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename)).name} cannot be read: {error.strerror}"
    return str(error)


@dataclass
class Contents:
    """The JSON files of a run that were read to check it: `records` by name, `entries` as a manifest has them."""

    folder: Path
    entries: manifest.Entries = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def read(self, name: str) -> dict[str, Any]:
        """Return the object in a file, and keep it. Raises ValueError if its hash, run, format or fields are wrong."""
        value, self.entries[name] = read_hashed(self.folder / name, format=_FORMATS.get(name, FORMAT))
        if name != "spec.json" and (owner := value.pop("run_id", None)) != self.folder.name:
            raise ValueError(f"{name} belongs to the run {ascii(owner)[:80]}")
        parts = name.split("/")  # the kind of a file is its name, or the name of its folder, also within a point
        inner = parts[2:] if parts[0] == "points" else parts
        check_fields(name, value, _KINDS.get(inner[0] if inner else "", {}))
        self.records[name] = value
        return value

    def read_spec(self) -> dict[str, Any]:
        """Return the content of spec.json, and keep it. Raises ValueError if it is damaged or another folder's."""
        raw = self.read("spec.json")
        if not isinstance(raw.get("spec"), dict) or not isinstance(raw.get("identity_sha"), str):
            raise ValueError("spec.json lacks the spec or its hash")
        if raw.get("run_id") != self.folder.name:
            raise ValueError(f"spec.json belongs to the run {ascii(raw.get('run_id'))[:80]}")
        if raw.get("spec_sha") != digest(raw["spec"], 64):
            raise ValueError("spec.json has changed since it was written (its hash differs)")
        return raw

    def named(self, inner: str) -> list[str]:
        """Return the names of the records in the folder `inner`: first those after training, then those during it."""
        return [name for name in self.records if f"/{inner}/" in f"/{name}"]


def check_fields(name: str, value: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise ValueError if a field is missing or of another type than in `kinds`; lists must contain only strings."""
    for key, kind in kinds.items():
        content = value.get(key, ...)
        strings = not isinstance(content, list) or all(isinstance(item, str) for item in content)
        if not isinstance(content, kind) or isinstance(content, bool) or not strings:
            raise ValueError(f"{name} has no usable {key!r}")


def points(folder: Path) -> list[str]:
    """Return the places of a run's points, with which the names of their files begin: "points/00000100/", in order."""
    try:
        names = sorted((name for name in os.listdir(folder / "points") if POINT.fullmatch(name)), key=int)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [f"points/{name}/" for name in names]


def score_names(folder: Path, inner: str) -> list[str]:
    """Return the names of all scores with a file in the folder `inner`: "CoLA.json", "points/00000100/CoLA.json"."""
    return [place + name for place in ("", *points(folder)) for name in json_names(folder / place, inner)]


def check_score_name(name: str) -> None:
    """Raise InputError if this is not a valid name of a score, either of the end of training or of a point."""
    place, _, file = name.rpartition("/")
    at_point = place.startswith("points/") and POINT.fullmatch(place.removeprefix("points/"))
    checked_name(file if at_point else name, "the name of a score")


def inside(inner: str, name: str) -> str:
    """Return the path of a score's file: "CoLA.json" is in "scores/CoLA.json" if `inner` is "scores".

    "points/00000100/CoLA.json" is in "points/00000100/scores/CoLA.json".
    """
    place, slash, file = name.rpartition("/")
    return f"{place}{slash}{inner}/{file}"


def json_names(folder: Path, inner: str) -> list[str]:
    """Return the names of the JSON files in the folder `inner`. Raises InputError if that is a link, or OSError."""
    if (folder / inner).is_symlink():
        raise InputError(f"{inner} is a symbolic link")
    try:
        return sorted(name for name in os.listdir(folder / inner) if name.endswith(".json") and name[0] != ".")
    except FileNotFoundError:
        return []


def weights_digest(done: Mapping[str, Any], part: str) -> str:
    """Return one hash over the files of a run's "encoder" or "heads", which its scores record."""
    return digest(done.get(part, {}), 64)


def fault(folder: Path, full: bool = False) -> str | None:
    """Return how a run's folder is damaged, as `look` does."""
    return look(folder, full)[0]


def look(folder: Path, full: bool = False) -> tuple[str | None, Contents]:
    """Return how a run's folder is damaged, or None, and the JSON files that were read to find out; never raises.

    Every JSON file is compared with its own hash, and other files with their size in the manifest, and with their hash
    there if they changed after training ended, by the times of the disk; with `full`, all files are compared with their
    hashes.
    """
    for _ in range(LOOKS):
        before = stamp(folder / manifest.NAME)
        contents = Contents(folder)
        try:
            damage = _fault(contents, full)
        except (ValueError, OSError, ArithmeticError, TypeError) as error:
            damage = reason(error)
        if damage is None or before == stamp(folder / manifest.NAME):
            break
    return damage, contents


def stamp(path: Path) -> tuple[int, int] | None:
    """Return a value that differs once a file has been replaced; None if there is no file."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino


def _fault(contents: Contents, full: bool) -> str | None:
    folder = contents.folder
    checked_name(folder.name, "the name of a run")
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        return "is a link or a file instead of a folder"
    parse_stored(json.dumps(contents.read_spec()["spec"]))
    if os.listdir(folder) == ["spec.json"]:
        return None
    if linked := _not_folder(folder, (*manifest.FOLDERS, *manifest.COPIES, "unfinished")):
        return linked
    for name in ("plan.json", "env.json", "error.json", "wanted.json", "done.json"):
        with contextlib.suppress(FileNotFoundError):  # an owner may delete a file in the meantime
            check_fields(name, contents.read(name), _FACTS.get(name, {}))
    wanted = contents.records.get("wanted.json", {})
    for name in (*wanted.get("scores", ()), *wanted.get("points", ())):
        check_score_name(name)
    done = contents.records.get("done.json")
    listed = manifest.read(folder) if done is not None else None
    damage = _scores_fault(contents, done) or _points_fault(contents)
    damage = damage or _missing(folder, contents.records, listed is not None)
    if damage is None and listed is not None:
        # done.json is written last. Unless `full`, files that have not changed since are compared by their size alone.
        since = 0 if full else os.lstat(folder / "done.json").st_ctime_ns
        differences = manifest.differences(folder, listed, since, contents.entries)
        damage = next((each.what for each in differences if each.kind != "spared"), None)
    return damage or _rows_fault(folder / "metrics.jsonl")


def _not_folder(folder: Path, names: Iterable[str]) -> str | None:
    for name in names:
        try:
            own_folder(folder / name)
        except InputError:
            return f"{name} is a link or a file instead of a folder"
    return None


def _scores_fault(contents: Contents, weights: Mapping[str, Any] | None, place: str = "") -> str | None:
    for name in json_names(contents.folder / place, "scores"):
        if damage := _score_fault(contents, name, weights, place):
            return damage
    for name in json_names(contents.folder / place, "failures"):
        checked_name(name, "the name of a score")
        contents.read(f"{place}failures/{name}")
    return None


def _points_fault(contents: Contents) -> str | None:
    for place in points(contents.folder):
        inner = ("", "encoder", "heads", "scores", "failures", "predictions")
        try:
            damage = _not_folder(contents.folder, [f"{place}{name}" for name in inner])
            damage = damage or _scores_fault(contents, contents.read(f"{place}point.json"), place)
        except (ValueError, OSError) as error:
            damage = reason(error)
        if damage:
            return damage if place in damage else place + damage
    return None


def _missing(folder: Path, records: dict[str, dict[str, Any]], has_manifest: bool) -> str | None:
    for name in ("lease", "metrics.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(folder / name).st_mode):
                return f"{name} is not a regular file"
    done = records.get("done.json")
    if done is not None:
        return None if has_manifest else f"{manifest.NAME} is missing"
    if json_names(folder, "scores") and os.path.lexists(folder / manifest.NAME):
        return "done.json is missing"
    lost = next((name for name in ("plan.json", "env.json") if name not in records), None)
    with contextlib.suppress(OSError):  # no checkpoints; plan.json and env.json are written before the first
        if lost and any(name.startswith("step-") for name in os.listdir(folder / "checkpoints")):
            return f"{lost} is missing"
    return None


def weights_fault(folder: Path, place: str) -> str | None:
    """Return which file of a point's weights differs from the point's record, and how, or None; never raises."""
    try:
        point = Contents(folder).read(f"{place}point.json")
        for part in ("encoder", "heads"):
            for file in sorted({*os.listdir(folder / place / part), *point[part]}):
                name = f"{place}{part}/{file}"
                try:
                    with atomic.open_regular(folder / name) as content:
                        changed = atomic.sha256_unless_stopped(content) != point[part].get(file)
                except ValueError as error:
                    return f"{name} {error}"
                if changed:
                    return f"{name} has changed since it was written"
    except (ValueError, OSError) as error:
        return reason(error)
    return None


def _score_fault(contents: Contents, name: str, done: Mapping[str, Any] | None, place: str = "") -> str | None:
    """Return how a score is damaged, misplaced or of other weights than `done` records, or None. Raises ValueError."""
    checked_name(name, "the name of a score")
    path = f"{place}scores/{name}"
    score = contents.read(path)
    check_fields(path, {"values": {}, "baselines": {}} | score, {"values": dict, "baselines": dict})
    stated = [part[score["metric"]] for part in score.get("values", {}).values() if score["metric"] in part]
    if stated and score["value"] not in stated:
        return f"{path} has a value that is not among its values"
    if isinstance(sha := score.get("digest"), str) and name != score_file(score["task"], sha, score["seed"]):
        return f"{path} is the score of {ascii(score['task'])[:80]} with seed {score['seed']}"
    if done is not None and score.get("encoder") != weights_digest(done, "encoder"):
        return f"{path} is the score of another encoder"
    if done is not None and "heads" in score and score["heads"] != weights_digest(done, "heads"):
        return f"{path} is the score of other heads"
    return None


def _rows_fault(path: Path) -> str | None:
    """Return that the first line of metrics.jsonl is no row, or None; `rows` checks every line."""
    if not os.path.lexists(path):
        return None
    with path.open("rb") as file:
        head = file.readline(atomic.LONGEST_LINE)
    whole = head.endswith(b"\n") or len(head) == atomic.LONGEST_LINE
    return "metrics.jsonl is damaged in its first line" if whole and row(head) is None else None


def last_line(file: BinaryIO) -> tuple[bytes, bytes]:
    """Return the last complete line of a file without its line break, b"" if there is none, and the bytes after it.

    At most LONGEST_LINE bytes of both are read, so that no file fills memory.
    """
    end = atomic.line_start(file.fileno(), file.seek(0, os.SEEK_END))
    start = atomic.line_start(file.fileno(), end - 1) if end else 0
    file.seek(start)
    line = file.read(min(end - start, atomic.LONGEST_LINE)).removesuffix(b"\n")
    file.seek(end)
    return line, file.read(atomic.LONGEST_LINE)


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a folder, by name; empty if there is no folder. Raises InputError."""
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            found[path.name] = atomic.sha256(path)
        except (ValueError, OSError) as error:
            raise DamagedRun(f"{path} cannot be read: {reason(error)}; move the run's folder away") from None
    return found


def row(line: bytes) -> dict[str, Any] | None:
    """Return the row in a line of metrics.jsonl, or None if the line is not a row of metrics."""
    try:
        value = loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and type(value.get("step")) is int else None


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a metrics.jsonl without an incomplete last line. Raises InputError naming a damaged line."""
    try:
        file = atomic.open_regular(path)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise DamagedRun(f"{path} {error}") from None
    with file:
        for number, line in enumerate(atomic.lines_of(file), 1):
            value = row(line)
            if value is None:
                raise DamagedRun(
                    f"{path}, line {number}: is not a row of metrics; the file is damaged there, so move the run's "
                    f"folder away and give the same command again"
                )
            yield value
