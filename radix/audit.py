"""The tree's invariants, checked from the outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from treille.radix.errors import PageError
from treille.radix.node import FEW, TOKEN_BYTES, Node, Root
from treille.radix.tree import RadixTree


def check_tree(tree: RadixTree, ends: Sequence[tuple[Node, Node | None]]) -> list[int]:
    """All pages of the tree, if it is sound; PageError if not.

    `ends` holds, for each living lease, the node it ends at and the node of its partial page; the locks
    are counted anew from it.
    """
    locks: Counter[Node] = Counter()
    for end, donor in ends:
        locks[end] += 1
        if donor is not None:
            locks[donor] += 1
            if donor.parent is not end:
                raise PageError("a partial page does not follow its lease's path")

    nodes = _nodes(tree)
    for node in reversed(nodes):  # children first
        if locks[node] and node.parent is not None:
            locks[node.parent] += 1
    if not set(+locks) <= set(nodes):
        raise PageError("a lease holds a node that is not in the tree")
    for node in nodes:
        _check_node(node, tree.page_bytes)
        if node.locks != locks[node]:
            raise PageError(f"a node has {node.locks} locks, and {locks[node]} leases and children hold it")
    _check_order(tree, nodes)
    locked = sum(len(node.pages) for node in nodes if node.locks)
    if locked != tree.num_locked:
        raise PageError(f"{locked} pages are locked, {tree.num_locked} counted")
    return [page for node in nodes for page in node.pages]


def _nodes(tree: RadixTree) -> list[Node]:
    nodes: list[Node] = []
    for namespace, root in tree.roots.items():
        if root.namespace != namespace or not (root.children or root.locks):
            raise PageError(f"namespace {namespace!r} is misplaced, or should have been forgotten")
        nodes.append(root)
    for node in nodes:  # grows while it runs: breadth first
        nodes.extend(node.children.values())
    return nodes


def _check_node(node: Node, page_bytes: int) -> None:
    if node.order is None and len(node.children) > FEW:
        raise PageError("a node with many children has no sorted keys")
    if node.order is not None and node.order != sorted(node.children):
        raise PageError("a node's sorted keys are not its children's")
    if node.num_tails != sum(len(key) < page_bytes for key in node.children):
        raise PageError("a node counts its tails wrongly")
    for key, child in node.children.items():
        if child.parent is not node or child.key != key or child.tokens[:page_bytes] != key:
            raise PageError("a child hangs at the wrong place")
    if isinstance(node, Root):
        if node.pages or node.tokens or node.parent is not None:
            raise PageError("a root has pages or a parent")
        return
    full = len(node.tokens) == len(node.pages) * page_bytes
    tail = len(node.pages) == 1 and 0 < len(node.tokens) < page_bytes and not node.children
    if not node.pages or not (full or tail) or len(node.tokens) % TOKEN_BYTES:
        raise PageError(f"a node has {len(node.pages)} pages for {len(node.tokens) // TOKEN_BYTES} tokens")


def _check_order(tree: RadixTree, nodes: Sequence[Node]) -> None:
    unlocked = [node for node in nodes if node.locks == 0 and not isinstance(node, Root)]
    order = list(tree.leaves)
    if len(set(order)) != len(order) or set(order) != {node for node in unlocked if not node.children}:
        raise PageError("the leaves in the order of eviction are not the unlocked leaves")
    if order and order[0] is not tree.leaves.first():
        raise PageError("the order of eviction does not begin with its first leaf")
    if any(node.place is None or node.place[:2] != (node.rank, node.unlocked) for node in order):
        raise PageError("a leaf does not stand where its rank and age belong")
