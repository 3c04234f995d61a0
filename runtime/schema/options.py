"""How a schema is to be written down: white space, the order of properties, numbers, formats, escapes."""

from __future__ import annotations

from dataclasses import dataclass

from treille.runtime.errors import InvalidConstraint

WHITESPACE = ("flexible", "compact", "any")
PROPERTY_ORDERS = ("schema", "any")
NUMBER_STYLES = ("json", "plain")
FORMATS = ("assert", "annotation")
ESCAPES = ("minimal", "any")
MAX_INDENT = 16
_BLANKS = frozenset(" \t\n\r")


@dataclass(frozen=True, slots=True)
class Layout:
    """Fixed white space, as `json.dumps` has it: the separators, and the indentation a level (None: all in
    one line). Empty objects and arrays have nothing inside."""

    indent: int | None = None
    item_separator: str = ", "
    key_separator: str = ": "

    def __post_init__(self) -> None:
        if self.indent is not None and not 0 <= self.indent <= MAX_INDENT:
            raise InvalidConstraint(
                f"indent must be from 0 to {MAX_INDENT}, not {self.indent}", field="whitespace"
            )
        for name, separator, mark in (
            ("item_separator", self.item_separator, ","),
            ("key_separator", self.key_separator, ":"),
        ):
            if separator[:1] != mark or not _BLANKS.issuperset(separator[1:]) or len(separator) > MAX_INDENT:
                reason = f"{name} must be {mark!r} and then white space, not {separator!r}"
                raise InvalidConstraint(reason, field="whitespace")


@dataclass(frozen=True, slots=True)
class Options:
    """What a request may choose besides its schema.

    `whitespace`: "flexible" (between tokens one or two blanks, or up to two line ends and then an indentation
    of up to 40 blanks), "compact" (none), "any" (without bound, around the whole
    text too: to check texts, not to write them), or a `Layout`.
    `property_order`: "schema" (declared properties in their order, others after them) or "any".
    `number_style`: "json" (every spelling: 1, 1.0, 1e0) or "plain" (one a number: 3, 0.5).
    `formats`: "assert" or "annotation".
    `escapes`: "minimal" (a character is written as itself where JSON and the tokens allow that) or "any"
    (every spelling); by default "any" beside whitespace "any", which is to check texts, else "minimal".
    """

    whitespace: str | Layout = "flexible"
    property_order: str = "schema"
    number_style: str = "json"
    formats: str = "assert"
    escapes: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.whitespace, Layout):
            _check("whitespace", self.whitespace, WHITESPACE)
        _check("property_order", self.property_order, PROPERTY_ORDERS)
        _check("number_style", self.number_style, NUMBER_STYLES)
        _check("formats", self.formats, FORMATS)
        if self.escapes is None:
            object.__setattr__(self, "escapes", "any" if self.whitespace == "any" else "minimal")
        _check("escapes", self.escapes, ESCAPES)


def _check(name: str, given: object, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidConstraint(f"{name} must be one of {', '.join(known)}, not {given!r}", field=name)
