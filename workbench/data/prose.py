"""The English in a docstring: reStructuredText, numpydoc and Google conventions become plain paragraphs.

Examples, code, tables, formulas, references and bare lists of names are dropped, since they are not English.
Standard library only: it runs in worker processes that must start fast.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

KEPT_DIRECTIVES = {"note", "warning", "tip", "hint", "important", "attention", "caution", "danger", "admonition"}
DROPPED_SECTIONS = {"references", "bibliography", "methods"}
EXAMPLE_SECTIONS = {"example", "examples", "usage"}  # indented code without a prompt follows
ITEM_SECTIONS = {
    "parameters", "other parameters", "returns", "return", "yields", "raises", "warns", "attributes", "receives",
    "see also", "args", "arguments", "keyword args", "keyword arguments", "kwargs",
}  # fmt: skip
STOPWORDS = {
    "a", "an", "the", "of", "to", "in", "is", "are", "be", "for", "and", "or", "if", "this", "that", "with", "as",
    "by", "it", "on", "from", "not", "can", "when", "will", "which", "at", "has", "was",
}  # fmt: skip
UNDERLINE = re.compile(r"^([=\-~^*\"#+`.])\1{2,}$")
TABLE = re.compile(r"^(?=.{5,})[=+|\- ]*(==|--|\+)[=+|\- ]* [=+|\- ]*$|^\+[-=+]{3,}$|^\|.*\|$")
DIRECTIVE = re.compile(r"^\.\.(?: ([\w:-]+)::)?(?:\s+(.*))?$")
BULLET = re.compile(r"^(?:[-*•+]|\(?\d{1,2}[.)]|#\.)\s+(?=\S)")
FIELD = re.compile(r"^:(?:param|parameter|arg|keyword|raises?|ivar|cvar|var)\s+(?:[\w.\[\], ]+ )?\*{0,2}([\w.]+):\s*")
BARE_FIELD = re.compile(r"^:(?:returns?|yields?)\s*:\s*")
DROPPED_FIELD = re.compile(r"^:(?:r?type|vartype|meta)\b[^:]*:")
GOOGLE_ITEM = re.compile(r"^(\*{0,2}\w[\w.]*(?:, ?\*{0,2}\w+)*)\s*(?:\(.*?\))?\s*:\s+(?=\S)")
SELF = re.compile(r"(?<=\()\$(?:self|type|module)(?:, /)?(?:, )?")
SIGNATURE = re.compile(r"^[A-Za-z_][\w.]*\(.*\)(?:\s*(?:->|:).*)?$")
WORD = re.compile(r"^[(\"'\[]*[A-Za-z]+(?:['-][A-Za-z]+)*[)\"'\].,;:!?]*$")

INLINE: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"\s*\[(?:\d+|[A-Z][\w-]*\d+)\]_"), ""),  # references to footnotes and citations
    (re.compile(r":[\w:+-]+:`([^`<]*?)\s*<[^`]*>`"), r"\1"),  # roles with a title
    (re.compile(r":[\w:+-]+:`~?!?(?:[\w.]+\.)?([^`]*)`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}"), r"\1"),  # links
    (re.compile(r"``~?([^`]*?)``"), r"\1"),
    (re.compile(r"`~?([^`]*?)[`']_{0,2}"), r"\1"),
    (re.compile(r"\*\*(\w[^*]*)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(\w[^*]*)\*(?!\w)"), r"\1"),
    (re.compile(r"\|([^|\s][^|]*)\|_{0,2}"), r"\1"),
    (re.compile(r"%\((\w+)\)s|\$?\{(\w+)\}"), r"\1\2"),  # what a package fills in when it is imported
    (re.compile(r"\\([*_`|\\])"), r"\1"),
    (re.compile(r"\s+"), " "),
]  # fmt: skip


def split_signature(doc: str) -> tuple[str, str]:
    """The call written on a docstring's first lines ("abs(input, *, out=None) -> Tensor"), if any, and the rest."""
    lines = inspect.cleandoc(doc).split("\n")
    found = ""
    while lines and (not lines[0].strip() or SIGNATURE.match(lines[0].strip()) or lines[0].strip() == "--"):
        line = lines.pop(0).strip()
        found = found or line.partition(" ->")[0].rstrip(":") if line and line != "--" else found
    return SELF.sub("", found), "\n".join(lines)


def paragraphs(doc: str) -> list[str]:
    """The English paragraphs of a docstring, in order, each on one line."""
    found = _blocks(inspect.cleandoc(doc).split("\n"))
    return [text for text in (inline(block) for block in found) if is_english(text)]


def inline(text: str) -> str:
    """Without inline markup."""
    for pattern, replacement in INLINE:
        text = pattern.sub(replacement, text)
    return text.strip()


def is_english(text: str) -> bool:
    """Whether a paragraph is a sentence or several, and not code, a formula, a table or a list of names."""
    tokens = text.split()
    if len(tokens) < 3 or "TODO" in text or text.startswith(("@", "File:", "Copyright")):
        return False
    share = sum(WORD.match(token) is not None for token in tokens) / len(tokens)
    if len(tokens) < 7:
        return share >= 0.75 and tokens[-1][-1] == "." and text[0].isalpha()
    return share >= 0.65 and any(token.lower() in STOPWORDS for token in tokens)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _skip_body(lines: list[str], at: int, indent: int) -> int:
    """The index after the lines that are blank or indented deeper than `indent`."""
    while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
        at += 1
    return at


def _skip_block(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at].strip():
        at += 1
    return at


def _blocks(lines: list[str]) -> list[str]:
    """Paragraphs with their inline markup, in a single pass over the lines."""
    reader = _Reader(lines)
    while reader.at < len(lines):
        reader.read()
    reader.close()
    return reader.done


@dataclass
class _Reader:
    """Where the pass over a docstring's lines stands: the next line, the section, and the paragraph being read.

    `section` is "numpy" or "google" (items with an explanation each), "dropped", "examples" or nothing; `base` is the
    indentation of its items, -1 where they have none yet; `last` is the indentation of the last line of prose.
    """

    lines: list[str]
    at: int = 0
    done: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    section: str = ""
    base: int = -1
    last: int = 0

    def close(self) -> None:
        """End the paragraph being read."""
        if self.open:
            self.done.append(" ".join(self.open))
            self.open.clear()

    def read(self) -> None:
        """Read one line, with the lines below that belong to it. The first kind that it can be is what it is."""
        line = self.lines[self.at]
        text, indent = line.strip(), _indent(line)
        self.at += 1
        if not text:
            self.close()
            return
        kinds = (self._heading, self._heading_with_colon, self._dropped, self._code, self._directive, self._numpy_item)
        if not any(kind(text, indent) for kind in kinds):
            self._prose(text, indent)

    def _heading(self, text: str, indent: int) -> bool:
        """A heading with a line drawn under it."""
        below = self.lines[self.at].strip() if self.at < len(self.lines) else ""
        if not UNDERLINE.match(below) or UNDERLINE.match(text) or len(below) < min(4, len(text)):
            return False
        self.close()
        self.section = _section(text)
        self.base = indent if self.section == "numpy" else -1
        self.at += 1
        return True

    def _heading_with_colon(self, text: str, indent: int) -> bool:
        """A heading such as "Args:". Sections without items are passed over with all that is indented below them."""
        kind = _section(text[:-1].rstrip(": ")) if text[-1] == ":" and text[0].isupper() else ""
        if not kind:
            return False
        self.close()
        if kind != "numpy":
            self.at = _skip_body(self.lines, self.at, indent)
        self.section, self.base = "google" if kind == "numpy" else "", -1
        return True

    def _dropped(self, text: str, indent: int) -> bool:
        """A line of a section that is left out, or one drawn across; and the end of a section of Google's style."""
        if self.section == "google" and indent < self.base:
            self.section = ""
        return self.section == "dropped" or UNDERLINE.match(text) is not None

    def _code(self, text: str, indent: int) -> bool:
        """An example at a prompt, or a table, to the next blank line."""
        if not text.startswith((">>>", "In [", "$ ")) and not TABLE.match(" " * indent + text):
            return False
        self.close()
        self.at = _skip_block(self.lines, self.at)
        return True

    def _directive(self, text: str, indent: int) -> bool:
        """A directive with its body, of which only notes and their like are kept."""
        directive = DIRECTIVE.match(text) if text.startswith("..") else None
        if directive is None:
            return False
        self.close()
        end = _skip_body(self.lines, self.at, indent)
        if (directive[1] or "").lower() in KEPT_DIRECTIVES:
            self.done += self._within([directive[2] or "", *self.lines[self.at : end]])
        self.at = end
        return True

    def _numpy_item(self, text: str, indent: int) -> bool:
        """A name of a numpydoc section, with the explanation that is indented below it."""
        if self.section != "numpy" or indent > self.base:
            return False
        self.close()
        name, colon, rest = text.partition(" :" if " :" in text else ":")
        end = _skip_body(self.lines, self.at, indent)
        body = self._within(self.lines[self.at : end])
        if body and (colon or len(name.split()) <= 2):
            body[0] = f"{name}: {body[0]}"
        self.done += body or [f"{name}: {rest}" if colon else text] * is_english(rest if colon else text)
        self.at = end
        return True

    def _prose(self, text: str, indent: int) -> None:
        """A line of a paragraph; an item, a field, a bullet or one that stands further out begins a new paragraph."""
        item = GOOGLE_ITEM.match(text) if self.section == "google" else None
        if item and self.base in (-1, indent):
            self.close()
            self.base, text = indent, f"{item[1]}: {text[item.end() :]}"
        elif self.section == "google" and self.base == -1:
            self.base = indent
        elif DROPPED_FIELD.match(text):
            self.close()
            return
        elif found := FIELD.match(text) or BARE_FIELD.match(text):
            self.close()
            text = (f"{found[1]}: " if found.re is FIELD else "") + text[found.end() :]
        elif bullet := BULLET.match(text):
            self.close()
            text = text[bullet.end() :]
        elif indent < self.last:
            self.close()
        self.last = indent
        if text.endswith("::"):  # an example follows, indented
            self.open.append(text[:-1])
            self.close()
            self.at = _skip_body(self.lines, self.at, indent)
        else:
            self.open.append(text)

    @staticmethod
    def _within(lines: list[str]) -> list[str]:
        return _blocks(inspect.cleandoc("\n".join(lines)).split("\n"))


def _section(title: str) -> str:
    name = title.strip().lower()
    kinds = {"numpy": ITEM_SECTIONS, "dropped": DROPPED_SECTIONS, "examples": EXAMPLE_SECTIONS}
    return next((kind for kind, names in kinds.items() if name in names), "")
