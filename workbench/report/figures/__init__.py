"""The figures of a page, each one SVG element drawn with matplotlib."""
