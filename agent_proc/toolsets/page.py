"""The text of an HTML page (pure): what a reader sees, its links included.

The time is linear in the length of a page, whatever it holds; that of the standard library's parser is its square for
pages that are made to hurt.
"""

import html
import re
from urllib.parse import urljoin

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_HREF = re.compile(r"""(?:^|\s)href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_HIDDEN = frozenset({"script", "style", "template", "svg", "iframe", "object"})
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "dd", "details", "div", "dl", "dt", "fieldset"),
        *("figcaption", "figure", "footer", "form", "head", "header", "hr", "li", "main", "nav", "ol", "option", "p"),
        *("pre", "section", "summary", "table", "title", "tr", "ul", "h1", "h2", "h3", "h4", "h5", "h6"),
    )
)
_CELLS = frozenset({"td", "th"})
_APART = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6"})
_MARKS = {"li": "- ", **{f"h{level}": "#" * level + " " for level in range(1, 7)}}
_BLANKS = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"\n[ \n]*\n")


def page_text(page: str, url: str) -> str:
    """Return the text of a page; a link's target follows its text, in angle brackets.

    Args:
        page: the HTML.
        url: where it comes from; links are relative to that.
    """
    return _Page(page, url).text()


class _Page:
    def __init__(self, page: str, url: str) -> None:
        self._page = page
        self._url = url
        self._pieces: list[str] = []
        self._links: list[str] = []
        self._kept = 0
        """How many elements are open in which blanks and line ends stay."""

    def text(self) -> str:
        at = 0
        while (start := self._page.find("<", at)) >= 0:
            self._say(self._page[at:start])
            at = self._after(start)
        self._say(self._page[at:])
        lines = (line.rstrip() for line in "".join(self._pieces).split("\n"))
        return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()

    @property
    def _begins(self) -> bool:
        """Whether a blank is of no use here."""
        return not self._pieces or self._pieces[-1].endswith(("\n", " "))

    def _after(self, start: int) -> int:
        """Take what begins at an angle bracket and return where it ends."""
        page = self._page
        if page.startswith("<!--", start):
            return self._end_of("-->", start + 4)
        if page.startswith(("<!", "<?"), start):
            return self._end_of(">", start)
        tag = _TAG.match(page, start)
        if tag is None:
            self._say("<")
            return start + 1
        end = self._end_of(">", tag.end())
        name = tag[2].lower()
        if name in _HIDDEN and not tag[1]:
            closing = re.compile(f"</{name}", re.IGNORECASE).search(page, end)
            return self._end_of(">", closing.end()) if closing else len(page)
        if tag[1]:
            self._close(name)
        else:
            self._open(name, page[tag.end() : end])
        return end

    def _end_of(self, mark: str, start: int) -> int:
        found = self._page.find(mark, start)
        return len(self._page) if found < 0 else found + len(mark)

    def _open(self, name: str, attributes: str) -> None:
        self._break(name)
        if mark := _MARKS.get(name):
            self._pieces.append(mark)
        self._kept += name == "pre"
        if name == "a":
            self._links.append(self._target(attributes))

    def _close(self, name: str) -> None:
        if name == "a" and self._links and (target := self._links.pop()):
            self._pieces.append(f" <{target}>")
        self._kept = max(0, self._kept - (name == "pre"))
        self._break(name)

    def _break(self, name: str) -> None:
        if name in _BLOCKS:
            self._pieces.append("\n\n" if name in _APART else "\n")
        elif name in _CELLS and not self._begins:
            self._pieces.append(" ")

    def _target(self, attributes: str) -> str:
        found = _HREF.search(attributes)
        given = html.unescape(next(filter(None, found.groups()), "")) if found else ""
        try:
            target = urljoin(self._url, given.strip())
        except ValueError:
            return ""
        return target if given and not given.startswith("#") and target.startswith(("http://", "https://")) else ""

    def _say(self, text: str) -> None:
        said = html.unescape(text)
        if not self._kept:
            said = _BLANKS.sub(" ", said)
            said = said.lstrip() if self._begins else said
        if said:
            self._pieces.append(said)
