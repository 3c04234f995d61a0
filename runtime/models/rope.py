"""Rotary position embedding: the frequencies of each scaling type, and the table of cosines and sines.

The formulas follow what transformers computes in float32, so that logits agree to rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from treille.runtime.models.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians a position for each pair of dimensions: float32 `[head_dim / 2]`.

    For `dynamic` these are the frequencies up to the original length; see `rotation_angles` beyond it.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.type == "linear":
        frequencies = frequencies / rope.factor
    elif rope.type == "yarn":
        frequencies = _yarn(rope, head_dim, rope.theta**exponents)
    elif rope.type == "llama3":
        frequencies = _llama3(rope, frequencies)
    if rope.divisors:
        frequencies = frequencies / torch.tensor(rope.divisors, dtype=torch.float32)
    return frequencies


def rotation_angles(rope: RopeConfig, head_dim: int, max_len: int) -> Tensor:
    """The angle of each pair of dimensions at positions 0 .. max_len - 1: float32 `[max_len, head_dim / 2]`.

    `dynamic` (NTK scaling) stretches the base with the sequence's length. A cached key must not depend
    on what is appended to it later, so the rule here is: the token at position p is rotated, as query and
    as key, for a sequence of length p + 1. That is what transformers computes when it extends a sequence
    token by token with its cache (within the original length nothing is stretched at all); it differs
    from one transformers forward over a whole sequence longer than the original length, which rotates
    every position for the final length.
    """
    positions = torch.arange(max_len, dtype=torch.float32)
    angles = torch.outer(positions, inverse_frequencies(rope, head_dim))
    if rope.type == "dynamic" and max_len > rope.original_length:
        late = positions[rope.original_length :]
        # The base grows in double precision, as it does for transformers' Python numbers.
        stretch = rope.factor * (late.double() + 1) / rope.original_length - (rope.factor - 1)
        base = (rope.theta * stretch ** (head_dim / (head_dim - 2))).float()
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        angles[rope.original_length :] = late[:, None] / base[:, None] ** exponents
    return angles


def cos_sin_table(rope: RopeConfig, head_dim: int, max_len: int) -> Tensor:
    """Cosines, then sines, of every position: float32 `[max_len, head_dim]`, cosines in the first half.

    Both are multiplied by the attention factor (YaRN).
    """
    angles = rotation_angles(rope, head_dim, max_len)
    return torch.cat((angles.cos(), angles.sin()), dim=-1) * rope.attention_factor


def _yarn(rope: RopeConfig, head_dim: int, wavelengths: Tensor) -> Tensor:
    """YaRN (https://arxiv.org/abs/2309.00071): fast dimensions stay, slow ones stretch, a ramp between."""
    low = _yarn_dimension(rope, head_dim, rope.beta_fast)
    high = _yarn_dimension(rope, head_dim, rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a step instead of a division by zero
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return (1.0 / (rope.factor * wavelengths)) * ramp + (1.0 / wavelengths) * (1 - ramp)


def _yarn_dimension(rope: RopeConfig, head_dim: int, rotations: float) -> float:
    """The dimension that turns `rotations` times within the original length."""
    turns = rope.original_length / (rotations * 2 * math.pi)
    return head_dim * math.log(turns) / (2 * math.log(rope.theta))


def _llama3(rope: RopeConfig, frequencies: Tensor) -> Tensor:
    """Llama 3.1: wavelengths beyond the original context stretch, short ones stay, a blend between."""
    wavelengths = 2 * math.pi / frequencies
    blend = (rope.original_length / wavelengths - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blend = blend.clamp(0, 1)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies
