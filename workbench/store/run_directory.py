"""The folder of a run: its files, its lease, and the state of the run, which is determined from these files alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from workbench.errors import DamagedRun, InputError, remedy
from workbench.spec.run_spec import parse_stored
from workbench.spec.stages import ResolvedSpec
from workbench.store import atomic, checkpoint, manifest, validation
from workbench.store.atomic import write_atomic
from workbench.store.lease import Lease, acquire
from workbench.store.owner import alive, read
from workbench.store.redact import redact
from workbench.store.validation import FORMAT

State = Literal["new", "running", "interrupted", "trained", "done", "failed", "diverged", "damaged"]
_RUNNING_TOTALS = ("step", "tokens", "flops", "seconds")


def now(timespec: Literal["seconds", "microseconds"] = "seconds") -> str:
    """Return the present time in UTC, in ISO 8601.

    Times of failures and of the start of commands are compared with each other, and so need microseconds.
    """
    return datetime.now(UTC).isoformat(timespec=timespec)


class Examined(NamedTuple):
    """The state of a run with a remark on it, and the JSON files that were read to determine it, by name."""

    state: State
    note: str
    records: dict[str, dict[str, Any]]


def damaged(path: Path, fault: str) -> DamagedRun:
    """Return the error for a run that is damaged and was to be used."""
    return DamagedRun(f"{path} is damaged: {fault}; {remedy(path, 'the command that trained it')}")


class RunDir:
    """A run on disk. Any process may read it; the process that trains holds the `lease`, which every write checks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.owner: Lease | None = None  # the lease, while this process holds it
        self._spec: ResolvedSpec | None = None

    def spec(self) -> ResolvedSpec:
        """Return the spec of the run. Raises InputError if spec.json is missing, damaged or of another format."""
        if self._spec is None:
            try:
                self.file("spec.json")
                raw = validation.Contents(self.path).read_spec()["spec"]
                self._spec = ResolvedSpec(parse_stored(json.dumps(raw)))
            except (ValueError, OSError) as error:
                raise damaged(self.path, validation.reason(error)) from None
        return self._spec

    # -- files

    def file(self, name: str) -> Path:
        """Return the path of a file of this run. Raises InputError for names outside its folder and for links."""
        path = self.path
        for part in name.split("/"):
            if path.is_symlink():
                raise InputError(f"{path} is a symbolic link, which a run's folder must not contain; move it away")
            path = path / atomic.checked_name(part, "the name of a file of a run")
        return path

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file of the run. Raises InputError if it is missing or damaged."""
        try:
            self.file(name)
            return validation.Contents(self.path).read(name)
        except (ValueError, OSError) as error:
            raise damaged(self.path, validation.reason(error)) from None

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Replace a JSON file in one step, with the run's id and a hash. Raises LeaseLost or OSError."""
        return self.write(name, atomic.sealed({**value, "run_id": self.run_id}))

    def write(self, name: str, data: bytes) -> Path:
        """Replace a file in one step, and update a finished run's manifest. Raises LeaseLost or OSError."""
        listed = self._unlist(name) if self.trained else None
        path = self._put(name, data)
        if listed is not None:
            self._list(listed | {name: manifest.entry(data)})
        return path

    def _put(self, name: str, data: bytes) -> Path:
        path = self.file(name)
        with self._guarded() as stage:
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, data, stage, self.check)
        return path

    def _list(self, files: manifest.Entries) -> None:
        self._put(manifest.NAME, atomic.sealed(manifest.content(self.run_id, files)))

    def _unlist(self, name: str) -> manifest.Entries | None:
        """Remove a file from the manifest of a finished run; return the other entries, None if none covers `name`."""
        if not manifest.covers(name):
            return None
        try:
            listed = manifest.read(self.path)
        except (ValueError, OSError) as error:
            raise DamagedRun(f"{self.path}: {validation.reason(error)}; move that folder away") from None
        if listed is not None and listed.pop(name, None) is not None:
            self._list(listed)
        return listed

    @contextlib.contextmanager
    def staged(self, name: str) -> Iterator[Path]:
        """Yield a new folder, which replaces `name`, such as "encoder", if the block ends without an error."""
        target = self.file(name)
        with atomic.disk_errors(target), self._guarded() as stage:
            target.parent.mkdir(exist_ok=True)
            draft = atomic.draft_in(stage or self.path)
            try:
                draft.mkdir()
                yield draft
                atomic.sync_tree(draft)
                atomic.place(draft, target, self.check, stage)
            finally:
                with contextlib.suppress(OSError):
                    atomic.discard(draft, stage)

    def remove(self, name: str) -> None:
        """Delete a file or folder of this run, if it exists, and remove a file's entry from the manifest."""
        path = self.file(name)
        if self.trained:
            self._unlist(name)
        with self._guarded() as stage:
            if os.path.lexists(path):
                atomic.discard(path, stage)

    # -- ownership

    @contextlib.contextmanager
    def lease(self, patience: float | None = None) -> Iterator[Lease]:
        """Hold the run's lease inside the block. Raises LeaseHeld if another process holds it (see `lease.acquire`)."""
        self.file("lease")
        with acquire(self.path, patience) as lease:
            self.owner = lease
            try:
                yield lease
            finally:
                self.owner = None

    def check(self) -> None:
        """Raise LeaseLost if this process acquired the run's lease and no longer holds it."""
        if self.owner is not None:
            self.owner.check()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[Path | None]:
        """Yield the lease's staging folder, None without a lease. Raises LeaseLost if the lease is lost meanwhile."""
        self.check()
        try:
            yield self.owner.stage if self.owner else None
        except FileNotFoundError:
            self.check()
            raise

    # -- results

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write done.json, which marks the run as trained; `facts` are steps, tokens, FLOPs and other results.

        `facts` may hold the hashes of an `encoder` outside of this folder, such as a published model's. Time and final
        metrics are added from the log. The manifest, with the size and SHA-256 of every file, is written first, so that
        later damage can be detected. Raises InputError if the log lacks a step, or if a file that was written earlier
        in training was changed meanwhile.
        """
        steps = int(facts["steps"])
        first = self.read_json("plan.json").get("first", 0) if os.path.lexists(self.path / "plan.json") else 0
        rows = self.rows_to(steps, first)
        last = rows[-1] if rows else {}
        tail = [row for row in rows if row["step"] > steps - max(1, round(0.05 * steps))]
        record = {
            "format": FORMAT,
            "encoder": validation.hashes(self.path / "encoder"),
            "heads": validation.hashes(self.path / "heads"),
            **facts,
            "seconds": last.get("seconds") or 0.0,
            "finished": now(),
            "metrics_bytes": log.stat().st_size if (log := self.path / "metrics.jsonl").exists() else 0,
            "final": {key: _mean(row.get(key) for row in tail) for key in last if key not in _RUNNING_TOTALS},
            "manifest": manifest.NAME,
            "run_id": self.run_id,
        }
        done = atomic.sealed(record)
        try:
            files = manifest.entries(self.path)
        except (ValueError, OSError) as error:
            raise DamagedRun(f"{self.path}: {validation.reason(error)}; move that folder away") from None
        self._check_progress()  # after the files were hashed, so that no hash is one of a damaged file
        self._list(files | {"done.json": manifest.entry(done)})
        self._put("done.json", done)

    def fail(
        self,
        kind: Literal["diverged", "failed"], message: str, step: int | None = None, where: str = "", trace: str = "",
    ) -> None:  # fmt: skip
        """Write why the run stopped to error.json, and a traceback to error.log, both without passwords and keys."""
        if trace:
            self.write("error.log", redact(trace).encode(errors="replace"))
        log = "error.log" if trace else None
        at = now("microseconds")
        record = {"kind": kind, "message": redact(message), "step": step, "where": where, "log": log, "time": at}
        self.write_json("error.json", {"format": FORMAT, **record})

    def error(self) -> dict[str, Any] | None:
        """Return why the run stopped, as written by `fail`, or None if it did not."""
        return self.read_json("error.json") if os.path.lexists(self.path / "error.json") else None

    def clear_error(self) -> None:
        """Delete error.json and error.log, when a failed run is tried again."""
        self.remove("error.json")
        self.remove("error.log")

    def want(self, scores: Iterable[str]) -> None:
        """List score files ("points/00000100/NAME.json" for a point's) that the run needs to be `done`."""
        named = set(scores)
        for name in named:
            validation.check_score_name(name)
        listed = self.read_json("wanted.json") if os.path.lexists(self.path / "wanted.json") else {}
        if not named <= (before := _wanted(listed)):
            every = sorted(named | before)
            listed = {"scores": [name for name in every if "/" not in name]}
            if of_points := [name for name in every if "/" in name]:
                listed["points"] = of_points
            self.write_json("wanted.json", {"format": FORMAT, **listed})

    def points(self) -> list[str]:
        """Return the places of the points at which weights were kept, such as "points/00000100/", in order."""
        return validation.points(self.path)

    def scores(self, place: str = "") -> dict[str, dict[str, Any]]:
        """Return every score by name, at the end or at the point `place`. Raises InputError for a damaged file."""
        names = validation.json_names(self.path / place, "scores")
        return {name: self.read_json(f"{place}scores/{name}") for name in names}

    def write_score(self, name: str, score: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
        """Write a score, with its files before it, and return the score, to which their sizes and hashes are added.

        The files are in `predictions`, under the name of the score with the keys of `files` in place of `.json`. If one
        of them cannot be written, those before it are removed. Raises LeaseLost if this process's lease was taken over,
        or OSError.
        """
        stem = validation.inside("predictions", name).removesuffix(".json")
        named = {f"{stem}{ending}": data for ending, data in files.items()}
        stated = {"files": {file: manifest.entry(data) for file, data in named.items()}} if named else {}
        written: list[str] = []
        try:
            for file, data in named.items():
                written.append(file)
                self.write(file, data)
            self.write_json(validation.inside("scores", name), {**score, **stated})
        except OSError:
            for file in written:
                with contextlib.suppress(OSError):
                    self.remove(file)
            raise
        return {**score, **stated}

    def has_weights(self, place: str = "") -> bool:
        """Return whether the folders of encoder and heads still exist; a user may delete them to save space."""
        return all((self.path / place / part).is_dir() for part in ("encoder", "heads"))

    def fail_score(
        self, name: str, task: str, seed: int, kind: str, message: str, trace: str = "", act: str = "fine-tuning"
    ) -> None:
        """Write to a file why an evaluation gave no score, and a traceback to a file beside it."""
        if trace:
            self.write(self.failure_log(name), redact(trace).encode(errors="replace"))
        at = now("microseconds")
        record = {"task": task, "seed": seed, "kind": kind, "message": redact(message), "time": at, "act": act}
        self.write_json(validation.inside("failures", name), {"format": FORMAT, **record})

    @staticmethod
    def failure_log(name: str) -> str:
        """Return the name of the file for the traceback of a failed evaluation."""
        return f"{validation.inside('failures', name).removesuffix('.json')}.log"

    def failure(self, name: str) -> dict[str, Any] | None:
        """Return why the last evaluation for this score failed, as written by `fail_score`, or None if it did not."""
        file = validation.inside("failures", name)
        return self.read_json(file) if os.path.lexists(self.path / file) else None

    def clear_failure(self, name: str) -> None:
        """Delete the files about a failed evaluation, when it is tried again or has succeeded."""
        self.remove(validation.inside("failures", name))
        self.remove(self.failure_log(name))

    def failures(self) -> dict[str, str]:
        """Return the names of the scores whose last evaluation failed, each with a sentence about the reason."""
        reasons = {}
        for name in validation.score_names(self.path, "failures"):
            with contextlib.suppress(InputError):  # an owner may delete a file in the meantime
                reasons[name] = _failure(self.read_json(validation.inside("failures", name)))
        return reasons

    def metrics(self) -> list[dict[str, Any]]:
        """Return all rows logged so far, without an incomplete last line. Raises InputError naming a bad line."""
        return list(validation.rows(self.file("metrics.jsonl")))

    def rows_to(self, step: int, after: int = 0) -> list[dict[str, Any]]:
        """Return all rows, if these are the rows of every step after `after` up to `step`; else raise InputError."""
        rows: list[dict[str, Any]] = []
        found = validation.rows(self.file("metrics.jsonl"))
        for expected, row in itertools.zip_longest(range(after + 1, step + 1), found):
            if row is None or row["step"] != expected:
                wrong = f"lacks the row of step {expected}" if expected else f"has rows after step {step}"
                raise DamagedRun(
                    f"{self.path / 'metrics.jsonl'} {wrong}, so the run cannot be continued; "
                    f"move its folder away and give the same command again"
                )
            rows.append(row)
        return rows

    def check_point(self, place: str) -> None:
        """Raise DamagedRun if a file of a point's weights differs from the point's record."""
        if fault := validation.weights_fault(self.path, place):
            raise DamagedRun(
                f"{self.path} is damaged: {fault}; move {place.rstrip('/')} away and give the same command again, "
                f"which goes on without scores at this point"
            )

    def _check_progress(self) -> None:
        """Raise DamagedRun if a point, a checkpoint, the log up to the last one, or a copy of a plug-in is damaged."""
        for point in self.points():
            self.check_point(point)
        for name, damage in checkpoint.faults(self.path / "checkpoints"):
            raise DamagedRun(
                f"{self.path} is damaged: {damage}; move checkpoints/{name} away and give the same command again"
            )
        spec = self.spec()
        for name, source in (("objective.py", spec.source), ("encoder.py", spec.encoder.source)):
            copy = self.path / name
            if source and copy.is_file() and not atomic.sha256(copy).startswith(source):
                raise DamagedRun(f"{copy} has changed since it was written; give the same command again")
        if fault := self.progress_damage():
            raise DamagedRun(f"{self.path} is damaged: {fault}; move that folder away and give the same command again")

    def progress_damage(self) -> str | None:
        """Return how an unfinished run's checkpoints, or the log up to the newest good one, are damaged, or None."""
        try:
            newest = checkpoint.newest(self.path / "checkpoints")
        except InputError as error:
            return str(error)
        if newest is None:
            return None
        if newest.state.get("run_id") != self.run_id:
            return f"{newest.path.name} is a checkpoint of the run {ascii(newest.state.get('run_id'))[:80]}"
        logged = newest.state.get("log")  # the size and SHA-256 of the log at that checkpoint
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if logged is None:
                return None
            with open(self.file("metrics.jsonl"), "rb") as file:
                if logged == manifest.entry(file.read(int(logged["bytes"]))):
                    return None
        return f"metrics.jsonl has changed in the rows before {newest.path.name}"

    def _weights_record(self, place: str) -> dict[str, Any]:
        """Return the record with the hashes of the weights, of the end of training or of the point at `place`."""
        return self.read_json(f"{place}point.json" if place else "done.json")

    def check_weights(self, part: str, place: str = "") -> None:
        """Raise InputError if a file of "encoder" or "heads" (of a point with `place`) differs from its hash."""
        stated = self._weights_record(place).get(part, {})
        present = validation.hashes(self.path / place / part)
        for name in sorted(stated.keys() | present.keys()):
            if stated.get(name) != present.get(name):
                how = "was not there when training ended" if name not in stated else "has changed since it was written"
                raise DamagedRun(
                    f"{self.path / place / part / name} {how if name in present else 'is missing'}; "
                    f"move the run's folder away and give the same command again"
                )

    def weight_digests(self, place: str = "") -> dict[str, str]:
        """Return the hashes that scores record: one over the encoder's files, and one over the heads'."""
        done = self._weights_record(place)
        return {part: validation.weights_digest(done, part) for part in ("encoder", "heads")}

    # -- state, determined from the files each time

    @property
    def state(self) -> State:
        """The present state of the run, determined from its files and stored nowhere."""
        return self.examine().state

    @property
    def note(self) -> str:
        """A remark on the state: the damage, the error, failed evaluations and warnings, or the running process."""
        return self.examine().note

    def summary(self, full: bool = False) -> dict[str, Any]:
        """Return the row of this run in `workbench status`; with `full` every file is compared with its hash."""
        examined = self.examine(full)
        return {"run_id": self.run_id, "state": examined.state, "note": examined.note, "path": str(self.path)}

    def examine(self, full: bool = False) -> Examined:
        """Return the run's state and the JSON files read for it; with `full` every file is hashed. Raises OSError."""
        damage, contents = validation.look(self.path, full)
        if damage:
            return Examined("damaged", damage, contents.records)
        done = contents.records.get("done.json")
        if full and done is None and not alive(self.path) and (damage := self.progress_damage()):
            return Examined("damaged", damage, contents.records)
        return Examined(*self._state(contents), contents.records)

    def _state(self, contents: validation.Contents) -> tuple[State, str]:
        if alive(self.path):
            return "running", f"by {holder}" if (holder := read(self.path)) else ""
        done, error = contents.records.get("done.json"), contents.records.get("error.json")
        if done is not None:  # a later failure is one of evaluation, not of the run
            failures = [_failure(contents.records[name]) for name in contents.named("failures")]
            return "done" if self._scored(contents) else "trained", "; ".join([*failures, *done.get("warnings", ())])
        if error is not None and error["kind"] == "diverged":
            return "diverged", error["message"]
        # Hashes are not compared, which would read gigabytes: `progress_damage` does that.
        faults = [
            f"{name} is damaged: {fault}" for name, fault in checkpoint.faults(self.path / "checkpoints", hashes=False)
        ]
        if error is not None:
            return "failed", "; ".join([error["message"], *faults])
        files = map(self.path.joinpath, ("metrics.jsonl", "checkpoints", "plan.json", "env.json", "lease"))
        begun = any(map(os.path.lexists, files))
        return "interrupted" if begun else "new", "; ".join(faults)

    @property
    def damage(self) -> str | None:
        """A phrase about the damage of the run's folder, or None. Never raises an error."""
        return validation.look(self.path)[0]

    @property
    def trained(self) -> bool:
        """Whether training has finished; scores may still be missing."""
        return os.path.lexists(self.path / "done.json")

    def check_trained(self, lacking: str) -> None:
        """Raise InputError if the run is damaged or not trained; `lacking` ends the sentence ("no model to export")."""
        if damage := self.damage:
            raise damaged(self.path, damage)
        if not self.trained:
            raise InputError(f"{self.run_id} is not trained ({self.state}), so there is {lacking}")

    def warnings(self) -> list[str]:
        """Return the warnings about a trained run's results, as they were written when training ended."""
        return list(self.read_json("done.json").get("warnings", ()))

    def _scored(self, contents: validation.Contents) -> bool:
        present = {name.removeprefix("scores/").replace("/scores/", "/") for name in contents.named("scores")}
        wanted = contents.records.get("wanted.json")
        if wanted and wanted["scores"]:
            return _wanted(wanted) <= present
        return bool(present) or self.spec().tasks.names in ((), ("none",))


def home_of(encoder: Path) -> tuple[RunDir, str]:
    """Return the run to which an encoder's folder belongs, and the place of its point, "" for the end of training."""
    home = encoder.parent
    if home.parent.name == "points" and validation.POINT.fullmatch(home.name):
        return RunDir(home.parent.parent), f"points/{home.name}/"
    return RunDir(home), ""


def _wanted(record: Mapping[str, Any]) -> set[str]:
    return {*record.get("scores", ()), *record.get("points", ())}


def _failure(record: Mapping[str, Any]) -> str:
    return f"{record['act']} on {record['task']} (seed {record['seed']}) {record['kind']}: {record['message']}"


def _mean(values: Iterable[Any]) -> float | None:
    numbers = [value for value in values if isinstance(value, (int, float))]
    return sum(numbers) / len(numbers) if numbers else None
