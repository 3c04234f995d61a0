"""Constraints on generated text: what may be compiled, and what a token may be next.

vocab = Vocabulary.from_tokenizer(tokenizer)
grammar = compile_regex(r"[A-Z]{2,4}-\\d{1,5}", vocab)
matcher = grammar.matcher()
matcher.fill_mask(row)
matcher.accept(token_id)
"""

from __future__ import annotations

import treille.runtime.grammar.kept  # noqa: F401 - first: it is asked about all compiled code
from treille.runtime.grammar.batch import fill_masks
from treille.runtime.grammar.compile import compile_choices, compile_regex
from treille.runtime.grammar.grammar import Grammar, Matcher
from treille.runtime.grammar.lark_compile import compile_lark
from treille.runtime.grammar.vocabulary import Vocabulary
from treille.runtime.schema.compile import compile_json_schema  # last: it builds on all of the above

__all__ = [
    "Grammar",
    "Matcher",
    "Vocabulary",
    "compile_choices",
    "compile_json_schema",
    "compile_lark",
    "compile_regex",
    "fill_masks",
]
