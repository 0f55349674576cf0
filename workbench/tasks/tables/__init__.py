"""Tables of a user as tasks: rows with their labels, and folds for tables without rows to test on."""
