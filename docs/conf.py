"""Settings of the documentation's site, which `make docs` builds into build/docs."""

project = "Celosia"
author = "The Celosia authors"
html_title = "Celosia"
html_theme = "furo"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinxcontrib.yowasp_wavedrom",
    "tools.timing_directive",
]
exclude_patterns = ["reports"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": False}


def setup(app):
    """Let a command's words with bars, such as <|endoftext|>, be text."""

    def escape(_app, _context, lines):
        lines[:] = [line.replace("|", r"\|") for line in lines]

    app.connect("sphinx-click-process-options", escape)
