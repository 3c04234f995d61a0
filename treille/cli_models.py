"""`treille models`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from treille.runtime.models.aliases import list_models


def models() -> None:
    """Print the aliases, and where each one's weights would come from."""
    table = Table("name", "what it is", "here", box=None, pad_edge=False)
    table.add_column("from", overflow="fold")
    for listing in list_models():
        ready = "ready" if listing.is_cached else "on first use"
        table.add_row(listing.alias, listing.description, ready, listing.origin)
    console = Console()
    # A file or a pipe has no width: let no column be cut there.
    console.print(table, width=None if console.is_terminal else 240)
