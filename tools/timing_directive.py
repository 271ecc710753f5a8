"""The directive ``timing`` of the documentation: a unit's timing diagram from docs/timing."""

import json

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator
from sphinxcontrib.yowasp_wavedrom import html_visit_wavedrom_diagram, wavedrom_diagram

from tools.timing import TIMING


class TimingDiagram(wavedrom_diagram):
    """A diagram with a caption, which is the picture's alternative text."""


class TimingDirective(Directive):
    """Show the diagram of a name, and below it a caption about the simulation."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the diagram and its caption."""
        (name,) = self.arguments
        path = TIMING / f"{name}.json"
        self.state.document.settings.record_dependencies.add(str(path))
        diagram = json.loads(path.read_text(encoding="utf-8"))
        caption = diagram.pop("caption")
        node = TimingDiagram("", name=name, src=diagram, loc=f"{path}", caption=caption)
        box = nodes.container("", node, classes=["timing"])
        return [box, nodes.paragraph("", caption)]


def visit(translator: HTML5Translator, node: TimingDiagram) -> None:
    """Write the diagram; the alternative text is the caption instead of the waves' source."""
    try:
        html_visit_wavedrom_diagram(translator, node)
    finally:
        start = translator.body[-1].partition("alt=")[0]
        translator.body[-1] = f'{start}alt="{translator.encode(node["caption"])}">'


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive to a site."""
    app.add_node(TimingDiagram, html=(visit, None))
    app.add_directive("timing", TimingDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
