"""From a command to its runs, and how these are carried out: by workers, in a search, or with seeds added."""
