"""From run directories to tables: runs, scores and training curves, and what each is called in a report."""
