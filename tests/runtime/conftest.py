"""Engines on the history model, and the embedded model's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from oracles.history_model import HistoryModel, Speaker, byte_tokenizer

from treille.runtime.engine import Engine
from treille.runtime.models.load import LoadedModel
from treille.runtime.models.resolve import resolve_model
from treille.runtime.tokenizer import Tokenizer


@pytest.fixture
def history_model() -> HistoryModel:
    return HistoryModel()


@pytest.fixture
def speaker() -> type[Speaker]:
    return Speaker


@pytest.fixture
def make_engine(request: pytest.FixtureRequest):
    """Makes engines on a HistoryModel and closes them at the end."""

    def make(
        model: HistoryModel | None = None,
        *,
        words: Sequence[bytes] = (),
        tokenizer: Tokenizer | None = None,
        **settings: object,
    ) -> tuple[Engine, HistoryModel]:
        tokenizer = tokenizer or byte_tokenizer(words=words)
        model = model or HistoryModel(num_tokens=tokenizer.vocab_size)
        loaded = LoadedModel("history", model.config, model, tokenizer, None)
        engine = Engine(loaded, **({"max_seq_len": 512, "page_size": 4, "kv_memory": 2**20} | settings))
        request.addfinalizer(engine.close)
        return engine, model

    return make


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The embedded model as a Hugging Face folder."""
    return resolve_model("smollm2-135m").path


@pytest.fixture
def tiny_llama(smollm2_folder: Path) -> Callable[[Path], Path]:
    """Writes a random Llama of two layers, with SmolLM2's tokenizer, to a folder; PyTorch's seed decides."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )

    def write(folder: Path) -> Path:
        LlamaForCausalLM(config).save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            source = smollm2_folder / name
            if source.exists():
                (folder / name).write_bytes(source.read_bytes())
        return folder

    return write
