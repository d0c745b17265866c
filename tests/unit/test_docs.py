"""The documents are true where a machine can tell: Python compiles, imports exist, links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from pytriton.config import NATIVE_HTTP_OPTIONS, TritonConfig
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "pytriton").glob("*/README.md")]
DOCUMENTS.append(ROOT / "tests" / "promises.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_SOURCES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"]
OF_SOURCES += [
    path for path in (ROOT / "pytriton").rglob("README.md") if not {"vendor", "tritonserver"} & {*path.parts}
]
FOLDERS = [ROOT / name for name in ("examples", "pytriton", "scripts", "tests")]
SOURCES = [
    *ROOT.glob("*.py"),
    *(path for folder in FOLDERS for end in ("py", "cpp", "h") for path in folder.rglob(f"*.{end}")),
]
SOURCE = re.compile(r"`([\w./*-]+\.(?:py|cpp|h))`")
CODE = re.compile(r"^```python(?: title=\"fragment\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"^```(\w*)(.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NOT_HERE = {"onnxruntime", "torch", "transformers"}  # which programs in the documents use, and tests do not install
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def code_blocks() -> Iterator[object]:
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        others = {*re.findall(r"^# (\w+)\.py", text, re.MULTILINE), *NOT_HERE}
        for number, code in enumerate(CODE.findall(text), 1):
            yield pytest.param(code, others, id=f"{document.relative_to(ROOT)}-{number}")


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


@pytest.mark.parametrize(("code", "others"), list(code_blocks()))
def test_python_compiles_and_its_imports_exist(code, others):
    tree = ast.parse(code)
    compile(tree, "<document>", "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name not in others:
                    importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom) and node.module not in others:
            module = importlib.import_module(node.module)
            assert [name.name for name in node.names if name.name != "*" and not hasattr(module, name.name)] == []


@pytest.mark.parametrize("document", PAGES, ids=lambda document: document.name)
def test_each_block_says_what_it_is_and_those_that_are_not_run_are_marked(document):
    """tests/server/test_documents.py runs ``python`` and ``console`` unless they are fragments."""
    openings = OPENING.findall(document.read_text(encoding="utf-8"))[::2]
    marks = {"", ' title="fragment"'}
    known = {"bash", "console", "dockerfile", "nginx", "pycon", "python", "text", "yaml"}
    assert [each for each in openings if each[0] not in known or each[1] not in marks] == []


WITHOUT_PROGRAM = {
    "architecture.md": "is for those who change the package",
    "performance.md": "has figures of programs that it names",
    "replicas.md": "is about a balancer before programs of other pages",
}


@pytest.mark.parametrize("document", PAGES, ids=lambda document: document.name)
def test_a_page_begins_with_a_program_that_runs_as_it_stands(document):
    openings = OPENING.findall(document.read_text(encoding="utf-8"))[::2]
    first = next((each for each in openings if each[0] != "bash"), None)
    assert (first in {("python", ""), ("pycon", "")}) == (document.name not in WITHOUT_PROGRAM)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(document):
    def leads_somewhere(target: str) -> bool:
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        return file.exists() and (not anchor or anchor in anchors(file))

    assert [target for target in links(document) if not leads_somewhere(target)] == []


@pytest.mark.parametrize("document", OF_SOURCES, ids=lambda document: str(document.relative_to(ROOT)))
def test_a_source_that_a_document_names_exists(document):
    named = {name.removeprefix("../") for name in SOURCE.findall(FENCED.sub("", document.read_text(encoding="utf-8")))}
    assert [name for name in sorted(named) if not any(path.match(name) for path in SOURCES)] == []


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


def test_each_promise_has_its_tests():
    promises = (ROOT / "tests" / "promises.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", promises)
    assert len(named) > 30
    tests = [(path.name, path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [
        name for file, name in named if not any(file == each and f"def {name}(" in text for each, text in tests)
    ] == []


def test_the_table_of_limits_has_the_defaults_of_the_native_edge():
    """That of the documents, the text of the fields, and what the library has."""
    http = ROOT / "pytriton" / "native" / "edge"
    sources = "".join((http / name).read_text() for name in ("config.h", "request_parser.h"))
    text = (ROOT / "docs" / "edge.md").read_text(encoding="utf-8")
    table = text.split("\n## Limits\n")[1].split("\n\nThe size")[0]
    rows = re.findall(r"^\| `http_(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    options = {name.removeprefix("http_") for name in NATIVE_HTTP_OPTIONS}
    assert {name for name, _ in rows} == {name for name in options if name.startswith(("max_", "least_", "timeout_"))}
    units = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "s": 1}
    for name, default in rows:
        native_name = "body_timeout_s" if name == "timeout_s" else name
        native = re.search(rf"\b{native_name} = ([^;,]+)[;,]", sources)
        assert native, name
        value = eval(native[1].replace("uint64_t{2}", "2"))
        said = fields_of(TritonConfig)[f"http_{name}"].rsplit("; ", 1)[1]
        number = re.fullmatch(r"(\d+) ?(\w*)", default.strip())
        if number:
            assert value == int(number[1]) * units[number[2]] == int(said), name
        else:
            assert value == 0, name
            assert not said.isdigit(), name


def fields_of(options: type) -> dict[str, str]:
    """What each field is for."""
    return {each.name: each.metadata["meaning"] for each in fields(options)}
