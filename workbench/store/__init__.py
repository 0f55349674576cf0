"""Files on disk: the store of runs with a folder for each run, the cache, leases, and checks for damage."""
