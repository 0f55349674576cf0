"""Docstrings of source files as English paragraphs; the files are parsed with `ast` and not imported.

A worker process of `built_in_text` reads tasks as JSON lines (path, package, module) from standard input, and writes a
JSON line of entries for each. Examples, code, tables, formulas, references and lists of names are dropped. Only the
standard library is imported, so that workers start fast.
"""

from __future__ import annotations

import ast
import gc
import inspect
import json
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
Docstring = tuple[str, str, str]  # qualified name, signature, raw docstring


def main() -> None:
    warnings.simplefilter("ignore")  # other packages' sources may contain invalid escapes
    gc.disable()  # syntax trees have no cycles, and searching for some takes a fifth of the time
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a command that was killed reads no answers
    for line in sys.stdin:
        if not line.endswith("\n"):  # the command was killed while it wrote this
            return
        path, package, module = json.loads(line)
        entries = extract(Path(path), package, module)
        sys.stdout.write(json.dumps(entries) + "\n")


def extract(path: Path, package: str, module: str) -> list[list[str]]:
    """Return [package, module, name, signature, text] of all docstrings with English; [] for an unreadable file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return []
    docs = topics(tree) if module == "pydoc_data.topics" else docstrings(tree)
    entries = []
    for name, signature, doc in docs:
        written, doc = split_signature(doc)
        text = "\n".join(paragraphs(doc))
        if len(text) >= 20:
            signature = signature or written if "." not in written.partition("(")[0] else signature
            entries.append([package, module, name, signature, text])
    return entries


def docstrings(tree: ast.Module) -> Iterator[Docstring]:
    """Yield the docstrings of a module, its classes, functions and attributes, and of C code (`add_newdoc` calls)."""
    if doc := ast.get_docstring(tree, clean=False):
        yield "", "", doc
    yield from _within(tree, "")


def _within(parent: ast.AST, prefix: str) -> Iterator[Docstring]:
    name = ""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function | ast.ClassDef):
            if doc := ast.get_docstring(node, clean=False):
                yield prefix + node.name, signature(node), doc
            yield from _within(node, f"{prefix}{node.name}.{'' if isinstance(node, ast.ClassDef) else '<locals>.'}")
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            yield from _within(node, prefix)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if "doc" in name.lower() and (text := _text(node.value)):
                yield name.rpartition("__doc__")[0].rstrip(".") or name, "", text
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Call):
                yield from _newdoc(node.value)
            elif name and (text := _text(node.value)):
                yield prefix + name, "", text


def _newdoc(call: ast.Call) -> Iterator[Docstring]:
    """Yield the docstrings in a call such as `add_newdoc("numpy", "flatiter", ("base", "..."))` or `add_docstr`."""
    function = ast.unparse(call.func).lower()
    if not ("newdoc" in function or "docstr" in function) or len(call.args) < 2:
        return
    *owners, last = call.args
    paths = [str(owner.value) if isinstance(owner, ast.Constant) else ast.unparse(owner) for owner in owners]
    names = [path.rpartition(".")[2] for path in (paths[1:] or paths)]
    pairs = last.elts if isinstance(last, ast.List) else [last]
    for pair in pairs:
        if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[0], ast.Constant):
            if text := _text(pair.elts[1]):
                yield ".".join([*names, str(pair.elts[0].value)]), "", text
        elif text := _text(pair):
            yield ".".join(names), "", text


def _text(node: ast.expr | None) -> str:
    """Return the string constant of an expression, also in `.format(...)`, `%` or `+`; "" if there is none."""
    while node is not None and not isinstance(node, ast.Constant):
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def topics(tree: ast.Module) -> Iterator[Docstring]:
    """Yield the chapters of the language reference, which are the values of a dictionary in `pydoc_data.topics`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and (text := _text(value)):
                    yield str(key.value), "", text


def signature(node: Function | ast.ClassDef) -> str:
    """Return a signature such as "foo(x, y=None, *rest)", without annotations and self; "" if there is none."""
    function: ast.AST | None = node
    if isinstance(node, ast.ClassDef):
        function = next((each for each in node.body if isinstance(each, Function) and each.name == "__init__"), None)
    elif any(isinstance(name, ast.Name) and name.id in ("property", "cached_property") for name in node.decorator_list):
        return ""
    return f"{node.name}({_arguments(function.args)})" if isinstance(function, Function) else ""


def _arguments(args: ast.arguments) -> str:
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    words = []
    for arg, default in zip([*plain, *args.kwonlyargs], [*defaults, *args.kw_defaults], strict=True):
        value = "" if default is None else ast.unparse(default)
        words.append(f"{arg.arg}={value if len(value) <= 24 else '...'}" if default else arg.arg)
    if args.vararg or args.kwonlyargs:
        words.insert(len(plain), f"*{args.vararg.arg if args.vararg else ''}")
    if args.posonlyargs:
        words.insert(len(args.posonlyargs), "/")
    if plain and plain[0].arg in ("self", "cls", "mcs", "mcls"):
        words = words[2:] if words[1:2] == ["/"] else words[1:]
    return ", ".join([*words, f"**{args.kwarg.arg}"] if args.kwarg else words)


KEPT_DIRECTIVES = {"note", "warning", "tip", "hint", "important", "attention", "caution", "danger", "admonition"}
DROPPED_SECTIONS = {"references", "bibliography", "methods"}
EXAMPLE_SECTIONS = {"example", "examples", "usage"}  # followed by indented code without a prompt
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
    (re.compile(r"%\((\w+)\)s|\$?\{(\w+)\}"), r"\1\2"),  # placeholders that a package replaces when it is imported
    (re.compile(r"\\([*_`|\\])"), r"\1"),
    (re.compile(r"\s+"), " "),
]  # fmt: skip


def split_signature(doc: str) -> tuple[str, str]:
    """Return the signature on a docstring's first lines, such as "abs(input, *, out=None)", or "", and the rest."""
    lines = inspect.cleandoc(doc).split("\n")
    signature = ""
    while lines and (not lines[0].strip() or SIGNATURE.match(lines[0].strip()) or lines[0].strip() == "--"):
        line = lines.pop(0).strip()
        signature = signature or line.partition(" ->")[0].rstrip(":") if line and line != "--" else signature
    return SELF.sub("", signature), "\n".join(lines)


def paragraphs(doc: str) -> list[str]:
    """Return the English paragraphs of a docstring, in order, each on one line."""
    return [text for text in map(inline, _blocks(doc.split("\n"))) if is_english(text)]


def inline(text: str) -> str:
    """Return the text without inline markup."""
    for pattern, replacement in INLINE:
        text = pattern.sub(replacement, text)
    return text.strip()


def is_english(text: str) -> bool:
    """Return whether a paragraph consists of sentences, and is not code, a formula, a table or a list of names."""
    tokens = text.split()
    if len(tokens) < 3 or "TODO" in text or text.startswith(("@", "File:", "Copyright")):
        return False
    share = sum(WORD.match(token) is not None for token in tokens) / len(tokens)
    if len(tokens) < 7:
        return share >= 0.75 and tokens[-1][-1] == "." and text[0].isalpha()
    return share >= 0.65 and any(token.lower() in STOPWORDS for token in tokens)


def _skip_body(lines: list[str], at: int, indent: int) -> int:
    """Return the index after the lines from `at` on that are blank or indented deeper than `indent`."""
    while at < len(lines) and (not lines[at].strip() or lines[at][: indent + 1].isspace()):
        at += 1
    return at


def _blocks(lines: list[str]) -> list[str]:
    """Return the paragraphs of a docstring's lines; inline markup is kept, and indentation is removed."""
    reader = _Reader(inspect.cleandoc("\n".join(lines)).split("\n"))
    while reader.at < len(reader.lines):
        reader.read()
    reader.close()
    return reader.done


@dataclass
class _Reader:
    """State of the pass over a docstring's lines: the next line, the section, and the paragraph that is being read.

    `section` is "numpy" or "google" (whose items have an explanation each), "dropped", "examples" or ""; `base` is the
    indentation of its items, -1 before the first item; `last` is the indentation of the last line of prose.
    """

    lines: list[str]
    at: int = 0
    done: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    section: str = ""
    base: int = -1
    last: int = 0

    def close(self) -> None:
        """End the paragraph that is being read."""
        if self.open:
            self.done.append(" ".join(self.open))
            self.open.clear()

    def read(self) -> None:
        """Read one line and the lines below that belong to it. The first kind of line that matches is taken."""
        line = self.lines[self.at]
        text, indent = line.strip(), len(line) - len(line.lstrip())
        self.at += 1
        if not text:
            self.close()
            return
        kinds = (self._heading, self._heading_with_colon, self._dropped, self._code, self._directive, self._numpy_item)
        if not any(kind(text, indent) for kind in kinds):
            self._prose(text, indent)

    def _heading(self, text: str, indent: int) -> bool:
        """Read a heading with an underline, and return whether there is one."""
        below = self.lines[self.at].strip() if self.at < len(self.lines) else ""
        if not UNDERLINE.match(below) or UNDERLINE.match(text) or len(below) < min(4, len(text)):
            return False
        self.close()
        self.section = _section(text)
        self.base = indent if self.section == "numpy" else -1
        self.at += 1
        return True

    def _heading_with_colon(self, text: str, indent: int) -> bool:
        """Read a heading such as "Args:", and return whether there is one. Sections without items are skipped."""
        kind = _section(text[:-1].rstrip(": ")) if text[-1] == ":" and text[0].isupper() else ""
        if not kind:
            return False
        self.close()
        if kind != "numpy":
            self.at = _skip_body(self.lines, self.at, indent)
        self.section, self.base = "google" if kind == "numpy" else "", -1
        return True

    def _dropped(self, text: str, indent: int) -> bool:
        """Return whether a line is an underline or in a dropped section. Less indentation ends a Google section."""
        if self.section == "google" and indent < self.base:
            self.section = ""
        return self.section == "dropped" or UNDERLINE.match(text) is not None

    def _code(self, text: str, indent: int) -> bool:
        """Skip an example at a prompt or a table, up to the next blank line, and return whether there is one."""
        if not text.startswith((">>>", "In [", "$ ")) and not TABLE.match(" " * indent + text):
            return False
        self.close()
        while self.at < len(self.lines) and self.lines[self.at].strip():
            self.at += 1
        return True

    def _directive(self, text: str, indent: int) -> bool:
        """Read a directive with its body, and return whether there is one. Only notes and similar ones are kept."""
        directive = DIRECTIVE.match(text) if text.startswith("..") else None
        if directive is None:
            return False
        self.close()
        end = _skip_body(self.lines, self.at, indent)
        if (directive[1] or "").lower() in KEPT_DIRECTIVES:
            self.done += _blocks([directive[2] or "", *self.lines[self.at : end]])
        self.at = end
        return True

    def _numpy_item(self, text: str, indent: int) -> bool:
        """Read a name in a numpydoc section with its indented explanation, and return whether there is one."""
        if self.section != "numpy" or indent > self.base:
            return False
        self.close()
        name, colon, rest = text.partition(" :" if " :" in text else ":")
        end = _skip_body(self.lines, self.at, indent)
        body = _blocks(self.lines[self.at : end])
        if body and (colon or len(name.split()) <= 2):
            body[0] = f"{name}: {body[0]}"
        self.done += body or [f"{name}: {rest}" if colon else text] * is_english(rest if colon else text)
        self.at = end
        return True

    def _prose(self, text: str, indent: int) -> None:
        """Read a line of a paragraph. An item, a field, a bullet or less indentation begins a new paragraph."""
        item = GOOGLE_ITEM.match(text) if self.section == "google" else None
        if item and self.base in (-1, indent):
            self.close()
            self.base, text = indent, f"{item[1]}: {text[item.end() :]}"
        elif self.section == "google" and self.base == -1:
            self.base = indent
        elif DROPPED_FIELD.match(text):
            self.close()
            return
        elif field := FIELD.match(text) or BARE_FIELD.match(text):
            self.close()
            text = (f"{field[1]}: " if field.re is FIELD else "") + text[field.end() :]
        elif bullet := BULLET.match(text):
            self.close()
            text = text[bullet.end() :]
        elif indent < self.last:
            self.close()
        self.last = indent
        if text.endswith("::"):  # an indented example follows
            self.open.append(text[:-1])
            self.close()
            self.at = _skip_body(self.lines, self.at, indent)
        else:
            self.open.append(text)


def _section(title: str) -> str:
    kinds = {"numpy": ITEM_SECTIONS, "dropped": DROPPED_SECTIONS, "examples": EXAMPLE_SECTIONS}
    return next((kind for kind, names in kinds.items() if title.strip().lower() in names), "")
