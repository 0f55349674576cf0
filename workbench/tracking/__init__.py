"""What a run logs: `metrics.jsonl` first, always and at once; then a copy elsewhere that may fail without harm."""

from workbench.tracking.metrics_file import Metrics
from workbench.tracking.sidecar import Mirror, mirror

__all__ = ["Metrics", "Mirror", "mirror"]
