"""One of the targets under atheris: ``python -m tests.fuzz.atheris_target <target> <libFuzzer's options>``."""

import sys

try:
    import atheris
except ImportError:
    sys.exit("the targets in Python take atheris: pip install --group fuzz, which make fuzz does")

with atheris.instrument_imports(include=["pytriton", "json", "tritonclient"]):
    from tests.fuzz.targets import TARGETS

    for target in TARGETS.values():
        target(b"")  # imports the rest

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
    atheris.Fuzz()
