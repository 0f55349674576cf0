"""Extraction of docstrings from source files, which are parsed with `ast` and not imported; run by `docs.py`.

A worker process reads tasks as JSON lines (path, package, module) from standard input, and writes one JSON line of
entries for each task, in order. Only the standard library is imported, so that workers start fast.
"""

from __future__ import annotations

import ast
import gc
import json
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from workbench.data.built_in.prose import paragraphs, split_signature

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
    doc = ast.get_docstring(tree, clean=False)
    if doc:
        yield "", "", doc
    yield from _within(tree, "")


def _within(parent: ast.AST, prefix: str) -> Iterator[Docstring]:
    name = ""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function | ast.ClassDef):
            doc = ast.get_docstring(node, clean=False)
            if doc:
                yield prefix + node.name, signature(node), doc
            if isinstance(node, ast.ClassDef):
                yield from _within(node, f"{prefix}{node.name}.")
            else:
                yield from _within(node, f"{prefix}{node.name}.<locals>.")
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
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, Function) and child.name == "__init__":
                return f"{node.name}({_arguments(child.args)})"
        return ""
    if any(isinstance(name, ast.Name) and name.id in ("property", "cached_property") for name in node.decorator_list):
        return ""
    return f"{node.name}({_arguments(node.args)})"


def _arguments(args: ast.arguments) -> str:
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    words = [_argument(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        words.insert(len(args.posonlyargs), "/")
    if plain and plain[0].arg in ("self", "cls", "mcs", "mcls"):
        words = words[2:] if words[1:2] == ["/"] else words[1:]
    if args.vararg:
        words.append(f"*{args.vararg.arg}")
    elif args.kwonlyargs:
        words.append("*")
    words += [_argument(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        words.append(f"**{args.kwarg.arg}")
    return ", ".join(words)


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return arg.arg
    value = ast.unparse(default)
    return f"{arg.arg}={value if len(value) <= 24 else '...'}"
