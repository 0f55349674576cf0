"""The rule by which a report says that one arm is ahead, with its intervals, corrections and power."""
