"""`compile_lark`: texts that a Lark grammar parses."""

from __future__ import annotations

from treille.runtime.errors import ConstraintError, InvalidConstraint
from treille.runtime.grammar.classes import classes_of
from treille.runtime.grammar.grammar import Grammar, RegularGrammar
from treille.runtime.grammar.lark_blueprint import MAX_SECONDS, lark_blueprint
from treille.runtime.grammar.lark_loader import Parser
from treille.runtime.grammar.limits import Budget, Cancelled
from treille.runtime.grammar.vocabulary import Vocabulary

PARSERS = ("earley", "lalr")


def compile_lark(
    text: str,
    vocab: Vocabulary,
    start: str = "start",
    parser: Parser = "earley",
    *,
    cancelled: Cancelled | None = None,
) -> Grammar:
    """Exactly the texts that `lark.Lark(text, start=start, parser=parser).parse` takes.

    `parser` "earley" has Lark's dynamic lexer: every terminal that the rules allow at a place is matched
    there by itself, as `re.match` would, so a terminal ends where its own search finds the first match, and
    not earlier. Ignored terminals may stand before any terminal and at the end. Priorities choose among
    trees; they do not change which texts are taken.

    `parser` "lalr" has Lark's contextual lexer: at every place one alternation of the terminals that the
    parser's state can use, and of the ignored ones, is matched, by priority, then length. The first that
    matches is the token even if another would have fitted; a name that is equal to a keyword is the keyword.
    A conflict is settled as Lark does it.

    A text for which Lark's Earley parser finds two roots, and raises a `RuntimeError` about itself, counts
    as taken.

    Raises `InvalidConstraint`, in Lark's words, for a grammar that Lark refuses, and for one that no text
    can be derived from. Raises `UnsupportedConstraint` for imports other than Lark's own grammars, for
    `%declare`, for terminals that are not regular expressions proper (see `parse_python.py`), and past the
    limits of `lark_limits.py`, `lexing.py` and `cfg.py`.
    """
    if parser not in PARSERS:
        raise ValueError(f"parser must be one of {', '.join(PARSERS)}, not {parser!r}")
    if not isinstance(text, str):
        raise InvalidConstraint(f"a grammar is a string, not {text!r}", field="grammar")
    try:
        classes_of([])  # numba compiles it at the first call of all, which is no grammar's fault
        budget = Budget("grammar", seconds=MAX_SECONDS, cancelled=cancelled)
        return vocab.cache.get(
            ("lark", parser, start, text),
            lambda: RegularGrammar(lark_blueprint(text, start, parser, budget), vocab, budget),
        )
    except ConstraintError as error:
        error.field = error.field or "grammar"
        raise
