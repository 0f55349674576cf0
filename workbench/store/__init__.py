"""What is on disk: the run store, one directory for each run, the cache, leases and checks against damage."""
