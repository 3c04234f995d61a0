"""References: URIs, the resources of a document and what their fragments name.

Sources: RFC 3986 section 5.2 (resolution), RFC 6901 (JSON Pointer), JSON Schema 2020-12 core sections 8.2
and 9, draft 7 core section 8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.nodes import Node

MAX_URI = 4096

_URI = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


class Resource:
    """What has one base URI: the document, and each schema below that has an `$id` of its own.

    `anchors`: the plain names that are fragments in it. `dynamic`: those of them that are from
    `$dynamicAnchor`, and its root under "" if that has `$recursiveAnchor`.
    """

    __slots__ = ("anchors", "draft", "dynamic", "number", "root", "uri")

    def __init__(self, number: int, uri: str, draft: Draft, root: Node) -> None:
        self.number = number
        self.uri = uri
        self.draft = draft
        self.root = root
        self.anchors: dict[str, Node] = {}
        self.dynamic: dict[str, Node] = {}


def resolve(base: str, reference: str) -> str:
    """The absolute form of a reference, with its fragment; relative where the base is."""
    scheme, authority, path, query, fragment = _split(reference)
    if scheme is None:
        scheme, base_authority, base_path, base_query, _ = _split(base)
        if authority is None:
            authority = base_authority
            if not path:
                path = base_path
                query = base_query if query is None else query
            elif not path.startswith("/"):
                inside = (
                    base_path.rpartition("/")[0] + "/" if "/" in base_path or authority is not None else ""
                )
                path = _without_dots(inside + path)
            else:
                path = _without_dots(path)
        else:
            path = _without_dots(path)
    else:
        path = _without_dots(path)
    whole = path if authority is None else f"//{authority}{path}"
    whole = whole if scheme is None else f"{scheme}:{whole}"
    whole = whole if query is None else f"{whole}?{query}"
    return f"{whole}#{fragment}" if fragment else whole


def _split(uri: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    found = _URI.fullmatch(uri)
    if found is None:  # every string matches
        raise ValueError(uri)
    scheme, authority, path, query, fragment = found.groups()
    return scheme, authority, path or "", query, fragment


def _without_dots(path: str) -> str:
    if "." not in path:
        return path
    kept: list[str] = []
    steps = path.split("/")
    for place, name in enumerate(steps):
        last = place == len(steps) - 1
        if name == "..":
            if kept and kept != [""]:
                kept.pop()
        elif name != ".":
            kept.append(name)
            continue
        if last:
            kept.append("")
    return "/".join(kept)


def pointer_tokens(fragment: str) -> list[str]:
    """The tokens of a JSON Pointer that starts with a slash (percent-encoding already undone)."""
    tokens = fragment[1:].split("/")
    return [token.replace("~1", "/").replace("~0", "~") if "~" in token else token for token in tokens]


def fragment_of(text: str) -> str:
    """A fragment without its percent-encoding."""
    return unquote(text) if "%" in text else text


def member(value: object, token: str) -> tuple[str | int, Any] | None:
    """What a token names in an object or an array, after the token as a key or an index; None for nothing."""
    if isinstance(value, dict):
        return (token, value[token]) if token in value else None
    if isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
        return int(token), value[int(token)]
    return None


@lru_cache(maxsize=32)
def metaschema(uri: str) -> Mapping[str, Any] | None:
    """The metaschema of a draft, or one of its vocabularies, by its URI; None if it is none of them."""
    if not uri.partition("://")[2].startswith("json-schema.org/"):
        return None
    # Hardly any schema needs it, and it takes longer to import than a thousand schemas to read.
    from jsonschema_specifications import REGISTRY

    for scheme in ("http://", "https://"):
        name = scheme + uri.partition("://")[2]
        if name in REGISTRY or f"{name}#" in REGISTRY:
            found = REGISTRY[name if name in REGISTRY else f"{name}#"].contents
            return found if isinstance(found, dict) else None
    return None
