"""What the tests know of a finished page and its tables: parsed with the standard library only."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "hr", "img", "input"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def find(self, tag: str) -> list[Element]:
        found = [self] if self.tag == tag else []
        return found + [e for c in self.children if isinstance(c, Element) for e in c.find(tag)]

    def by_id(self, name: str) -> Element:
        return next(e for e in self.everything() if e.attributes.get("id") == name)

    def everything(self) -> list[Element]:
        return [self, *(e for c in self.children if isinstance(c, Element) for e in c.everything())]


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack = [Element("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of {tag} is there twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].children.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack[-1].tag == tag, f"<{self.stack[-1].tag}> is closed by </{tag}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.stack[-1].children.append(data)


def page(path: Path) -> Element:
    """The page as a tree. Fails on tags that do not nest."""
    tree = _Tree()
    tree.feed(path.read_text(encoding="utf-8"))
    tree.close()
    assert len(tree.stack) == 1, f"<{tree.stack[-1].tag}> is never closed"
    return tree.stack[0]


def sheet(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
