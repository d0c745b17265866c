"""Hooks of mkdocs for the site of the documents.

The site has the same folders as the repository, so that the links in the documents work in both; only its first page is
elsewhere. A linked file that is
not a document gets a page with its text, and a linked folder one with its list of files. mkdocstrings makes the pages
of the API from ``__all__`` of the public modules.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
HOME = "docs/home.md"  # the site's first page, in the place of README.md, which introduces the repository
DOCUMENTS = (
    *("*.md", "docs/*.md", "docs/images/*", "docs/site/*"),
    *("pytriton/**/README.md", "scripts/README.md", "tests/promises.md"),
)
AS_THEY_ARE = {".md", ".webp"}  # documents and pictures; other files get a page with their text
API = (
    *("triton", "model_config", "decorators", "workers", "recording"),
    *("client", "client.exceptions", "exceptions", "inprocess"),
)
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".json": "json", ".py": "python", ".pyi": "python"}
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]*)(#[^)\s]*)?(?=\))")
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
LITERAL_BLOCK = re.compile(r"( ?)::$", re.MULTILINE)  # "text::" ends in a colon, "text ::" does not
SHIM = re.compile(r"https://[^\"]*/iframe-worker/shim")  # which the theme would load from the network
WORKER = "docs/site/file_worker.js"  # in its place
LOADED = re.compile(r'<(?:img|iframe|link|script)\b[^>]*(?:href|src)="?https?:[^>]*>')
API_PAGE = """\
# pytriton.{module}

::: pytriton.{module}
    options: {{members: false, show_root_heading: false, show_root_toc_entry: false}}

"""
OVERVIEW = """\
# API

The public modules are on the following pages. `pytriton` itself has the names that most programs need:
`from pytriton import Triton`.

| from `pytriton` | defined in |
|---|---|
"""


class PlainRoles(griffe.Extension):
    """Turns the roles and literal blocks of docstrings, which are those of Sphinx, into Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change a docstring."""
        if obj.docstring is not None:
            text = ROLE.sub(r"`\1`", obj.docstring.value).replace("\n::\n", "\n")
            obj.docstring.value = LITERAL_BLOCK.sub(lambda mark: "" if mark[1] else ":", text)


def on_files(files: Files, config: Any) -> Files:
    """Put the documents at the places that they have in the repository, and add the pages that have no document."""
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    found = [path for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern))]
    documents = [path for path in found if "vendor" not in path.parts]  # sources of others that the build fetched
    documents = [path for path in documents if path != ROOT / "README.md"]
    site.append(File.generated(config, "index.md", content=home()))
    for path in documents:
        if path == ROOT / HOME:
            continue
        site.append(File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))
    linked = {target for path in documents if path.suffix == ".md" for target in linked_files(path)}
    examples = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py")}
    for target in sorted(linked | examples | {"examples"}):
        site.append(File.generated(config, page_of(target), content=source_page(ROOT / target)))
    site.append(File.generated(config, "api/index.md", content=overview()))
    for module in API:
        site.append(File.generated(config, f"api/{module}.md", content=api_page(module)))
    return site


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to the pages of files and folders, and indent nested lists as Python's Markdown requires."""
    folder = posixpath.dirname(page.file.src_uri)

    def led(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        if target in ("README.md", HOME):
            return posixpath.relpath("index.md", folder or ".") + (match[2] or "")
        if not match[1] or posixpath.splitext(target)[1] in AS_THEY_ARE:
            return match[0]
        return posixpath.relpath(page_of(target), folder or ".") + (match[2] or "")

    parts = FENCE.split(markdown)  # those with odd numbers are code
    parts[::2] = [re.sub(r"^  - ", "    - ", LINK.sub(led, part), flags=re.MULTILINE) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Have pages load nothing from the network."""
    output = SHIM.sub(posixpath.relpath(WORKER, posixpath.dirname(page.file.dest_uri) or "."), output)
    if loaded := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from the network: {loaded[0]}")
    return output


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page that is shown for pages that do not exist."""
    return SHIM.sub(f"/{WORKER}", output_content)


def home() -> str:
    """The first page, with its links as from the root."""
    folder = posixpath.dirname(HOME)
    return LINK.sub(
        lambda link: posixpath.join(folder, link[1]) + (link[2] or ""), (ROOT / HOME).read_text(encoding="utf-8")
    )


def linked_files(document: Path) -> Iterator[str]:
    """Files and folders that a document links to and that are not documents, as paths from the repository's root."""
    for path, _ in LINK.findall("".join(FENCE.split(document.read_text(encoding="utf-8"))[::2])):
        target = (document.parent / path).resolve()
        if path and target.suffix not in AS_THEY_ARE and target.exists():
            yield target.relative_to(ROOT).as_posix()


def page_of(target: str) -> str:
    """The page of a file or folder that is not a document."""
    return f"{target}/README.md" if (ROOT / target).is_dir() else f"{target}.md"


def source_page(path: Path) -> str:
    """A page with the text of a file, or with the list of a folder's files and what each is."""
    if path.is_dir():
        rows = [f"| [{file.name}]({file.name}) | {summary(file)} |" for file in sorted(path.glob("*.py"))]
        return "\n".join([f"# {path.name.capitalize()}", "", "| | |", "|---|---|", *rows])
    fence = "````"
    return f"# {path.name}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}{fence}\n"


def summary(path: Path) -> str:
    """The first sentence of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].replace("\n", " ")


def api_page(module: str) -> str:
    """A page with the public names of a module."""
    options = f"    options: {{inherited_members: {str(not module.endswith('exceptions')).lower()}}}\n\n"
    names = import_module(f"pytriton.{module}").__all__
    return API_PAGE.format(module=module) + "".join(f"::: pytriton.{module}.{name}\n{options}" for name in names)


def overview() -> str:
    """The names of the package itself, and the modules that define them."""
    homes = {name: module for module in API for name in import_module(f"pytriton.{module}").__all__}
    rows = ((name, homes[name]) for name in import_module("pytriton").__all__ if name in homes)
    return OVERVIEW + "".join(f"| [`{n}`][pytriton.{of}.{n}] | [`pytriton.{of}`]({of}.md) |\n" for n, of in rows)
