"""Which token sequences a grammar derives, the slow and plain way."""

from __future__ import annotations

from collections.abc import Sequence

from treille.runtime.grammar.cfg import Body, Cfg, Either, Join, RuleRef, Star, TermRef


def derives(cfg: Cfg, tokens: Sequence[int]) -> bool:
    """Whether the solved grammar derives the sequence of terminals."""
    return len(tokens) in _Ends(cfg, tokens).of(cfg.start, 0)


class _Ends:
    """Where a body may end that begins at a place; endless recursion if the grammar is left-recursive."""

    def __init__(self, cfg: Cfg, tokens: Sequence[int]) -> None:
        self._cfg = cfg
        self._tokens = tokens
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def of(self, body: Body, place: int) -> frozenset[int]:
        match body:
            case TermRef(index):
                fits = place < len(self._tokens) and self._tokens[place] == index
                return frozenset([place + 1]) if fits else frozenset()
            case RuleRef(index):
                if (index, place) not in self._known:
                    self._known[index, place] = self.of(self._cfg.bodies[index], place)
                    assert place not in self._known[index, place], "a rule is empty"
                return self._known[index, place]
            case Join(parts):
                places = frozenset([place])
                for part in parts:
                    places = frozenset(end for one in places for end in self.of(part, one))
                return places
            case Either(options):
                return frozenset(end for one in options for end in self.of(one, place))
            case Star(inner):
                found = {place}
                todo = [place]
                while todo:
                    for end in self.of(inner, todo.pop()) - found:
                        found.add(end)
                        todo.append(end)
                return frozenset(found)
