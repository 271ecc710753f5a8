"""Makes Markdown tables, and replaces generated text in pages."""

from collections.abc import Iterable, Sequence

from celosia.arch.errors import InputError


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with the column names ``head`` and a line for each row of cells."""
    first, *lines = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *lines])


def between(page: str, name: str, content: str) -> str:
    """Return the text of ``page`` with ``content`` in place of a section of generated text.

    The section is between the comments ``NAME: begin`` and ``NAME: end``, in which NAME is
    ``name``. Raises :class:`InputError` if the page does not have each comment exactly once.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise InputError(f"The page must have one place between {begin.strip()} and {end}")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{content}\n\n{end}{rest.split(end)[1]}"
