"""The warnings of a report: what weakens a comparison, found in its scores, runs and logs."""
