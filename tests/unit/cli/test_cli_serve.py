"""What ``pytriton serve --reload`` thinks of a source; tests/server/test_cli_reload.py reloads."""

import pytest

from pytriton.cli.reloader import syntax_error


@pytest.mark.parametrize("source", [b"", b"x = 1\n", "# -*- coding: latin-1 -*-\nx = 'ä'\n".encode("latin-1")])
def test_a_source_that_compiles_has_no_error(source, tmp_path):
    (tmp_path / "models.py").write_bytes(source)
    assert syntax_error(tmp_path / "models.py") is None


def test_a_source_is_not_run(tmp_path):
    (tmp_path / "models.py").write_text("raise RuntimeError")
    assert syntax_error(tmp_path / "models.py") is None


def test_a_file_that_is_gone_has_no_error(tmp_path):
    assert syntax_error(tmp_path / "models.py") is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"x = 1\ndef f(:\n", "line 2 has a syntax error: "),
        (b"if x:\ny", "line 2 has a syntax error: expected an indented block"),
        (b"'\xff'", "a syntax error: "),
        (b"x = \0", ""),
    ],
)
def test_an_error_is_told_with_its_line(source, message, tmp_path):
    (tmp_path / "models.py").write_bytes(source)
    assert message in syntax_error(tmp_path / "models.py")
