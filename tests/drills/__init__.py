"""Drills: the figures of the reliability goals, at full size or reduced. `python -m tests.drills --help`."""
