"""``python -m pytriton``: the command line."""

from pytriton.cli import main

if __name__ == "__main__":
    main()
