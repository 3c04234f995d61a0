"""`python -m treille`: the command where it is not on the path."""

from __future__ import annotations

from treille.cli import main

if __name__ == "__main__":
    main()
