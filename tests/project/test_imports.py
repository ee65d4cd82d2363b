"""The import direction and the purity of the core, read from the source and tried out."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("harness", "operations", "store")
MAY_IMPORT = {"harness": {"operations", "store"}, "operations": set(), "store": set()}

# Those that the design counts to the core have to say it of themselves; what says it is held to it.
CORE = ("events", "state", "folding", "decide", "context", "compaction", "trace_rules", "llm.model", "tools.registry")
EFFECTS = ("trio", "os", "pathlib", "time", "random", "socket", "subprocess", "sqlite3", "httpx")


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


def imports(path: Path, *, typing_too: bool = False) -> set[str]:
    """Every module that a file imports, at any depth; those for type checkers only on request."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    if not typing_too:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = {name for name in names if is_module(name)}
            found |= inner if inner == names else inner | {node.module}
    return found


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_imports_upward(package: str) -> None:
    for name, path in modules(package):
        ours = {found.split(".")[0] for found in imports(path, typing_too=True)} & set(PACKAGES)
        assert ours <= MAY_IMPORT[package] | {package}, f"{name} imports {sorted(ours)}"


def test_there_are_no_import_circles() -> None:
    known = dict(item for package in PACKAGES for item in modules(package))
    graph = {name: {found for found in imports(path) if found in known} - {name} for name, path in known.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for inner in sorted(graph[name]):
                visit(inner, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def pure() -> list[str]:
    """Every module whose first line says that it is pure."""
    found = [
        (name, ast.get_docstring(ast.parse(path.read_text())) or "") for p in PACKAGES for name, path in modules(p)
    ]
    return [name for name, head in found if " Pure" in head.split("\n")[0]]


@pytest.mark.parametrize("name", pure())
def test_what_calls_itself_pure_imports_nothing_that_has_effects(name: str) -> None:
    path = ROOT / (name.replace(".", "/") + ".py")
    found = {module.split(".")[0] for module in imports(path, typing_too=True)}
    assert found.isdisjoint(EFFECTS), f"{name} imports {sorted(found & set(EFFECTS))}"


def test_the_core_calls_itself_pure() -> None:
    assert {f"harness.{name}" for name in CORE} <= set(pure())


RUN_BLOCKED = """
import sys
from tests.harness.logs import LogWriter, with_pending   # everything loaded before the doors are shut
from harness.context import build
from harness.decide import Now, decide
from harness.events import Reason
from harness.tools.bash import Bash
from harness.tools.registry import Registry
from harness.trace_rules import check
import builtins, importlib

def refuse(event, args):
    watched = ("open", "socket.", "subprocess.", "os.", "sqlite3.", "time.sleep", "shutil.")
    if event.startswith(watched):
        raise AssertionError(f"the pure core caused {event} {args!r}")

import time, random
for module, names in ((time, ("time", "monotonic", "perf_counter", "time_ns")), (random, ("random", "randrange"))):
    for name in names:
        setattr(module, name, lambda *a, **k: (_ for _ in ()).throw(AssertionError("a clock or dice")))
sys.addaudithook(refuse)
R = Reason.RESULTS
log = with_pending("a", "b").end("a").start(R).finish("waiting").end("b").start(R).finish("done")
log.run_finished()
build(log.state)
decide(log.state, Now())
assert check(log.events) == [], check(log.events)
assert Registry([Bash()]).translate("bash", '{"command": "ls"}', "/w").specs
assert Registry([Bash()]).translate("bash", '{"command": 5}', "/w").error
print("ok")
"""


def test_the_pure_core_runs_with_every_door_shut() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKED], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
