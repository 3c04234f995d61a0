"""The byte-wise parts of the tree against plain comparisons, and `check` against broken states."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treille.radix import Lease, PageError, PrefixCache
from treille.radix.node import TOKEN_BYTES, Node, Root, common_prefix, pack
from treille.radix.tree import RadixTree

Serve = Callable[..., Lease]

# Ids that differ in one byte only, at either end, so that a cut inside a token would show.
IDS = st.sampled_from([0, 1, 256, 257, 2**31, 2**62, 2**62 + 1, -1])
RUN = st.lists(IDS, max_size=9)


def plain_prefix(a: list[int], b: list[int]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


@given(before=RUN, shared=RUN, a=RUN, b=RUN)
def test_common_prefix(before: list[int], shared: list[int], a: list[int], b: list[int]) -> None:
    left, right = shared + a, shared + b
    found = common_prefix(pack(before + left), len(before) * TOKEN_BYTES, bytearray(pack(right)))
    assert found == plain_prefix(left, right) * TOKEN_BYTES


@given(
    keys=st.lists(st.lists(IDS, min_size=1, max_size=4).map(tuple), unique=True, max_size=30),
    gone=st.integers(0, 30),
    query=RUN,
)
def test_closest_child(keys: list[tuple[int, ...]], gone: int, query: list[int]) -> None:
    """Of few children, of many, and of few that were many."""
    query = query[:4]
    root = Root(None)
    for page, key in enumerate(keys):
        root.attach(Node(root, pack(key), pack(key), [page]))
    for child in list(root.children.values())[:gone]:
        root.detach(child)
    keys = [key for key in keys if pack(key) in root.children]
    child, length = root.closest(pack(query))
    best = max((plain_prefix(list(key), query) for key in keys), default=0)
    assert length == best * TOKEN_BYTES
    if best:
        assert child is not None
        assert child.key in map(pack, keys)
        assert common_prefix(child.key, 0, pack(query)) == length
    else:
        assert child is None


def test_split_keeps_the_lower_part() -> None:
    root = Root(None)
    node = Node(root, pack(range(2)), pack(range(8)), [0, 1, 2, 3], locks=2)
    root.attach(node)
    upper = node.split(1, 2 * TOKEN_BYTES)
    assert (upper.pages, node.pages) == ([0], [1, 2, 3])
    assert (bytes(upper.tokens), bytes(node.tokens)) == (pack(range(2)), pack(range(2, 8)))
    assert (upper.key, node.key) == (pack(range(2)), pack(range(2, 4)))
    assert (upper.locks, node.locks) == (1, 2)
    assert root.children == {pack([0, 1]): upper}
    assert upper.children == {pack([2, 3]): node}
    assert (upper.parent, node.parent) == (root, upper)


def first_child(tree: RadixTree) -> Node:
    return tree.roots[None].children[pack([0, 1])]


def no_order(tree: RadixTree) -> None:
    for node in list(tree.leaves):
        tree.leaves.remove(node)


def wrong_order(tree: RadixTree) -> None:
    list(tree.leaves)[-1].unlocked += 100


def lost_page(tree: RadixTree) -> None:
    tree.pool._free.pop()


def page_twice(tree: RadixTree) -> None:
    tree.pool._free.append(tree.pool._free[0])


def free_and_cached(tree: RadixTree) -> None:
    tree.pool._free[0] = first_child(tree).pages[0]


def page_in_two_nodes(tree: RadixTree) -> None:
    next(iter(tree.leaves)).pages[0] = first_child(tree).pages[0]


def wrong_counter(tree: RadixTree) -> None:
    tree.pool.num_cached += 1


def wrong_locked_counter(tree: RadixTree) -> None:
    tree.num_locked += 1


def lost_lock(tree: RadixTree) -> None:
    first_child(tree).locks -= 1


def wrong_parent(tree: RadixTree) -> None:
    list(tree.leaves)[-1].parent = tree.roots[None]


def unsorted_keys(tree: RadixTree) -> None:
    tree.roots[None].order = sorted(tree.roots[None].children)[::-1]


def short_edge(tree: RadixTree) -> None:
    first_child(tree).tokens += pack([5, 6])


def wrong_key(tree: RadixTree) -> None:
    first_child(tree).key = pack([5, 6])


def root_with_a_page(tree: RadixTree) -> None:
    tree.roots[None].pages.append(7)


def moved_namespace(tree: RadixTree) -> None:
    tree.roots["other"] = tree.roots[None]


def node_gone(tree: RadixTree) -> None:
    tree.roots[None].detach(first_child(tree))


def empty_namespace(tree: RadixTree) -> None:
    tree.roots["empty"] = Root("empty")


def swapped_pages(tree: RadixTree) -> None:
    first_child(tree).pages.reverse()


FAULTS = [
    no_order,
    wrong_order,
    lost_page,
    page_twice,
    free_and_cached,
    page_in_two_nodes,
    wrong_counter,
    wrong_locked_counter,
    lost_lock,
    wrong_parent,
    unsorted_keys,
    short_edge,
    wrong_key,
    root_with_a_page,
    moved_namespace,
    node_gone,
    empty_namespace,
    swapped_pages,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_check_finds_each_fault(serve: Serve, fault: Callable[[RadixTree], None]) -> None:
    cache = PrefixCache(16, 2)
    lease, rest = cache.publish(cache.acquire([]), range(4), cache.allocate(2))
    serve(cache, [9, 9])
    serve(cache, range(8))
    serve(cache, [*range(6), 0, 0])
    assert rest == []
    cache.check()
    fault(cache._tree)
    with pytest.raises(PageError):
        cache.check()
    assert lease.num_tokens == 4
