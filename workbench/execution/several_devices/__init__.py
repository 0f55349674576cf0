"""One run on several devices: the processes that compute it, and what the others do for the first."""
