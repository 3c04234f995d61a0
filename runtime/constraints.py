"""From a request's constraint to its `Grammar`."""

from __future__ import annotations

from typing import Any

from treille.runtime.errors import InvalidConstraint
from treille.runtime.grammar import (
    Grammar,
    Vocabulary,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
)
from treille.runtime.grammar.limits import Cancelled
from treille.runtime.params import Constraint
from treille.runtime.schema.options import Layout
from treille.runtime.schema_source import SchemaSource, Spacing


def compile_constraint(
    constraint: Constraint, vocab: Vocabulary, *, cancelled: Cancelled | None = None
) -> Grammar:
    """The grammar of a request's constraint; errors name the request's field.

    `cancelled` is asked now and then whether to stop, which ends in `CompileCancelled`.
    """
    source = constraint.source
    if constraint.kind == "regex" and isinstance(source, str):
        return compile_regex(source, vocab, cancelled=cancelled)
    if constraint.kind == "choices" and isinstance(source, tuple):
        return compile_choices(source, vocab, cancelled=cancelled)
    if constraint.kind == "schema" and isinstance(source, SchemaSource):
        return compile_json_schema(source.text, vocab, **schema_options(source), cancelled=cancelled)
    if constraint.kind == "grammar" and isinstance(source, str):
        return compile_lark(source, vocab, cancelled=cancelled)
    raise InvalidConstraint(f"no constraint has kind {constraint.kind!r} and source {source!r}")


def schema_options(source: SchemaSource) -> dict[str, Any]:
    """The options of a schema, by the names that its compiler has for them."""
    spacing = source.whitespace
    if isinstance(spacing, Spacing):
        whitespace: str | Layout = Layout(spacing.indent, spacing.item_separator, spacing.key_separator)
    else:
        whitespace = spacing
    return {
        "whitespace": whitespace,
        "property_order": source.property_order,
        "number_style": source.number_style,
        "formats": source.formats,
        "escapes": source.escapes,
    }
