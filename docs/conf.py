"""Settings of the documentation's site, which `make docs` builds into build/docs."""

from pathlib import Path

from celosia.generators.export.registers import pages

project = "Celosia"
author = "The Celosia authors"
html_title = "Celosia"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["celosia.css"]
html_show_copyright = False

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
    """Let a command's words with bars, such as <|endoftext|>, be text; add PeakRDL's pages."""

    def escape(_app, _context, lines):
        lines[:] = [line.replace("|", r"\|") for line in lines]

    app.connect("sphinx-click-process-options", escape)

    def add_registers(app, failure):
        if failure is not None or app.builder.format != "html":
            return
        for name, content in pages().items():
            path = Path(app.outdir, "peakrdl", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        with Path(app.outdir, "peakrdl", "css", "layout.css").open("a", encoding="utf-8") as style:
            style.write("table { display: block; max-width: calc(100vw - 60px); ")
            style.write("overflow-x: auto; width: fit-content; }\n")

    app.connect("build-finished", add_registers)
