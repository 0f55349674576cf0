"""Which runs a command asks for, and how they are carried out: by workers, in a search, or with seeds added."""
