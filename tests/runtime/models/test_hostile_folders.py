"""Model folders with nonsense in them: one clear error each, at once, whatever the nonsense is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers

from treille.runtime.errors import ModelError
from treille.runtime.models.files import read_json
from treille.runtime.models.hf_config import config_from_hf
from treille.runtime.tokenizer_files import read_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", 10**9),  # a table of the layers was made first: it took all memory
        ("num_hidden_layers", 10**30),
        ("max_position_embeddings", 10**12),
        ("max_position_embeddings", 10**30),
        ("hidden_size", 10**30),
        ("rms_norm_eps", -1),
    ],
)
def test_numbers_that_no_model_has(tiny_hf: Any, name: str, value: float) -> None:
    with pytest.raises(ModelError, match=name):
        config_from_hf(tiny_hf(**{name: value}))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_json_that_python_gives_up_on(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(ModelError, match="cannot be read"):
        read_json(file)
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(ModelError, match="cannot be read"):
        read_settings(tmp_path, tokenizers.Tokenizer(tokenizers.models.BPE()))


def test_a_chat_template_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xff")
    with pytest.raises(ModelError, match="chat_template"):
        read_settings(tmp_path, tokenizers.Tokenizer(tokenizers.models.BPE()))
