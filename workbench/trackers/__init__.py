"""Copies of runs in trackers, which may fail without harm to the runs."""

from workbench.trackers._mirror import Mirror, mirror

__all__ = ["Mirror", "mirror"]
