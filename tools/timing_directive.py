"""The directive ``timing`` of the documentation: a unit's timing diagram from docs/timing."""

import json

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinxcontrib.yowasp_wavedrom import wavedrom_diagram

from tools.timing import TIMING


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
        node = wavedrom_diagram("", name=name, src=diagram, loc=f"{path}")
        return [node, nodes.paragraph("", caption)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive to a site."""
    app.add_directive("timing", TimingDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
