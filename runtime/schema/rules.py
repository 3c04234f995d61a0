"""One rule a keyword: is its value well-formed in this draft, and what stands for it in the one dialect.

A rule takes the scan, the node, the keyword and its value, adds the schemas below to the node's children, and
returns the value that `Node.schema` has: the same object where nothing changes, or `DROPPED`. Sources: the
metaschemas of the drafts. They are read more leniently in two places: a list of names may be empty in draft
4, and so may `enum` in any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treille.runtime.schema import rule_schemas as below
from treille.runtime.schema import rule_values as own
from treille.runtime.schema.drafts import Draft, missing_keywords
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.scan import Scan

Rule = Callable[[Scan, Node, str, Any], Any]

_BY_RULE: Mapping[Rule, str] = {
    own.read_annotation: "$schema $id $comment $vocabulary title description default examples "
    "readOnly writeOnly deprecated",
    own.read_content: "contentEncoding contentMediaType",
    own.read_type: "type",
    own.read_enum: "enum",
    own.read_const: "const",
    own.read_number: "minimum maximum exclusiveMinimum exclusiveMaximum",
    own.read_factor: "multipleOf",
    own.read_count: "minLength maxLength minItems maxItems minContains maxContains "
    "minProperties maxProperties",
    own.read_flag: "uniqueItems",
    own.read_pattern: "pattern",
    own.read_format: "format",
    own.read_names: "required",
    own.read_reference: "$ref $dynamicRef",
    own.read_recursive_reference: "$recursiveRef",
    own.read_recursive_anchor: "$recursiveAnchor",
    own.read_anchor: "$anchor $dynamicAnchor",
    below.read_schema: "not if then else contains propertyNames additionalProperties unevaluatedItems "
    "unevaluatedProperties",
    below.read_schema_list: "allOf anyOf oneOf prefixItems",
    below.read_schemas: "properties",
    below.read_pattern_schemas: "patternProperties",
    below.read_definitions: "definitions",
    below.read_items: "items",
    below.read_additional_items: "additionalItems",
    below.read_dependencies: "dependencies",
    below.read_dependent_names: "dependentRequired",
    below.read_dependent_schemas: "dependentSchemas",
}
_COMMON: dict[str, Rule] = {key: rule for rule, keys in _BY_RULE.items() for key in keys.split()}
_SINCE_2019: dict[str, Rule] = {"$defs": below.read_definitions, "contentSchema": below.read_kept_schema}
_OF_DRAFT: Mapping[Draft, dict[str, Rule]] = {
    Draft.D4: {
        "id": own.read_annotation,
        "type": own.read_type_4,
        **dict.fromkeys(own.EXCLUSIVE, own.read_bound_4),
        **dict.fromkeys(own.BOUND, own.read_exclusive_4),
    },
    Draft.D6: {},
    Draft.D7: {},
    Draft.D2019: _SINCE_2019,
    Draft.D2020: {**_SINCE_2019, "items": below.read_items_2020},
}
RULES: Mapping[Draft, dict[str, Rule]] = {
    draft: {**_COMMON, **_OF_DRAFT[draft], **dict.fromkeys(missing_keywords(draft), own.read_missing)}
    for draft in Draft
}
