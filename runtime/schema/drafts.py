"""The drafts of JSON Schema: how a document says which it is of, and which keywords each has.

Sources: the specifications and metaschemas of drafts 4, 6, 7, 2019-09 and 2020-12 (json-schema.org).
"""

from __future__ import annotations

from enum import Enum

from treille.runtime.errors import UnsupportedConstraint


class Draft(Enum):
    """A draft of JSON Schema."""

    D4 = "draft-04"
    D6 = "draft-06"
    D7 = "draft-07"
    D2019 = "draft/2019-09"
    D2020 = "draft/2020-12"


DRAFTS = tuple(Draft)
OLD = frozenset((Draft.D4, Draft.D6, Draft.D7))

_HOST = "json-schema.org/"
# Draft 5 was published as a repair of draft 4's text: its metaschema is draft 4's.
_NAMES = {draft.value: draft for draft in Draft} | {"draft-05": Draft.D4}
# OpenAPI 3.1 describes its schemas as 2020-12 and some annotations.
_EXTENDED = ("https://spec.openapis.org/oas/3.1/",)
_OTHER = frozenset(("draft-00", "draft-01", "draft-02", "draft-03"))


def draft_named(uri: str, place: str) -> Draft | None:
    """The draft that a `$schema` names, with http or https and with or without an empty fragment; None for a
    value that names no metaschema at all, which is best read as the default.

    Raises `UnsupportedConstraint` for the drafts before 4 and for metaschemas of other makers: what their
    keywords mean cannot be known. `place` is the pointer to name then.
    """
    plain = uri.removesuffix("#")
    scheme, _, rest = plain.partition("://")
    if scheme in ("http", "https") and rest.startswith(_HOST):
        parts = rest[len(_HOST) :].split("/")
        found = _NAMES.get(parts[0]) or _NAMES.get("/".join(parts[:2]))
        if parts[0] in _OTHER:
            raise UnsupportedConstraint(
                "$schema", place, f"{uri} is not a draft that is known", field="schema"
            )
        return found
    if plain.startswith(_EXTENDED):
        return Draft.D2020
    if ":" in plain:
        reason = f"the metaschema {uri} is not known; name a draft of json-schema.org, or leave `$schema` out"
        raise UnsupportedConstraint("$schema", place, reason, field="schema")
    return None


# Where each keyword is from, for those that not every draft has.
_SINCE = {
    Draft.D6: ("const", "contains", "propertyNames"),
    Draft.D7: ("if", "then", "else"),
    Draft.D2019: (
        "minContains", "maxContains", "dependentRequired", "dependentSchemas",
        "unevaluatedItems", "unevaluatedProperties", "$anchor",
    ),
    Draft.D2020: ("prefixItems", "$dynamicRef", "$dynamicAnchor"),
}  # fmt: skip


def missing_keywords(draft: Draft) -> frozenset[str]:
    """The keywords of other drafts that say nothing in this one."""
    place = DRAFTS.index(draft)
    later = {key for since, keys in _SINCE.items() if DRAFTS.index(since) > place for key in keys}
    if draft is not Draft.D2019:
        later |= {"$recursiveRef", "$recursiveAnchor"}
    return frozenset(later | ({"additionalItems"} if draft is Draft.D2020 else set()))
