"""Shared by the model tests: a paged run of a model, and tiny random checkpoints made by transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from treille.kernels.api import Ragged
from treille.kernels.reference import ReferenceKernels
from treille.runtime.models.config import ModelConfig
from treille.runtime.models.llama import LlamaModel, ModelInputs
from treille.runtime.models.load import read_config
from treille.runtime.models.safetensors_source import SafetensorsSource
from treille.runtime.models.weights import expected_shapes, load_weights

VOCAB = 97
CPU = torch.device("cpu")


@dataclass
class PagedRun:
    """Several sequences over one cache, their pages scattered; `extend` is one forward pass."""

    model: LlamaModel
    num_sequences: int = 1
    page_size: int = 4
    pages_each: int = 16
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        total = self.num_sequences * self.pages_each
        self.kv = self.model.new_kv(total, self.page_size)
        shuffled = torch.randperm(total, generator=torch.Generator().manual_seed(5))
        self.pages = shuffled.view(self.num_sequences, self.pages_each).int()
        self.lengths = [0] * self.num_sequences

    def extend(self, new: dict[int, Sequence[int]], rows: Sequence[int] | None = None) -> Tensor:
        """Extend sequences by tokens; logits of all new tokens, or of the flat `rows`."""
        positions, slots, starts = [], [], [0]
        for seq, tokens in new.items():
            at = torch.arange(self.lengths[seq], self.lengths[seq] + len(tokens))
            positions.append(at)
            slots.append(self.pages[seq, at // self.page_size] * self.page_size + at % self.page_size)
            starts.append(starts[-1] + len(tokens))
            self.lengths[seq] += len(tokens)
        ragged = Ragged(
            query_start=torch.tensor(starts, dtype=torch.int32),
            context_lens=torch.tensor([self.lengths[seq] for seq in new], dtype=torch.int32),
            page_table=self.pages[list(new)].contiguous(),
            slots=torch.cat(slots).long(),
            positions=torch.cat(positions).long(),
        )
        ragged.check(self.kv, max_positions=self.model.max_seq_len)
        wanted = list(range(starts[-1])) if rows is None else list(rows)
        ids = torch.tensor([token for tokens in new.values() for token in tokens])
        inputs = ModelInputs(ids, ragged, torch.tensor(wanted, dtype=torch.int64))
        return self.model.forward(inputs, self.kv)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads, and lose much where tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def paged_run() -> type[PagedRun]:
    return PagedRun


@pytest.fixture
def load_folder() -> Callable[..., LlamaModel]:
    """A folder's model without its tokenizer."""

    def load(folder: Path, dtype: torch.dtype = torch.float32, max_seq_len: int | None = None) -> LlamaModel:
        config = read_config(folder)
        with SafetensorsSource(folder) as source:
            weights = load_weights(config, source, dtype=dtype, device=CPU)
        return LlamaModel(config, weights, ReferenceKernels(), max_seq_len=max_seq_len)

    return load


@pytest.fixture
def tiny_hf() -> Callable[..., dict[str, Any]]:
    """A small config.json of the Llama family; keyword arguments replace or add keys."""

    def make(**changes: Any) -> dict[str, Any]:
        data: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        }
        return data | changes

    return make


@pytest.fixture
def write_folder(tmp_path: Path) -> Callable[[dict[str, Any], dict[str, Tensor] | None], Path]:
    """A model folder of a config and, if given, tensors."""

    def write(config: dict[str, Any], tensors: dict[str, Tensor] | None = None) -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        if tensors is not None:
            save_file(tensors, folder / "model.safetensors")
        return folder

    return write


def random_tensors(config: ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    """Every tensor of a config, random."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.2 + (1.0 if "norm" in name else 0.0)
        for name, shape in expected_shapes(config).items()
    }


@pytest.fixture
def make_tensors() -> Callable[..., dict[str, Tensor]]:
    return random_tensors
