"""TensorBoard: event files in each run's folder, which `tensorboard --logdir runs` shows.

Every number is a scalar of double precision, so that FLOPs and losses are read back as they are; settings are in the
tab of hyperparameters, notes and tags are texts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workbench.trackers import Row, Score, TrackedRun, missing

ENDS = {"done": "STATUS_SUCCESS", "failed": "STATUS_FAILURE", "diverged": "STATUS_FAILURE"}
available = partial(missing, "tensorboard")


class Copy:
    """The open copy of one run. Its event file holds the whole run."""

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2.Event, summary_pb2
        self._tensor, self._types = tensor_pb2.TensorProto, types_pb2
        self._names, self._session, self._status = metadata, plugin_data_pb2, api_pb2.Status
        self._run, self._last, self._started = run, 0, run.started
        folder = run.folder / "tensorboard"
        folder.mkdir(exist_ok=True)
        self._former = list(folder.glob("events.out.tfevents.*"))
        self._writer = EventFileWriter(str(folder), flush_secs=5)
        # Readers that have seen a former file drop its steps, since they are all written again.
        self._add(session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START), step=1)
        begun = plugin_data_pb2.SessionStartInfo(group_name=run.run_id, start_time_secs=run.started)
        for key, value in run.config.items():
            if isinstance(value, bool):
                begun.hparams[key].bool_value = value
            elif isinstance(value, int | float):
                begun.hparams[key].number_value = value
            elif value is not None:
                begun.hparams[key].string_value = str(value)
        self._hyperparameters(metadata.SESSION_START_INFO_TAG, session_start_info=begun)
        if run.reached == 0:
            self._replace()

    def log(self, rows: Sequence[Row]) -> None:
        """Add rows; once all that were there at the beginning are added, former files are deleted."""
        for row in rows:
            self._last = int(row["step"])
            self._scalars(row.items(), self._last, self._started + row.get("seconds", 0.0))
        if self._last >= self._run.reached:
            self._replace()

    def finish(self, scores: Sequence[Score], files: Mapping[str, Path]) -> None:
        """Add scores at the steps of their encoders, notes, tags and state. Files have no place in event files."""
        at: dict[int, list[tuple[str, float]]] = {}
        for each in scores:
            at.setdefault(self._last if each.step is None else each.step, []).append((each.name, each.value))
        for step in sorted(at):
            self._scalars(at[step], step, time.time())
        run = self._run
        texts = {"study": run.study, "tags": ", ".join(run.tags), "notes": run.notes, "state": run.state}
        for name, text in texts.items():
            if text:
                self._text(name, text)
        ended = self._session.SessionEndInfo(
            status=self._status.Value(ENDS.get(run.state, "STATUS_UNKNOWN")), end_time_secs=time.time()
        )
        self._hyperparameters(self._names.SESSION_END_INFO_TAG, session_end_info=ended)
        self._replace()
        self._writer.close()

    def _replace(self) -> None:
        """Delete the files of former copies, after this one is on disk."""
        if self._former:
            self._writer.flush()
        for path in self._former:
            path.unlink(missing_ok=True)
        self._former = []

    def _scalars(self, values: Iterable[tuple[str, float]], step: int, at: float) -> None:
        metadata = self._metadata("scalars")
        found = [
            self._summary.Summary.Value(
                tag=name, metadata=metadata, tensor=self._tensor(dtype=self._types.DT_DOUBLE, double_val=[value])
            )
            for name, value in values
        ]
        self._add(summary=self._summary.Summary(value=found), step=step, wall_time=at)

    def _text(self, name: str, text: str) -> None:
        tensor = self._tensor(dtype=self._types.DT_STRING, string_val=[text.encode()])
        tensor.tensor_shape.dim.add(size=1)
        value = self._summary.Summary.Value(tag=name, metadata=self._metadata("text"), tensor=tensor)
        self._add(summary=self._summary.Summary(value=[value]))

    def _hyperparameters(self, tag: str, **content: Any) -> None:
        """Add an entry of the plug-in for hyperparameters, as its own functions do, which need TensorFlow."""
        data = self._session.HParamsPluginData(version=self._names.PLUGIN_DATA_VERSION, **content)
        metadata = self._metadata(self._names.PLUGIN_NAME, data.SerializeToString())
        value = self._summary.Summary.Value(tag=tag, metadata=metadata, tensor=self._names.NULL_TENSOR)
        self._add(summary=self._summary.Summary(value=[value]))

    def _metadata(self, plugin: str, content: bytes = b"") -> Any:
        data = self._summary.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
        return self._summary.SummaryMetadata(plugin_data=data)

    def _add(self, **content: Any) -> None:
        self._writer.add_event(self._event(**{"wall_time": self._started, **content}))


open = Copy
