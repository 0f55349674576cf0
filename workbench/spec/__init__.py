"""The settings of a run with their defaults, experiments made of runs, and how runs are carried out on a machine."""
