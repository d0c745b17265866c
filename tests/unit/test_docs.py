"""The documents are true where a machine can tell: Python compiles, imports exist, links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from pytriton.config import TritonConfig
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "pytriton").glob("*/README.md")]
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def code_blocks() -> Iterator[object]:
    for document in DOCUMENTS:
        for number, code in enumerate(CODE.findall(document.read_text(encoding="utf-8")), 1):
            yield pytest.param(code, id=f"{document.relative_to(ROOT)}-{number}")


def links(document: Path) -> list[str]:
    """The targets of links within the repository."""
    prose = FENCED.sub("", document.read_text(encoding="utf-8"))
    return [target for target in LINK.findall(prose) if "://" not in target]


def anchors(document: Path) -> set[str]:
    """The names that headings have in links."""
    headings = HEADING.findall(FENCED.sub("", document.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_are_documents_with_code_and_links():
    assert len(list(code_blocks())) > 10
    assert sum(len(links(document)) for document in DOCUMENTS) > 10


@pytest.mark.parametrize("code", list(code_blocks()))
def test_python_compiles_and_its_imports_exist(code):
    tree = ast.parse(code)
    compile(tree, "<document>", "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert [name.name for name in node.names if name.name != "*" and not hasattr(module, name.name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(document):
    def leads_somewhere(target: str) -> bool:
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        return file.exists() and (not anchor or anchor in anchors(file))

    assert [target for target in links(document) if not leads_somewhere(target)] == []


def test_the_table_of_options_has_every_field_once():
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    section = text.split("\n## All fields\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(field.name for field in fields(TritonConfig))


@pytest.mark.parametrize("options", [ModelConfig, DynamicBatcher, QueuePolicy])
def test_the_table_of_a_models_options_has_every_field_once(options):
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = text.split(f"\n| `{options.__name__}` | default | |\n")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(each.name for each in fields(options))


def test_each_promise_of_the_security_page_has_its_tests():
    promises = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## What we promise")[2]
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", promises)
    assert len(named) > 30
    tests = [(path.name, path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [
        name for file, name in named if not any(file == each and f"def {name}(" in text for each, text in tests)
    ] == []
