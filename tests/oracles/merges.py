"""A small tokenizer that really merges, and an engine's tokens read back from its events."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import tokenizers

from treille.runtime.tokenizer import Tokenizer
from treille.runtime.types import TokenEvent

TEXT = """the international inter intern internal sun sunset sunday moon monday "name": "value", "number": 12,
"names": ["a", "b"], {"type": "string"}, https://www.example.org/index.html, http://example.com/ and then
another an and android ab abc abcd bcd bc cd abab ababab xyxy the then there their them 水火木 é è ü über"""


@lru_cache
def bpe_tokenizer(size: int = 420, *, splits: bool = False) -> Tokenizer:
    """Byte-level BPE trained on TEXT; `splits`: words are cut apart as GPT-2 does, else nothing is."""
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits)
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = level
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<eos>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = TEXT.split() if not splits else [TEXT]
    backend.train_from_iterator(words + [word + " " for word in words], trainer)
    return Tokenizer(backend, eos_ids=[0])


def read_tokens(events: Iterable[object], index: int = 0) -> tuple[int, ...]:
    """The tokens of one sample as a reader of its events has them."""
    ids: list[int] = []
    for event in events:
        if isinstance(event, TokenEvent) and event.index == index:
            del ids[len(ids) - event.num_replaced :]
            ids.extend(event.token_ids)
    return tuple(ids)
