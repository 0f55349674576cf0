"""Large text in slices, here or on servers: cut by sizes alone, encoded by any processes, put together by reference."""
