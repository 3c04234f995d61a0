"""Instances of pydantic models while their JSON text is still being written."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import AliasChoices, BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import to_json

_MAX_MODELS = 256


class _Missing:
    """No value yet."""


_MISSING = _Missing()


def partial_instance(annotation: Any, adapter: TypeAdapter[Any], data: object) -> object:
    """What JSON data that is not complete says of a type.

    The instance, once the data has all that the type needs. Before that a pydantic model is an instance of
    its class with the fields that are there and valid so far, each of its own type, and others' defaults;
    `model_fields_set` names those that came, and those without a default are missing. Lists of models hold
    such instances. For any other type the data itself. Validators of a model, and those that are methods for
    one of its fields, have not run on an instance that is not complete.
    """
    found = _partial(annotation, adapter, data)
    return data if found is _MISSING else found


def _partial(annotation: Any, adapter: TypeAdapter[Any], data: object) -> object:
    try:
        return adapter.validate_json(to_json(data, inf_nan_mode="constants"))
    except Exception:  # a validator of the program's own may raise anything about what is not complete
        pass
    inner = _unmarked(annotation)
    if isinstance(data, dict) and _is_model(inner):
        return _of_model(inner, data)
    if isinstance(data, list) and typing.get_origin(inner) is list:
        item = _unmarked(typing.get_args(inner)[0])
        if _is_model(item):
            made = [_partial(item, _adapters(item)[""], one) for one in data]
            return [one for one in made if one is not _MISSING]
    return _MISSING


def _of_model(model: type[BaseModel], data: Mapping[str, object]) -> object:
    found: dict[str, object] = {}
    adapters = _adapters(model)
    for name, info in model.model_fields.items():
        key = next((key for key in _keys(name, info) if key in data), None)
        if key is None:
            continue
        value = _partial(info.annotation, adapters[name], data[key])
        if value is not _MISSING:
            found[name] = value
    try:
        return model.model_construct(set(found), **found)
    except Exception:  # its model_post_init, which may need what is not there
        return _MISSING


@lru_cache(_MAX_MODELS)
def _adapters(model: type[BaseModel]) -> dict[str, TypeAdapter[Any]]:
    """Of each field by its name; of the model itself under no name."""
    fields: dict[str, TypeAdapter[Any]] = {
        name: TypeAdapter(info.rebuild_annotation()) for name, info in model.model_fields.items()
    }
    return {**fields, "": TypeAdapter(model)}


def _keys(name: str, info: FieldInfo) -> Iterator[str]:
    """The names that a field may have in JSON."""
    alias = info.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    yield from (one for one in choices if isinstance(one, str))
    yield name


def _unmarked(annotation: Any) -> Any:
    """A type without Annotated and without the None beside it."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [one for one in typing.get_args(annotation) if one is not type(None)]
        return _unmarked(others[0]) if len(others) == 1 else annotation
    return annotation


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
