"""Sphinx settings of the documentation site; `make docs` builds it with every warning as an error."""

from __future__ import annotations

import workbench

project = "workbench"
author = "The workbench developers"
copyright = "2026, the workbench developers"
release = workbench.__version__

root_doc = "docs/index"
include_patterns = ["docs/**", "build/pages/*.md", "CONTRIBUTING.md", "CHANGELOG.md", "reports/kept/README.md"]
exclude_patterns = [".venv", "build/site", "dist", "runs*", "mutants", "wandb", "tests", "workbench", "experiments"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "literal"  # of docstrings, whose single backquotes are code
smartquotes = False
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other projects, whose sites cannot be asked when this one is built
suppress_warnings = ["myst.header"]  # a page of the log begins with dates

html_theme = "furo"
html_title = "workbench"
html_show_sourcelink = False
