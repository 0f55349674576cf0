"""The English in a docstring: reStructuredText, numpydoc and Google conventions become plain paragraphs.

Examples, code, tables, formulas, references and bare lists of names are dropped, since they are not English.
Standard library only: it runs in worker processes that must start fast.
"""

from __future__ import annotations

import inspect
import re

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
    """Paragraphs with their inline markup: a single pass over the lines, with the section as its only state."""
    done: list[str] = []
    open_: list[str] = []  # lines of the paragraph being read
    section, base, last = "", -1, 0  # kind of section, indentation of its items, indentation of the last line

    def close() -> None:
        if open_:
            done.append(" ".join(open_))
            open_.clear()

    at = 0
    while at < len(lines):
        line = lines[at]
        text, indent = line.strip(), _indent(line)
        following = lines[at + 1].strip() if at + 1 < len(lines) else ""
        at += 1
        if not text:
            close()
            continue
        if UNDERLINE.match(following) and not UNDERLINE.match(text) and len(following) >= min(4, len(text)):
            close()
            section, base, at = _section(text), indent if _section(text) == "numpy" else -1, at + 1
            continue
        if text[-1] == ":" and text[0].isupper() and (kind := _section(text[:-1].rstrip(": "))):
            close()
            if kind != "numpy":
                at = _skip_body(lines, at, indent)
            section, base = "google" if kind == "numpy" else "", -1
            continue
        if section == "google" and base >= 0 and indent < base:
            section = ""
        if section == "dropped" or UNDERLINE.match(text):
            continue
        if text.startswith((">>>", "In [", "$ ")) or TABLE.match(line):
            close()
            at = _skip_block(lines, at)
            continue
        if directive := text.startswith("..") and DIRECTIVE.match(text):
            close()
            end = _skip_body(lines, at, indent)
            if (directive[1] or "").lower() in KEPT_DIRECTIVES:
                done += _blocks(inspect.cleandoc("\n".join([directive[2] or "", *lines[at:end]])).split("\n"))
            at = end
            continue
        if section == "numpy" and indent <= base:
            close()
            name, colon, rest = text.partition(" :" if " :" in text else ":")
            end = _skip_body(lines, at, indent)
            body = _blocks(inspect.cleandoc("\n".join(lines[at:end])).split("\n"))
            if body and (colon or len(name.split()) <= 2):
                body[0] = f"{name}: {body[0]}"
            done += body or [f"{name}: {rest}" if colon else text] * is_english(rest if colon else text)
            at = end
            continue
        item = section == "google" and GOOGLE_ITEM.match(text)
        if item and base in (-1, indent):
            close()
            base, text = indent, f"{item[1]}: {text[item.end() :]}"
        elif section == "google" and base == -1:
            base = indent
        elif DROPPED_FIELD.match(text):
            close()
            continue
        elif field := FIELD.match(text) or BARE_FIELD.match(text):
            close()
            text = (f"{field[1]}: " if field.re is FIELD else "") + text[field.end() :]
        elif bullet := BULLET.match(text):
            close()
            text = text[bullet.end() :]
        elif open_ and indent < last:
            close()
        last = indent
        if text.endswith("::"):
            open_.append(text[:-1])
            close()
            at = _skip_body(lines, at, indent)
            continue
        open_.append(text)
    close()
    return done


def _section(title: str) -> str:
    name = title.strip().lower()
    kinds = {"numpy": ITEM_SECTIONS, "dropped": DROPPED_SECTIONS, "examples": EXAMPLE_SECTIONS}
    return next((kind for kind, names in kinds.items() if name in names), "")
