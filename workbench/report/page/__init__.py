"""The HTML page: what was found, in sentences, tables and figures, in one file that loads nothing."""
