"""The build hook, and what it puts into the package."""

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytriton.server.backends import LIBRARY
from pytriton.server.installation import BUNDLED

ROOT = Path(__file__).parents[2]
needs_server = pytest.mark.skipif(not BUNDLED.is_dir(), reason="the package was built without a server")
needs_native = pytest.mark.skipif(not LIBRARY.is_file(), reason="the native proxy was not built")
needs_strip = pytest.mark.skipif(not shutil.which("strip"), reason="there is no strip")


@pytest.fixture(scope="module")
def hook():
    """The module hatch_build.py."""
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_server
@needs_native
@needs_strip
def test_the_installed_package_has_the_size_that_the_installation_page_says():
    text = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    package, server = map(
        int, re.search(r"installed package (\d+) MB, of which (\d+) MB are the server", text).groups()
    )
    server_bytes = sum(path.stat().st_size for path in BUNDLED.rglob("*") if path.is_file())
    files = [
        path for path in BUNDLED.parent.rglob("*") if path.suffix in (".py", ".so") and BUNDLED not in path.parents
    ]
    assert server - 1 < server_bytes / 1e6 <= server
    assert package - 4 < (server_bytes + sum(path.stat().st_size for path in files)) / 1e6 <= package


@needs_server
def test_the_server_has_stubs_of_the_supported_interpreters_alone():
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {path.name for path in (BUNDLED / "python_backend_stubs").iterdir()} == {*versions}


XML = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.xmlReadMemory.restype = library.xmlDocGetRootElement.restype = ctypes.c_void_p
library.xmlDocGetRootElement.argtypes = library.xmlNodeGetContent.argtypes = [ctypes.c_void_p]
library.xmlNodeGetContent.restype = ctypes.c_char_p
for encoding in ("utf-8", "utf-16", "iso-8859-1", "windows-1252"):
    text = f"<?xml version='1.0' encoding='{encoding}'?><name>caf\u00e9</name>".encode(encoding)
    document = library.xmlReadMemory(text, len(text), None, None, 0)
    print(library.xmlNodeGetContent(library.xmlDocGetRootElement(document)).decode())
"""


@needs_server
@needs_native
def test_the_servers_xml_library_reads_usual_encodings_without_icus_data():
    (data,) = (BUNDLED / "lib").glob("libicudata*")
    assert data.stat().st_size < 100_000
    (library,) = (BUNDLED / "lib").glob("libxml2*")
    environment = {"LD_LIBRARY_PATH": str(library.parent), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", XML, library], env=environment, capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.split() == ["caf\u00e9"] * 4


@needs_strip
def test_symbols_are_removed_from_binaries_that_still_load_and_keep_their_modes(hook, tmp_path):
    compiler = shutil.which("c++") or pytest.skip("there is no C++ compiler")
    path, source = tmp_path / "library.so", tmp_path / "library.cpp"
    source.write_text('extern "C" int exported() { return 7; }\nint internal() { return 8; }\n')
    subprocess.run([compiler, "-g", "-shared", "-fPIC", "-o", path, source], check=True)
    path.chmod(0o640)
    before = path.stat().st_size
    assert hook.is_binary(path)
    assert not hook.is_binary(source)
    assert hook.strip([path])
    assert path.stat().st_size < before
    assert path.stat().st_mode & 0o777 == 0o640
    assert ctypes.CDLL(str(path)).exported() == 7
    assert sorted(tmp_path.iterdir()) == sorted([path, source])


def test_without_strip_the_binaries_stay_as_they_are(hook, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    assert not hook.strip([tmp_path / "binary"])
    assert (tmp_path / "binary").read_bytes() == b"\x7fELF"


def test_a_build_into_a_folder_with_the_other_distribution_is_refused_before_it_overwrites_files(hook, tmp_path):
    hook.refuse_beside_other([str(tmp_path)])
    (tmp_path / "nvidia_pytriton-0.7.0.dist-info").mkdir()
    (tmp_path / "nvidia_pytriton-0.7.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-pytriton\nVersion: 0.7.0\n"
    )
    with pytest.raises(SystemExit, match=rf"nvidia-pytriton 0\.7\.0 is installed in {tmp_path}.* pip uninstall nvidia"):
        hook.refuse_beside_other([str(tmp_path)])


def test_the_folders_that_are_looked_at_are_those_of_the_environment_that_builds(hook):
    assert f"{sys.prefix}/lib" in hook.site_folders()[0]
