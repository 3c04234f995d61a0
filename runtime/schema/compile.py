"""From a JSON Schema to a `Grammar`."""

from __future__ import annotations

from collections.abc import Mapping

from treille.runtime.errors import ConstraintError
from treille.runtime.grammar.grammar import Grammar
from treille.runtime.grammar.limits import Budget, Cancelled
from treille.runtime.grammar.vocabulary import Vocabulary
from treille.runtime.schema.document import Document
from treille.runtime.schema.grammar import SchemaGrammar
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.options import Layout, Options
from treille.runtime.schema.sets import DocumentSets
from treille.runtime.schema.tables import Tables


def compile_json_schema(
    schema: object,
    vocab: Vocabulary,
    *,
    whitespace: str | Layout = "flexible",
    property_order: str = "schema",
    number_style: str = "json",
    formats: str = "assert",
    escapes: str | None = None,
    documents: Mapping[str, object] | None = None,
    cancelled: Cancelled | None = None,
) -> Grammar:
    """The JSON texts of the values that a schema allows. For the options see `Options`. `documents`: schemas
    that its references lead to, by their absolute URIs (nothing is fetched).

    Raises `InvalidConstraint` for what is no schema, or one that no value satisfies;
    `UnsupportedConstraint`, with the keyword and a JSON Pointer to it, for what cannot be enforced exactly
    or is past a limit.
    """
    options = Options(whitespace, property_order, number_style, formats, escapes)
    try:
        return _compiled(schema, vocab, options, documents, Budget("schema", cancelled=cancelled))
    except ConstraintError as error:
        error.field = error.field or "schema"
        raise


def _compiled(
    schema: object,
    vocab: Vocabulary,
    options: Options,
    documents: Mapping[str, object] | None,
    budget: Budget,
) -> Grammar:
    document = Document(
        schema,
        formats="assert" if options.formats == "assert" else "annotation",
        one_spelling=options.number_style == "plain",
        documents=documents,
    )
    languages = Languages(document.patterns, document.formats, budget=budget)
    sets = DocumentSets(document, languages, check=budget.check_time)
    tables = Tables(sets, languages, options, vocab.single_bytes)
    tables.work_out_all()
    return SchemaGrammar(tables, languages, vocab, budget)
