"""`python -m groupwise`: the command-line tool without its script on the path."""

from __future__ import annotations

from groupwise.cli.main import main

if __name__ == "__main__":
    main()
