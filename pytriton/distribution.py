"""Whether nvidia-pytriton, whose files have the same names, was installed into the same folder.

pip overwrites such files silently. This package works if it was installed last. Otherwise, or after the other one was
uninstalled, some modules are the other's, or missing.
"""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["MIXED", "is_complete", "warn_of_other"]

OTHER = "nvidia-pytriton"
PACKAGE = os.path.dirname(os.path.abspath(__file__))
REMEDY = (
    f"Only one of the two can be installed. To keep this one: pip uninstall -y {OTHER} pytriton, then install pytriton "
    "again; each uninstallation removes files of the other, too"
)
MIXED = (
    f"the modules in {PACKAGE} are not all of this package: {OTHER}, which has modules of the same names, was "
    f"installed or uninstalled after it. {REMEDY}"
)


def warn_of_other() -> None:
    """Warn with a UserWarning if the other distribution is installed in the same folder."""
    if not os.path.exists(os.path.join(PACKAGE, "decorators.py")):  # of the other alone; all that most imports cost
        return
    parent = os.path.dirname(PACKAGE)
    for name in os.listdir(parent):
        found, _, version = name.removesuffix(".dist-info").rpartition("-")
        if found == OTHER.replace("-", "_") and name.endswith(".dist-info"):
            message = f"pytriton was installed over {OTHER} {version} in {parent}, and replaced some of its files."
            warnings.warn(f"{message} {REMEDY}", stacklevel=3)


def is_complete() -> bool:
    """Whether the package ``pytriton`` begins with our ``__init__``; if not, other modules are not ours either."""
    return hasattr(sys.modules["pytriton"], "DISTRIBUTION")
