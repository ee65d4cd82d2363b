"""The public names: one table, two readers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import harness

ROOT = Path(__file__).parents[2]


def test_every_public_name_can_be_loaded() -> None:
    for name in harness.__all__:
        assert getattr(harness, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "harness" / "__init__.py").read_text())
    shown = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    assert shown == set(harness.__all__) - {"__version__"}


def test_importing_the_package_loads_no_heavy_module() -> None:
    heavy = ("trio", "httpx", "rich", "sqlite_utils", "click")
    code = f"import harness, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_project_says_nothing_it_should_not() -> None:
    """No secrets in fixtures, no registry host, nothing about how the project came to be."""
    forbidden = ["sk-" + "ant-", "pypi" + ".org", "/work" + "/main", "Clau" + "de Code", "chat" + "gpt"]
    for path in _tracked():
        text = path.read_text(errors="replace")
        for word in forbidden:
            assert word.lower() not in text.lower(), f"{path}: {word}"


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]
