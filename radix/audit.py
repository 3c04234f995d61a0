"""The tree's invariants, checked from the outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from treille.radix.errors import PageError
from treille.radix.node import TOKEN_BYTES, Node, Root
from treille.radix.tree import RadixTree


def check_tree(tree: RadixTree, ends: Sequence[tuple[Node, Node | None]]) -> list[int]:
    """All pages of the tree, if it is sound; PageError if not.

    `ends` holds, for each living lease, the node it ends at and the node of its partial page; the locks
    are counted anew from it.
    """
    locks: Counter[Node] = Counter()
    for end, donor in ends:
        at: Node | None = end
        while at is not None:
            locks[at] += 1
            at = at.parent
        if donor is not None:
            locks[donor] += 1
            if donor.parent is not end:
                raise PageError("a partial page does not follow its lease's path")

    nodes = _nodes(tree)
    if not locks.keys() <= set(nodes):
        raise PageError("a lease holds a node that is not in the tree")
    for node in nodes:
        _check_node(node, tree.page_bytes)
        if node.locks != locks[node]:
            raise PageError(f"a node has {node.locks} locks, and {locks[node]} leases hold it")
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
    if node.order != sorted(node.children):
        raise PageError("a node's sorted keys are not its children's")
    if node.num_tails != sum(len(key) < page_bytes for key in node.children):
        raise PageError("a node counts its tails wrongly")
    for key, child in node.children.items():
        if child.parent is not node or bytes(child.tokens[:page_bytes]) != key:
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
    for node in unlocked:
        parent = node.parent
        if parent is None or (parent.locks == 0 and isinstance(parent, Root)) or parent.locks:
            continue
        if (parent.rank, parent.unlocked) < (node.rank, node.unlocked):
            raise PageError("a node would go before its child")
