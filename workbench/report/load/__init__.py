"""Reading of run directories into tables of runs, scores and training curves, and the names that a report uses."""
