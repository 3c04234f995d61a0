"""`Vocabulary`: the bytes of every token, and the trie that masks are walked on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treille.runtime.grammar.arena import Arena
from treille.runtime.grammar.build import Blueprint, Program
from treille.runtime.grammar.cache import ByteCache
from treille.runtime.grammar.masks import ALL_SPELLABLE, Slices, Trie, build_trie, cover, fill_tokens
from treille.runtime.grammar.parse_python import parse_python
from treille.runtime.grammar.slices import cut, symbols_of
from treille.runtime.grammar.spellings import read_tokenizer
from treille.runtime.grammar.states import FORCED
from treille.runtime.grammar.tree import ANY, Repeat

DEFAULT_CACHE_BYTES = 256 << 20
# Whole characters of UTF-8 that may stand in a JSON string as they are.
_STRING_TEXT = re.compile(
    rb"(?:[\x20!#-\[\]-\x7f]+|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*"
)
# The beginning of a character in UTF-8.
_PART_OF_CHARACTER = re.compile(
    rb"[\xc2-\xf4]|\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f]"
    rb"|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]?"
)
_ENDS_BEHIND_ESCAPE = re.compile(rb'[^"\\]*\\.[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class Vocabulary:
    """The tokens of a model, fixed. Grammars that were compiled for it are cached on it.

    `tokens[t]` is what token t adds to the text, or None for tokens that are not text: special,
    control and unused ones; those, and tokens without bytes, are in no mask. `eos_ids` end a text and
    are in a mask iff the text may end there. `vocab_size` may be larger than the number of tokens, as
    logits sometimes are: the ids past the end are in no mask.
    """

    def __init__(
        self,
        tokens: Sequence[bytes | None],
        *,
        eos_ids: Iterable[int] = (),
        vocab_size: int | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        self.vocab_size = len(tokens) if vocab_size is None else vocab_size
        if self.vocab_size < len(tokens):
            raise ValueError(f"vocab_size is {self.vocab_size}, and there are {len(tokens)} tokens")
        self.eos_ids = frozenset(eos_ids)
        if not all(0 <= one < self.vocab_size for one in self.eos_ids):
            raise ValueError(f"eos_ids must be token ids below {self.vocab_size}: {sorted(self.eos_ids)}")
        self.tokens: tuple[bytes | None, ...] = tuple(
            None if not spelling or token_id in self.eos_ids else bytes(spelling)
            for token_id, spelling in enumerate(tokens)
        )
        self.cache = ByteCache(cache_bytes)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any,
        *,
        eos_ids: Iterable[int] | None = None,
        vocab_size: int | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Vocabulary:
        """The vocabulary of this runtime's `Tokenizer`, a `tokenizers.Tokenizer` or a transformers one.

        `eos_ids` replaces the tokenizer's own; a bare `tokenizers.Tokenizer` has none, and then its
        special tokens with a usual name (`</s>`, `<|im_end|>`, ...) are taken. `vocab_size`: the width
        of the model's logits, if larger. Raises `ValueError` for a tokenizer whose tokens have no
        bytes of their own, `TypeError` for anything else.
        """
        found = read_tokenizer(tokenizer)
        return cls(
            found.tokens,
            eos_ids=found.eos_ids if eos_ids is None else eos_ids,
            vocab_size=max(found.vocab_size, vocab_size or 0),
            cache_bytes=cache_bytes,
        )

    def prepare(self) -> None:
        """Builds the trie and loads the compiled loops now, so that no request waits for them."""
        parse_python(r"\d\w\s")
        data = self.trie.data
        program = Program()
        program.add(Repeat(ANY, 0, 1))
        blueprint = Blueprint(program)
        arena = Arena.fresh(blueprint)
        arena.after(arena.start, data, 0, min(1, len(data)))
        arena.ask(FORCED, arena.start, data=np.empty(1, np.uint8))
        stack = np.empty(int(self.trie.max_depth) + 1, np.int32)
        row = np.zeros(self.num_words, np.uint32)
        symbols = symbols_of(blueprint.classes)
        arena.run(fill_tokens, self.trie, self.slices, symbols, arena.start, -1, ALL_SPELLABLE, stack, row)

    @property
    def num_words(self) -> int:
        """Length of a mask's row: 32 tokens a word."""
        return -(-self.vocab_size // 32)

    @cached_property
    def trie(self) -> Trie:
        """The token trie; built when it is first wanted."""
        trie = build_trie(self.tokens)
        cover(trie, self._slices_and_bits[1])
        return trie

    @property
    def slices(self) -> Slices:
        """Tokens that are made of certain characters only."""
        return self._slices_and_bits[0]

    @cached_property
    def rests(self) -> Trie:
        """The trie of what stands behind the text of tokens that go on with the end of a JSON string, or with
        an escape."""
        return build_trie(self._texts_and_rests[1])

    @cached_property
    def text_words(self) -> NDArray[np.uint32]:
        """The mask of the tokens that may stand in a JSON string as they are, the last character perhaps not
        whole."""
        row = np.zeros(self.num_words, np.uint32)
        ids = np.array(self._texts_and_rests[0], np.int64)
        np.bitwise_or.at(row, ids >> 5, np.uint32(1) << (ids & 31).astype(np.uint32))
        return row

    @cached_property
    def mixed_ids(self) -> NDArray[np.int64]:
        """The tokens that have an escape of a JSON string and, behind it, a quote that may end one."""
        rests = self._texts_and_rests[1]
        found = [token_id for token_id, rest in enumerate(rests) if rest and _ENDS_BEHIND_ESCAPE.match(rest)]
        return np.array(found, np.int64)

    @cached_property
    def _texts_and_rests(self) -> tuple[list[int], list[bytes | None]]:
        texts: list[int] = []
        rests: list[bytes | None] = [None] * len(self.tokens)
        for token_id, spelling in enumerate(self.tokens):
            text = _STRING_TEXT.match(spelling) if spelling is not None else None
            if spelling is None or text is None:
                continue
            rest = spelling[text.end() :]
            if not rest or _PART_OF_CHARACTER.fullmatch(rest):
                texts.append(token_id)
            elif rest[0] in b'"\\':
                rests[token_id] = rest
        return texts, rests

    @cached_property
    def _slices_and_bits(self) -> tuple[Slices, NDArray[np.uint32]]:
        return cut(self.tokens, self.num_words)

    @cached_property
    def ends(self) -> list[int]:
        """The bytes of token t are `trie.data[ends[t]:ends[t + 1]]`."""
        ends: list[int] = self.trie.ends.tolist()
        return ends

    @cached_property
    def single_bytes(self) -> NDArray[np.bool_]:
        """Which bytes are a token by themselves: bool [256]."""
        present = np.zeros(256, np.bool_)
        present[[spelling[0] for spelling in self.tokens if spelling is not None and len(spelling) == 1]] = (
            True
        )
        return present

    @cached_property
    def possible_bytes(self) -> NDArray[np.bool_]:
        """Which bytes that begin a character are in any token, and all others: bool [256]."""
        possible = np.zeros(256, np.bool_)
        possible[np.unique(self.trie.data)] = True
        possible[0x80:0xC0] = True
        return possible

    @cached_property
    def eos_words(self) -> NDArray[np.uint32]:
        """The mask in which only the ids that end a text are set."""
        row = np.zeros(self.num_words, np.uint32)
        for token_id in self.eos_ids:
            row[token_id >> 5] |= np.uint32(1 << (token_id & 31))
        row.flags.writeable = False
        return row
