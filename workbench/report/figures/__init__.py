"""Figures of a report, drawn with matplotlib; each is one SVG element of the page."""
