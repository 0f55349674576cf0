"""What a run logs: `metrics.jsonl` first and at once, then a copy in a tracker, which may fail without harm."""

from workbench.tracking.metrics_file import Metrics
from workbench.tracking.sidecar import Mirror, mirror

__all__ = ["Metrics", "Mirror", "mirror"]
