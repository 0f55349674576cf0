"""Sphinx settings of the documentation site; `make docs` builds it with every warning as an error."""

from __future__ import annotations

import shutil
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

import workbench

ROOT = Path(__file__).parents[1]

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
html_static_path = ["static"]
html_css_files = ["theme.css"]

# Pages of record, which have nearly every word and so would be found before the page that explains it.
NOT_SEARCHED = ("docs/log", "docs/mutants", "docs/drills", "docs/decisions/0", "CHANGELOG")


def leave_out_of_search(app: Sphinx, _: nodes.document) -> None:
    """Mark a page of record as `nosearch`, which a line in the page itself would show wherever else it is read."""
    if app.env.docname.startswith(NOT_SEARCHED):
        app.env.metadata[app.env.docname]["nosearch"] = ""


def copy_kept_reports(app: Sphinx, error: Exception | None) -> None:
    """Put the kept reports, which are whole pages of their own, where the links of reports/kept/README.md lead."""
    if error is None:
        for page in (ROOT / "reports" / "kept").glob("*/index.html"):
            place = Path(app.outdir, page.parent.relative_to(ROOT))
            shutil.copytree(page.parent, place, dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Register what is done to each page that is read, and after the build."""
    app.connect("doctree-read", leave_out_of_search)
    app.connect("build-finished", copy_kept_reports)
