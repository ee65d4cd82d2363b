"""What fits in a reader's head: the sizes that docs and reviews rely on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PACKAGES = ("harness", "operations", "store")

MOST_METHODS = 20
MANY_METHODS = {
    "MemoryStore": 33,  # the whole Store protocol and its data in one: a model of the other, to be read beside it
    "SqliteStore": 25,  # the Store protocol, one line a method: what they do stands in the modules around it
    "Store": 25,  # the protocol
}
"""May only shrink, but where the Store protocol itself grows."""


def sources() -> Iterator[tuple[Path, ast.Module, int]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            yield path, ast.parse(text), text.count("\n")


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    last = body[-1].end_lineno if body else None
    return 0 if last is None else last - body[0].lineno + 1


def test_a_file_holds_one_idea() -> None:
    sizes = {path: lines for path, _, lines in sources()}
    assert {path: lines for path, lines in sizes.items() if lines > 500} == {}
    assert median(sizes.values()) < 200


def test_a_function_fits_on_a_screen() -> None:
    sizes = {
        f"{path.stem}.{node.name}": body_lines(node)
        for path, tree, _ in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in sizes.items() if lines > 50} == {}


def test_a_class_has_about_twenty_methods_at_most() -> None:
    for path, tree, _ in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
                assert methods <= MANY_METHODS.get(node.name, MOST_METHODS), f"{path.name}: {node.name}"
