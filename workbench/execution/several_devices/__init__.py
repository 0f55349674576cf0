"""One run on several devices: its processes, of which the first one decides and the others follow."""
