"""The package beside nvidia-pytriton, whose modules have the same names: both installed into one folder."""

import subprocess
import sys
from pathlib import Path

import pytest

import pytriton

REMEDY = "pip uninstall -y nvidia-pytriton pytriton"


@pytest.fixture
def site(tmp_path):
    """A folder of installed packages with this one: links, as a test may replace files."""
    ours = Path(pytriton.__file__).parent
    for path in ours.rglob("*.py"):
        if "tritonserver" not in path.parts:
            link = tmp_path / path.relative_to(ours.parent)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return tmp_path


def install_other(site, *, last):
    """Put there what matters of the other distribution: its name, and modules that both have, or it alone."""
    (site / "nvidia_pytriton-0.7.0.dist-info").mkdir()
    (site / "pytriton" / "decorators.py").touch()
    if last:
        (site / "pytriton" / "__init__.py").unlink()
        (site / "pytriton" / "__init__.py").write_text("from pytriton.decorators import batch\n")


def run(site, statement, *options):
    """A statement in a fresh interpreter in which the packages of the folder come first."""
    script = f"import sys; sys.path.insert(0, {str(site)!r}); {statement}"
    return subprocess.run([sys.executable, *options, "-c", script], capture_output=True, text=True, cwd=site)


def test_alone_the_package_imports_without_a_word(site):
    done = run(site, "import pytriton.decorators; print(pytriton.__file__)", "-W", "error")
    assert (done.stdout, done.stderr) == (f"{site / 'pytriton' / '__init__.py'}\n", "")


def test_installed_over_the_other_one_the_package_works_and_warns_what_to_do(site):
    install_other(site, last=False)
    done = run(site, "from pytriton.decorators import batch; print(batch.__module__)")
    assert done.stdout == "pytriton.decorators.batching\n"
    assert done.stderr.count("UserWarning") == 1
    assert f"pytriton was installed over nvidia-pytriton 0.7.0 in {site}" in done.stderr
    assert REMEDY in done.stderr


def test_an_other_distribution_in_another_folder_overwrites_nothing_and_is_not_spoken_of(site, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "nvidia_pytriton-0.7.0.dist-info").mkdir()
    done = run(site, f"sys.path.append({str(elsewhere)!r}); import pytriton", "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")


def test_where_the_other_one_was_installed_last_the_import_says_that_the_package_is_a_mixture(site):
    install_other(site, last=True)
    done = run(site, "import pytriton")
    assert done.returncode == 1
    assert (
        f"ImportError: the modules in {site / 'pytriton'} are not all of this package: nvidia-pytriton" in done.stderr
    )
    assert REMEDY in done.stderr


def test_where_the_other_one_was_uninstalled_decorators_say_that_modules_are_missing(site):
    for name in ("__init__.py", "exceptions.py", "triton.py"):
        (site / "pytriton" / name).unlink()
    done = run(site, "from pytriton.decorators import batch", "-S")  # without the package that the tests are of
    assert "ImportError: the modules in" in done.stderr
    assert REMEDY in done.stderr


def test_no_module_of_the_package_has_the_name_by_which_the_other_distribution_is_noticed():
    assert not (Path(pytriton.__file__).parent / "decorators.py").exists()
