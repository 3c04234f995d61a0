"""Small file reading shared by the loaders."""

from __future__ import annotations

import json
from pathlib import Path

from treille.runtime.errors import ModelError


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in a file. Raises `ModelError` if it is not one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} must hold a JSON object")
    return data
