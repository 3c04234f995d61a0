"""The tree as plain data: what another cache, after a restart, grows it from again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from treille.radix.node import Node, Root
from treille.radix.order import EvictionOrder


@dataclass(frozen=True, slots=True)
class Edge:
    """A stretch of a path: its token ids, and the pages that hold them, of which the last may not be full.

    `parent` is the place of the edge above in the same list, where it stands earlier; None: there is none.
    """

    parent: int | None
    tokens: array[int]
    pages: tuple[int, ...]


def edges_below(root: Root, order: EvictionOrder) -> list[Edge]:
    """Every edge below a root, those in use first, then those that eviction would take last; none comes
    before its parent."""
    nodes: list[Node] = [root]
    for node in nodes:  # grows while it runs
        nodes.extend(node.children.values())
    ages = {node: (node.rank, node.unlocked) for node in nodes}
    for node in reversed(nodes):
        if node.parent is not None:
            (rank, time), (below, last) = ages[node.parent], ages[node]
            ages[node.parent] = order.joined(rank, below), max(time, last)

    found: list[Edge] = []
    waiting: list[tuple[bool, float, int, int, int | None, Node]] = []

    def wait(parent: int | None, nodes: Iterable[Node]) -> None:
        for node in nodes:
            rank, time = ages[node]
            heappush(waiting, (not node.locks, -rank, -time, id(node), parent, node))

    wait(None, root.children.values())
    while waiting:
        *_, parent, node = heappop(waiting)
        wait(len(found), node.children.values())
        found.append(Edge(parent, array("q", bytes(node.tokens)), tuple(node.pages)))
    return found


def first_edges(edges: Sequence[Edge], num_pages: int, page_size: int) -> list[Edge]:
    """The first of `edges` that have at most so many pages together; the last one is cut if need be."""
    kept: list[Edge] = []
    for edge in edges:
        if len(edge.pages) > num_pages:
            if num_pages:
                kept.append(Edge(edge.parent, edge.tokens[: num_pages * page_size], edge.pages[:num_pages]))
            break
        num_pages -= len(edge.pages)
        kept.append(edge)
    return kept


def path_to(edges: Sequence[Edge], place: int) -> tuple[array[int], list[int]]:
    """The tokens and the pages from the start to the end of the edge at `place`."""
    path: list[Edge] = []
    at: int | None = place
    while at is not None:
        path.append(edges[at])
        at = edges[at].parent
    tokens = array("q")
    pages: list[int] = []
    for edge in reversed(path):
        tokens.extend(edge.tokens)
        pages.extend(edge.pages)
    return tokens, pages
