"""Jobs of a cluster that carry out the runs of a command."""
