"""How Sphinx builds the site; the guides are Markdown, and `nox -s docs` runs their code first."""

project = "fiveloop"
author = "the fiveloop authors"
release = "0.1.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Docstrings put code between single backquotes.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_use_type_comments = False

html_theme = "furo"
html_title = "fiveloop"
nitpicky = False
