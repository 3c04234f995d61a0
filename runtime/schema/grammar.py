"""`SchemaGrammar`: a JSON Schema joined to a vocabulary."""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.arena import MAX_STEP_SECONDS
from treille.runtime.grammar.grammar import Grammar, Mask
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.store import Int32s
from treille.runtime.grammar.vocabulary import Vocabulary
from treille.runtime.schema.arena import JsonArena
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.machine.masks import DIFFERENCE, FREE, LONG, SUSPECTS, WALK
from treille.runtime.schema.tables import Tables


class SchemaGrammar(Grammar):
    """A grammar on the machine for JSON texts; `tables` and `languages` are its own. What was asked of these
    so far its first arena goes on with."""

    arena: JsonArena

    def __init__(self, tables: Tables, languages: Languages, vocab: Vocabulary, budget: Budget) -> None:
        self._budget = budget
        self._tables = tables
        self._languages = languages
        self._suspects: dict[int, Int32s] = {}
        super().__init__(vocab)
        self.arena.seconds = MAX_STEP_SECONDS

    def _new_arena(self) -> JsonArena:
        self._suspects.clear()
        return JsonArena(self._tables, self._languages.release(), self.vocab, self._budget)

    def after_token(self, state: int, token_id: int) -> int:
        """The state of the current arena after a token that is text, or a negative number."""
        return self.arena.after_token(state, token_id)

    def _walked(self, state: int) -> Mask:
        arena = self.arena
        simple, agrees, base = arena.simplified(state)
        if simple == state:
            return self._of_simple(state, base)
        row = self.mask(simple)
        suspects = self._suspects.get(simple)
        self._looked[state] = self._looked[simple]
        far = agrees is not None and self._looked[simple] > agrees
        if not far and suspects is None:
            return row
        row = row.copy()
        if suspects is not None:
            arena.room[: len(suspects)] = suspects
            arena.fill(SUSPECTS, state, 0, row)
        if far and agrees is not None:
            arena.fill(LONG, state, agrees, row)
        return row

    def _of_simple(self, state: int, base: int) -> Mask:
        """The mask of a state without captured texts and long counts; `base`: see `JsonArena.simplified`."""
        if 0 <= base != state:
            row = self.mask(base).copy()
            self._looked[state] = self.arena.fill(DIFFERENCE, state, base, row)
            self._settle(state, self._suspects.get(base), row)
            return row
        row = self._fresh_row(state)
        self._looked[state] = self.arena.fill(FREE if base == state else WALK, state, 0, row)
        self._settle(state, None, row)
        return row

    def _settle(self, state: int, more: Int32s | None, row: Mask) -> None:
        """Looks at the tokens whose verdict depends on a text that the walk left out, those of another state
        among them; if the text is one that the state itself leaves out, they are kept for the states that
        have it."""
        room = self.arena.room
        found = room[: 2 * int(room[0]) + 1].copy()
        if more is not None:
            found = np.concatenate([found, more[1:]])
            found[0] += more[0]
            if len(found) > len(room):
                found = np.array([1, 0, self.vocab.trie.token_start[-1]], np.int32)
        if found[0]:
            self._suspects[state] = found
            room[: len(found)] = found
            self.arena.fill(SUSPECTS, state, 0, row)
