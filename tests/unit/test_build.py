"""The build hook, and what it puts into the package."""

import ctypes
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytriton.server.backends import LIBRARY
from pytriton.server.installation import BUNDLED

ROOT = Path(__file__).parents[2]
RECIPE = re.search(r"^RECIPE = (\d+)", (ROOT / "hatch_build.py").read_text(encoding="utf-8"), re.MULTILINE)[1]


def recipe_of_the_server() -> str:
    """What the server beside the sources was made with: a checkout keeps it until it is installed again."""
    stamp = BUNDLED / ".sha256"
    return stamp.read_text().split()[1] if stamp.is_file() else ""


needs_server = pytest.mark.skipif(recipe_of_the_server() != RECIPE, reason="the server was not put here by this hook")
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
def test_the_servers_xml_library_reads_usual_encodings_without_icu():
    (library,) = (BUNDLED / "lib").glob("libxml2*")
    assert run_beside_the_libraries(XML, library).split() == ["caf\u00e9"] * 4


# Its version asks each of the libraries that it was linked against; the codes are "out of memory" and "no connection".
CURL = """
import ctypes, sys
curl = ctypes.CDLL(sys.argv[1])
curl.curl_easy_init.restype, curl.curl_version.restype = ctypes.c_void_p, ctypes.c_char_p
print("noldap" in curl.curl_version().decode())
for url in ("ldap://127.0.0.1:1/", "ldaps://127.0.0.1:1/", "rtmp://127.0.0.1:1/", "http://127.0.0.1:1/"):
    handle = ctypes.c_void_p(curl.curl_easy_init())
    curl.curl_easy_setopt(handle, 10002, url.encode())
    print(curl.curl_easy_perform(handle))
"""


@needs_server
@needs_native
def test_the_servers_http_client_works_without_ldap_and_rtmp_which_fail():
    (library,) = (BUNDLED / "lib").glob("libcurl*")
    assert run_beside_the_libraries(CURL, library).split() == ["True", "27", "27", "27", "7"]


@needs_server
@needs_native
def test_no_library_of_the_server_lacks_one_that_was_left_out(hook):
    libraries = {path.name: path for path in (BUNDLED / "lib").iterdir()}
    readelf = shutil.which("readelf") or pytest.skip("there is no readelf")
    for name, path in libraries.items():
        listed = subprocess.run([readelf, "-d", path], capture_output=True, text=True, check=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listed)
        assert [each for each in needed if "-" in each and each not in libraries and "ld-linux" not in each] == [], name
        assert not name.startswith(hook.UNNEEDED)


@needs_server
@needs_native
def test_libraries_that_stand_in_are_found_by_the_names_of_those_whose_places_they_take(hook):
    """A program that loads the server into its process loads its libraries first."""
    readelf = shutil.which("readelf") or pytest.skip("there is no readelf")
    replaced = [path for path in (BUNDLED / "lib").iterdir() if path.name.startswith(hook.REPLACED)]
    assert len(replaced) == len(hook.REPLACED)
    for path in replaced:
        listed = subprocess.run([readelf, "-d", path], capture_output=True, text=True, check=True).stdout
        assert f"soname: [{path.name}]" in listed
        assert path.stat().st_size < 100_000


def run_beside_the_libraries(program, library):
    """What a program prints for which the server's libraries are found before the system's."""
    environment = {"LD_LIBRARY_PATH": str(library.parent), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-c", program, library], env=environment, capture_output=True, encoding="utf-8", check=True
    ).stdout


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


def test_a_wheel_names_the_glibc_that_its_libraries_need(hook, tmp_path):
    tag, _ = hook.WHEELS["x86_64"]
    assert hook.platform_tag(tag, tmp_path) == "manylinux_2_35_x86_64"
    (tmp_path / "older.so").write_bytes(b"\x7fELF\0GLIBC_2.2.5\0GLIBC_2.34\0")
    assert hook.platform_tag(tag, tmp_path) == "manylinux_2_35_x86_64"
    (tmp_path / "newer.so").write_bytes(b"\x7fELF\0GLIBC_2.4\0GLIBC_2.38\0")
    assert hook.platform_tag(tag, tmp_path) == "manylinux_2_38_x86_64"


@needs_native
@pytest.mark.skipif(platform.libc_ver()[1] > "2.36", reason="headers of a newer glibc name functions of it")
def test_the_compiled_libraries_need_no_newer_glibc_than_the_server(hook):
    tag, _ = hook.WHEELS["x86_64"]
    assert hook.platform_tag(tag, LIBRARY.parent) == tag


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
