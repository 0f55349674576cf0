"""Large text in slices: cut by its sizes alone, encoded by any number of processes, and put together by reference."""
