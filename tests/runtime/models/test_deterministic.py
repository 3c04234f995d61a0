"""Deterministic models: logits are the same to the bit whatever is computed beside and before a token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from treille.kernels.select import select_kernels
from treille.runtime.engine import Engine
from treille.runtime.errors import InvalidRequest, UnsupportedModel
from treille.runtime.models import linear
from treille.runtime.models.hf_config import config_from_hf
from treille.runtime.models.linear import Linear
from treille.runtime.models.llama import LlamaModel
from treille.runtime.models.load import read_config
from treille.runtime.models.safetensors_source import SafetensorsSource
from treille.runtime.models.weights import load_weights

CPU = torch.device("cpu")
LENGTH = 330  # more than a span of keys
PAGE = 4
FORMS = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "int8": (torch.bfloat16, 8),
    "int4": (torch.float32, 4),
}


@pytest.fixture(params=FORMS)
def model(
    request: pytest.FixtureRequest,
    tiny_hf: Callable[..., dict[str, Any]],
    write_folder: Callable[..., Path],
    make_tensors: Callable[..., dict[str, Tensor]],
) -> LlamaModel:
    data = tiny_hf(tie_word_embeddings=True, max_position_embeddings=512)
    folder = write_folder(data, make_tensors(config_from_hf(data, None)))
    dtype, bits = FORMS[request.param]
    with SafetensorsSource(folder) as source:
        weights = load_weights(
            read_config(folder), source, dtype=dtype, device=CPU, bits=bits, deterministic=True
        )
    return LlamaModel(read_config(folder), weights, select_kernels(CPU))


def tokens(seed: int, count: int) -> list[int]:
    return torch.randint(0, 97, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[int, int, bool, int]]:
    """Steps: how many tokens the sequence is given, how many each of two others, whether those come first,
    and the threads. The chunks add up to LENGTH."""
    left, steps = LENGTH, []
    while left:
        chunk = min(left, draw(st.sampled_from([1, 2, 3, 5, 6, 7, 13, 16, 64, 130, 256, LENGTH])))
        steps.append(
            (
                chunk,
                draw(st.sampled_from([0, 0, 1, 2, 5, 40])),
                draw(st.booleans()),
                draw(st.sampled_from([1, 2])),
            )
        )
        left -= chunk
        if len(steps) == 12 and left:
            steps.append((left, 0, True, 1))
            break
    return steps


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=schedules(), cached=st.sampled_from([0, PAGE, 16 * PAGE, 65 * PAGE]), seed=st.integers(0, 3))
def test_logits_are_the_same_to_the_bit(
    model: LlamaModel, paged_run: Any, schedule: list[tuple[int, int, bool, int]], cached: int, seed: int
) -> None:
    given_ids = tokens(seed, LENGTH)
    alone = paged_run(model, page_size=PAGE, pages_each=100)
    expected = alone.extend({0: given_ids})

    run = paged_run(model, num_sequences=4, page_size=PAGE, pages_each=128)
    run.extend({3: given_ids[:cached] or [1]})
    run.pages[0, : cached // PAGE] = run.pages[3, : cached // PAGE]  # a prefix that another one computed
    run.lengths[0] = cached
    for number, (chunk, beside, first, threads) in enumerate(schedule):
        start = run.lengths[0]
        mine = {0: given_ids[start : start + chunk]}
        others = {seq: tokens(100 + number + seq, beside) for seq in (1, 2) if beside}
        if not mine[0]:
            break
        torch.set_num_threads(threads)
        base = 2 * beside if first else 0
        rows = list(range(base, base + len(mine[0])))
        found = run.extend(others | mine if first else mine | others, rows=rows)
        assert torch.equal(found, expected[start : start + len(mine[0])])


def test_our_own_kernel_is_taken_where_onednn_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(48, 33, generator=torch.Generator().manual_seed(1))
    x = torch.randn(70, 33, generator=torch.Generator().manual_seed(2))
    expected = Linear(weight, deterministic=True)(x)

    def called(self: Linear, x: Tensor) -> Tensor:
        raise AssertionError("oneDNN was asked")

    monkeypatch.setattr(linear, "onednn_is_faster", lambda weight: True)
    monkeypatch.setattr(Linear, "_by_onednn", called)
    assert torch.equal(Linear(weight, deterministic=True)(x), expected)


def test_it_is_refused_where_it_cannot_be_kept(
    tiny_hf: Callable[..., dict[str, Any]],
    write_folder: Callable[..., Path],
    make_tensors: Callable[..., dict[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tiny_hf(tie_word_embeddings=True)
    folder = write_folder(data, make_tensors(config_from_hf(data, None)))
    with SafetensorsSource(folder) as source, pytest.raises(UnsupportedModel, match="on the CPU alone"):
        load_weights(
            read_config(folder),
            source,
            dtype=torch.bfloat16,
            device=torch.device("cuda"),
            deterministic=True,
        )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for wrong in ({"deterministic": True}, {"dtype": "int8"}):
        with pytest.raises(InvalidRequest, match="on the CPU alone"):
            Engine(folder, device="cuda", **wrong)
