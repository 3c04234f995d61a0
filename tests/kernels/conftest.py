"""Random ragged steps, and attention in float64 with explicit loops to hold the backends to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from treille.kernels.api import AttentionSpec, Kernels, KVCache, Ragged
from treille.kernels.cpu import CpuKernels
from treille.kernels.reference import ReferenceKernels
from treille.kernels.select import select_kernels

CPU = torch.device("cpu")
MAX_POSITIONS = 512


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["reference", "cpu"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return ReferenceKernels() if request.param == "reference" else select_kernels(CPU)


@pytest.fixture
def cpu_kernels() -> CpuKernels:
    chosen = select_kernels(CPU)
    assert isinstance(chosen, CpuKernels)
    return chosen


@dataclass
class World:
    """Sequences that grow step by step in one cache, and what each of them has been given so far."""

    kernels: Kernels
    spec: AttentionSpec
    dtype: torch.dtype
    page_size: int
    seed: int = 0
    num_pages: int = 64
    rotary: int | None = None  # width of the table; None: no rotation
    normed: bool = False
    kv: KVCache = field(init=False)
    given: dict[str, Tensor] = field(default_factory=dict)
    tables: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(self.seed)
        self.kv = self.kernels.allocate_kv(
            num_layers=2,
            num_pages=self.num_pages,
            page_size=self.page_size,
            num_kv_heads=self.spec.num_kv_heads,
            head_dim=self.spec.head_dim,
            dtype=self.dtype,
            device=CPU,
        )
        self.free = torch.randperm(self.num_pages, generator=self.random).tolist()
        self.cos_sin = None if self.rotary is None else self.draw(MAX_POSITIONS, self.rotary)
        weights = [1 + 0.2 * self.draw(self.spec.head_dim).to(self.dtype) for _ in range(2)]
        self.q_norm, self.k_norm = weights if self.normed else (None, None)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random)

    def fork(self, old: str, new: str) -> None:
        """`new` begins as `old`, whose pages must be full, and shares them."""
        assert len(self.given[old]) % self.page_size == 0
        self.given[new], self.tables[new] = self.given[old], list(self.tables[old])

    def step(self, counts: dict[str, int], *, poison: bool = False) -> dict[str, Tensor]:
        """Gives each named sequence that many random tokens; returns its new rows of the output."""
        qkv = {}
        for name, count in counts.items():
            rows = self.draw(count, self.spec.qkv_width).to(self.dtype)
            qkv[name] = torch.full_like(rows, torch.nan) if poison else rows
            before = self.given.get(name, rows[:0])
            self.given[name] = torch.cat([before, qkv[name]])
        out = self.run(qkv)
        return dict(zip(counts, out.split(list(counts.values())), strict=True))

    def run(self, qkv: dict[str, Tensor]) -> Tensor:
        ragged = self.ragged({name: len(rows) for name, rows in qkv.items()})
        ragged.check(self.kv, max_positions=MAX_POSITIONS)
        return self.attend(torch.cat(list(qkv.values())), ragged)

    def attend(self, qkv: Tensor, ragged: Ragged) -> Tensor:
        return self.kernels.attention(
            1,
            qkv,
            self.kv,
            ragged,
            self.spec,
            cos_sin=self.cos_sin,
            q_norm=self.q_norm,
            k_norm=self.k_norm,
        )

    def ragged(self, counts: dict[str, int]) -> Ragged:
        """The step in which each sequence's last `count` tokens are new."""
        lens = [len(self.given[name]) for name in counts]
        for name, length in zip(counts, lens, strict=True):
            table = self.tables.setdefault(name, [])
            while len(table) * self.page_size < length:
                table.append(self.free.pop())
        width = max(len(self.tables[name]) for name in counts) + 1
        slots, positions = [], []
        for (name, count), length in zip(counts.items(), lens, strict=True):
            for index in range(length - count, length):
                page = self.tables[name][index // self.page_size]
                slots.append(page * self.page_size + index % self.page_size)
                positions.append(index)
        tables = [self.tables[name] + [0] * (width - len(self.tables[name])) for name in counts]
        starts = [sum(list(counts.values())[:i]) for i in range(len(counts) + 1)]
        return Ragged(
            query_start=torch.tensor(starts, dtype=torch.int32),
            context_lens=torch.tensor(lens, dtype=torch.int32),
            page_table=torch.tensor(tables, dtype=torch.int32),
            slots=torch.tensor(slots),
            positions=torch.tensor(positions),
        )

    def expected(self, name: str) -> Tensor:
        """float64 attention outputs of all tokens that the sequence was given, [T, Hq * D]."""
        spec, count = self.spec, len(self.given[name])
        heads = self.given[name].double().view(count, -1, spec.head_dim)
        query = self._ready(heads[:, : spec.num_heads], self.q_norm)
        key = self._ready(heads[:, spec.num_heads : spec.num_heads + spec.num_kv_heads], self.k_norm)
        value = heads[:, spec.num_heads + spec.num_kv_heads :]
        out = torch.zeros(count, spec.num_heads, spec.head_dim, dtype=torch.float64)
        for i in range(count):
            lowest = 0 if spec.window is None else max(0, i - spec.window + 1)
            for head in range(spec.num_heads):
                other = head // (spec.num_heads // spec.num_kv_heads)
                scores = key[lowest : i + 1, other] @ query[i, head] * spec.scale
                out[i, head] = scores.softmax(0) @ value[lowest : i + 1, other]
        return out.flatten(1)

    def _ready(self, heads: Tensor, weight: Tensor | None) -> Tensor:
        heads = heads.clone()
        for position in range(heads.shape[0]):
            for head in range(heads.shape[1]):
                x = heads[position, head]
                if weight is not None:
                    x = x / (x.square().mean() + self.spec.norm_eps).sqrt() * weight.double()
                if self.cos_sin is not None:
                    half = self.cos_sin.shape[1] // 2
                    cos, sin = self.cos_sin[position].double().split(half)
                    a, b = x[:half], x[half : 2 * half]
                    x = torch.cat([a * cos - b * sin, b * cos + a * sin, x[2 * half :]])
                heads[position, head] = x
        return heads.to(self.dtype).double()


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World
