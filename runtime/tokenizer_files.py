"""The files of a tokenizer folder, read into one value: what transformers writes, leniently understood."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from treille.runtime.errors import ModelError

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """What stands around tokenizer.json. `add_bos` is None where no file says anything."""

    chat_template: str | None
    bos_id: int | None
    eos_ids: frozenset[int]
    special_ids: frozenset[int]
    add_bos: bool | None
    variables: dict[str, str]


def read_backend(folder: Path) -> tokenizers.Tokenizer:
    """tokenizer.json, without the truncation or padding that it may have been saved with."""
    file = folder / "tokenizer.json"
    try:
        backend = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{folder} holds no tokenizer.json: copy the model's own there, or make one with "
            f"transformers.AutoTokenizer.from_pretrained(...).save_pretrained({str(folder)!r})"
        ) from None
    except Exception as error:  # the bindings raise bare Exception for a file that does not parse
        raise ModelError(f"{file} cannot be read as a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def read_settings(folder: Path, backend: tokenizers.Tokenizer) -> TokenizerSettings:
    """The other files of the folder; all of them may be missing. `ModelError` for one that is not JSON."""
    config = {
        **_read_json(folder / "special_tokens_map.json"),
        **_read_json(folder / "tokenizer_config.json"),
    }
    variables: dict[str, str] = {}
    for name in _SPECIAL_NAMES:
        text = _token_text(config.get(name))
        if text is not None:
            variables[name] = text
    more = [_token_text(token) for token in _as_list(config.get("additional_special_tokens"))]
    ids = {text: backend.token_to_id(text) for text in [*variables.values(), *more] if text}
    eos = ids.get(variables.get("eos_token", ""))
    add_bos = config.get("add_bos_token")
    return TokenizerSettings(
        chat_template=_chat_template(folder, config),
        bos_id=ids.get(variables.get("bos_token", "")),
        eos_ids=_eos_ids(folder) | frozenset([] if eos is None else [eos]),
        special_ids=frozenset(token_id for token_id in ids.values() if token_id is not None),
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        variables=variables,
    )


def _eos_ids(folder: Path) -> frozenset[int]:
    """The model's ends of text: generation_config.json decides, config.json where it is silent."""
    for name in ("generation_config.json", "config.json"):
        found = _as_list(_read_json(folder / name).get("eos_token_id"))
        if found:
            return frozenset(i for i in found if isinstance(i, int) and not isinstance(i, bool) and i >= 0)
    return frozenset()


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """chat_template.jinja, else the config's entry: one template, or the one named `default` of several."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{file} cannot be read: {error}") from error
    entry = config.get("chat_template")
    if isinstance(entry, list):
        named = {item.get("name"): item.get("template") for item in entry if isinstance(item, dict)}
        entry = named.get("default")
    return entry if isinstance(entry, str) else None


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{file} must hold a JSON object")
    return value


def _token_text(token: object) -> str | None:
    """A special token's text: written plainly, or as an object with its `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _as_list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
