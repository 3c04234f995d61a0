"""The sampler against a slow float64 twin, its rows against each other, and reported faults B43, B46, B48."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime import sampling
from treille.runtime.dense_rows import BLOCK, DeviceRows
from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.params import SamplingParams
from treille.runtime.sampling import Sampled, SampleRow, sample

V = 12
EOS = V - 1


@pytest.fixture(params=["host", "device"], autouse=True)
def dense(request, monkeypatch):
    """Every test runs with both ways to do the dense work; torch's also works on the host."""
    if request.param == "device":
        monkeypatch.setattr(sampling, "dense_rows", DeviceRows)


def row(params=None, *, prompt=(), output=(), seed=0, allowed=None, banned=(), size=V, **fields):
    mask = None
    if allowed is not None:
        mask = np.zeros(-(-size // 32), dtype=np.uint32)
        for token_id in allowed:
            mask[token_id // 32] |= np.uint32(1 << (token_id % 32))
    return SampleRow(params or SamplingParams(**fields), prompt, output, seed, mask, banned)


def tokens(logits, rows):
    found = sample(logits.clone(), rows)
    assert all(isinstance(one, Sampled) for one in found), found
    return [one.token_id for one in found]


# The twin: each processor as its definition reads, one row, one token at a time, in float64.


def twin(logits, wanted: SampleRow) -> np.ndarray:
    params = wanted.params
    z = [float(value) for value in logits]
    for t in set(wanted.prompt_ids) | set(wanted.output_ids):
        z[t] = z[t] / params.repetition_penalty if z[t] > 0 else z[t] * params.repetition_penalty
    for t in set(wanted.output_ids):
        z[t] -= params.presence_penalty + params.frequency_penalty * list(wanted.output_ids).count(t)
    for t, bias in params.logit_bias.items():
        z[t] += bias
    legal = set(range(len(z)))
    if wanted.mask is not None:
        legal = {t for t in legal if t // 32 < len(wanted.mask) and int(wanted.mask[t // 32]) >> (t % 32) & 1}
    legal = legal - set(wanted.banned) or legal
    z = [value if t in legal else -math.inf for t, value in enumerate(z)]
    best = max(z)
    ranked = sorted(range(len(z)), key=lambda t: (-z[t], t))
    if params.temperature == 0:
        ranked = ranked[:1]
        weights = {ranked[0]: 1.0}
    else:
        weights = {t: math.exp((z[t] - best) / params.temperature) for t in ranked}
    if params.top_k:
        ranked = ranked[: params.top_k]
    total = math.fsum(weights[t] for t in ranked)
    kept, mass = [], 0.0
    for t in ranked:
        if kept and mass >= params.top_p * total:
            break
        kept.append(t)
        mass += weights[t]
    kept = [t for t in kept if weights[t] >= params.min_p * weights[ranked[0]]]
    probabilities = np.zeros(len(z))
    for t in kept:
        probabilities[t] = weights[t]
    return probabilities / probabilities.sum()


CASES = {
    "plain": {},
    "cold": {"temperature": 0.4},
    "hot": {"temperature": 3.0},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.7},
    "top_k then top_p": {"top_k": 6, "top_p": 0.8, "temperature": 1.5},
    "min_p": {"min_p": 0.1},
    "all three": {"top_k": 8, "top_p": 0.95, "min_p": 0.05, "temperature": 2.0},
    "repetition": {"repetition_penalty": 1.7},
    "encouraged repetition": {"repetition_penalty": 0.6},
    "presence": {"presence_penalty": 1.1},
    "frequency": {"frequency_penalty": 0.6, "top_p": 0.9},
    "all penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": -0.4},
    "bias": {"logit_bias": {3: 2.0, 5: -100.0, 0: 0.5}},
    "bias and top_k": {"logit_bias": {3: 3.0}, "top_k": 3},
    "masked": {"allowed": [0, 3, 4, 9, EOS]},
    "masked, all three": {"allowed": [0, 1, 3, 4, 9], "top_k": 4, "top_p": 0.9, "min_p": 0.01},
    "banned": {"banned": (EOS, 2)},
    "masked and banned": {"allowed": [0, 3, EOS], "banned": (EOS,)},
}


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_twins_distribution(name):
    case = CASES[name]
    logits = torch.tensor(np.random.default_rng(5).normal(0, 1.5, V), dtype=torch.float32)
    count = 2000
    rows = [row(prompt=(1, 2, 2, 7), output=(4, 4, 9, 0), seed=n, **case) for n in range(count)]
    drawn = np.bincount(tokens(logits.expand(count, V), rows), minlength=V)
    expected = twin(logits, rows[0]) * count
    assert not drawn[expected == 0].any()
    usual = expected > 5
    rest = np.array([drawn[~usual].sum()]), np.array([expected[~usual].sum()])
    seen, wanted = np.append(drawn[usual], rest[0]), np.append(expected[usual], rest[1])
    chi2 = float((((seen - wanted) ** 2)[wanted > 0] / wanted[wanted > 0]).sum())
    freedom = max(1, int((wanted > 0).sum()) - 1)
    # Wilson and Hilferty's cube root: four standard deviations are one chance in 30 000.
    assert (chi2 / freedom) ** (1 / 3) < 1 - 2 / (9 * freedom) + 4 * math.sqrt(2 / (9 * freedom))


def uniform(seed, position):
    key = np.array([seed % 2**64, position], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random()


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([2, 33, BLOCK, BLOCK + 1, 3000]),
    temperature=st.sampled_from([0.01, 0.5, 1.0, 7.0]),
    top_k=st.sampled_from([0, 2, 5, 60, 2500]),
    top_p=st.sampled_from([0.001, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    masked=st.booleans(),
    ties=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_each_draw_inverts_the_twins_distribution(size, temperature, top_k, top_p, min_p, masked, ties, seed):
    random = np.random.default_rng(seed)
    values = random.normal(0, 4, size)
    logits = torch.tensor(np.round(values) if ties else values, dtype=torch.float32)[None]
    allowed = random.permutation(size)[: max(1, size // 3)] if masked else None
    wanted = row(
        SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p),
        output=(0,) * 3,
        seed=seed,
        allowed=allowed,
        size=size,
    )
    (found,) = tokens(logits, [wanted])
    ends = np.cumsum(twin(logits[0], wanted))
    u = uniform(seed, 3)
    # The twin's sums are rounded otherwise: a draw on the very edge may fall on either side.
    assert ends[found] >= u - 1e-9
    assert (ends[found - 1] if found else 0.0) <= u + 1e-9
    assert twin(logits[0], wanted)[found] > 0


MIXED = [
    row(temperature=0),
    row(seed=1),
    row(repetition_penalty=2.0, temperature=0, prompt=(3, 3), output=(1,)),
    row(top_k=3, seed=9),
    row(top_p=0.5, seed=4, output=(1, 2)),
    row(min_p=0.2, seed=3, allowed=[0, 3, 6]),
    row(presence_penalty=2.0, prompt=(5, 5), seed=8),
    row(temperature=0, logprobs=2, logit_bias={4: 100.0}),
    row(banned=(EOS,), seed=2, logprobs=0),
]


def test_a_rows_result_does_not_depend_on_its_batch():
    logits = torch.tensor(np.random.default_rng(0).normal(0, 2, (len(MIXED), V)), dtype=torch.float32)
    alone = [sample(logits[i : i + 1].clone(), [one])[0] for i, one in enumerate(MIXED)]
    assert sample(logits.clone(), MIXED) == alone
    order = np.random.default_rng(1).permutation(len(MIXED))
    shuffled = sample(logits[list(order)], [MIXED[i] for i in order])
    assert shuffled == [alone[i] for i in order]


def test_seed_and_position_decide_the_draw():
    logits = torch.zeros(1, 1000)
    first = [tokens(logits, [row(seed=5, output=(0,) * n, size=1000)])[0] for n in range(20)]
    assert first == [tokens(logits, [row(seed=5, output=(9,) * n, size=1000)])[0] for n in range(20)]
    assert len(set(first)) > 15
    other = [tokens(logits, [row(seed=6, output=(0,) * n, size=1000)])[0] for n in range(20)]
    assert first != other
    assert tokens(logits, [row(seed=-1, size=1000)]) == tokens(logits, [row(seed=2**64 - 1, size=1000)])


# Greedy rows.


def test_the_lowest_id_wins_a_tie():
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0]])
    assert tokens(logits, [row(temperature=0, size=4)]) == [1]
    assert tokens(logits, [row(temperature=0, size=4, banned=(1,))]) == [2]


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0, "top_p": 0.0},
        {"temperature": 0, "top_k": 0},
        {"temperature": 0, "top_k": 1, "min_p": 1.0},
        {"temperature": 1.0, "top_p": 0.0},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1e-300},
        {"temperature": 100.0, "min_p": 1.0},
        {"temperature": 1.0, "top_p": 1e-300},
    ],
)
def test_limits_that_leave_the_likeliest_token(fields):
    logits = torch.tensor(np.random.default_rng(3).normal(0, 2, (1, V)), dtype=torch.float32)
    for seed in range(20):
        assert tokens(logits, [row(seed=seed, **fields)]) == [int(logits.argmax())]


def test_exactly_top_k_tokens_survive_a_tie():
    rows = [row(top_k=3, seed=seed) for seed in range(300)]
    assert set(tokens(torch.zeros(300, V), rows)) == {0, 1, 2}
    rows = [row(top_p=0.5, seed=seed) for seed in range(300)]
    assert set(tokens(torch.zeros(300, V), rows)) == {0, 1, 2, 3, 4, 5}


# B46: min_tokens, ignore_eos and the grammar.


def test_the_grammar_wins_over_a_ban_of_its_last_token():
    logits = torch.zeros(2, V)
    rows = [
        row(allowed=[EOS], banned=(EOS,), min_tokens=64),
        row(allowed=[EOS], banned=(EOS,), ignore_eos=True),
    ]
    assert tokens(logits, rows) == [EOS, EOS]


def test_a_ban_holds_where_the_grammar_has_another_way():
    rows = [row(allowed=[EOS, 3], banned=(EOS, 5, V + 7), seed=seed) for seed in range(50)]
    logits = torch.zeros(50, V)
    logits[:, EOS] = 90.0
    assert set(tokens(logits, rows)) == {3}


def test_an_empty_mask_is_that_rows_error():
    logits = torch.randn(3, V, generator=torch.Generator().manual_seed(0))
    rows = [row(temperature=0), row(temperature=0, allowed=[]), row(seed=3)]
    found = sample(logits.clone(), rows)
    assert isinstance(found[1], InvalidRequest)
    assert found[0] == sample(logits[:1].clone(), rows[:1])[0]
    assert found[2] == sample(logits[2:].clone(), rows[2:])[0]


def test_banning_every_token_bans_none():
    assert tokens(torch.tensor([[0.0, 5.0]]), [row(temperature=0, banned=(0, 1), size=2)]) == [1]


@pytest.mark.parametrize("fields", [{"temperature": 0}, {}, {"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.5}])
def test_no_token_of_probability_0_is_drawn(fields):
    logits = torch.full((1, V), -math.inf)
    logits[0, 7] = -50.0
    for seed in range(20):
        assert tokens(logits, [row(seed=seed, **fields)]) == [7]
    (error,) = sample(logits.clone(), [row(allowed=[1, 2], **fields)])
    assert isinstance(error, InvalidRequest)


# B48: penalties, biases, masks.


@pytest.mark.parametrize("swapped", [False, True])
def test_penalties_are_each_rows_own(swapped):
    logits = torch.tensor([[2.0, 1.5, 0.0]]).expand(2, 3)
    rows = [
        row(temperature=0, prompt=(0,), repetition_penalty=2.0, size=3),
        row(temperature=0, prompt=(0,), size=3),
    ]
    expected = [1, 0]
    if swapped:
        rows.reverse()
        expected.reverse()
    assert tokens(logits, rows) == expected


def test_presence_looks_at_the_output_only():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    tea = {"temperature": 0, "size": 3, "presence_penalty": 2.0}
    assert tokens(logits, [row(prompt=(0, 0), **tea)]) == [0]
    assert tokens(logits, [row(prompt=(0, 0), output=(0,), **tea)]) == [1]


def test_repetition_looks_at_prompt_and_output():
    logits = torch.tensor([[2.0, 1.9, 1.8]])
    assert tokens(logits, [row(temperature=0, prompt=(0,), output=(1,), repetition_penalty=2.0, size=3)]) == [
        2
    ]


def test_masks_hold_over_biases():
    logits = torch.zeros(2, V)
    digits = [3, 4, 5]
    rows = [
        row(temperature=0, allowed=digits, logit_bias={0: 100.0}),
        row(temperature=0, allowed=[7], logit_bias={7: -100.0}),
    ]
    first, second = tokens(logits, rows)
    assert first in digits
    assert second == 7


def test_penalties_leave_minus_infinity_alone():
    logits = torch.zeros(1, V)
    logits[0, :6] = -math.inf
    everything = {
        "repetition_penalty": 0.5,
        "presence_penalty": -2.0,
        "frequency_penalty": -2.0,
        "logit_bias": dict.fromkeys(range(6), 100.0),
    }
    for seed in range(50):
        (found,) = tokens(logits, [row(prompt=range(V), output=range(V), seed=seed, **everything)])
        assert found >= 6


def test_tokens_beyond_the_masks_end_are_forbidden():
    wanted = row(temperature=0, allowed=range(32), size=32)
    logits = torch.arange(40, dtype=torch.float32)[None]
    assert tokens(logits, [wanted]) == [31]


def test_mask_bits_beyond_the_vocabulary_are_ignored():
    wanted = row(allowed=[31], size=32)
    (error,) = sample(torch.zeros(1, 20), [wanted])
    assert isinstance(error, InvalidRequest)


def test_prompt_ids_beyond_the_vocabulary_are_ignored():
    assert tokens(
        torch.tensor([[1.0, 0.0]]), [row(temperature=0, prompt=(0, 99), repetition_penalty=2.0)]
    ) == [0]


def test_a_bias_on_a_token_that_does_not_exist():
    found = sample(torch.zeros(2, V), [row(logit_bias={V: 1.0}), row(temperature=0)])
    assert isinstance(found[0], InvalidRequest)
    assert found[0].field == "logit_bias"
    assert found[1] == Sampled(0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("fields", [{"temperature": 0}, {}, {"top_p": 0.5, "logprobs": 3}, {"allowed": [0]}])
def test_broken_logits_are_that_rows_error(bad, fields):
    logits = torch.zeros(3, V)
    logits[1, 5] = bad
    found = sample(logits, [row(temperature=0), row(**fields), row(temperature=0, logprobs=1)])
    assert isinstance(found[1], ModelError)
    assert isinstance(found[0], Sampled)
    assert isinstance(found[2], Sampled)


# Log-probabilities.


def test_logprobs_are_the_models_own():
    logits = torch.tensor(np.random.default_rng(2).normal(0, 3, (1, 500)), dtype=torch.float32)
    expected = torch.log_softmax(logits.double(), dim=-1)[0]
    wanted = row(
        temperature=0.3, logprobs=5, repetition_penalty=5.0, prompt=range(500), allowed=[17], size=500
    )
    (found,) = sample(logits.clone(), [wanted])
    assert isinstance(found, Sampled)
    assert found.token_id == 17
    assert found.logprob is not None
    assert found.logprob.token_id == 17
    assert found.logprob.logprob == pytest.approx(float(expected[17]))
    best = sorted(range(500), key=lambda t: -float(expected[t]))[:5]
    assert [t for t, _ in found.logprob.top] == best
    assert [value for _, value in found.logprob.top] == pytest.approx([float(expected[t]) for t in best])


def test_logprobs_are_finite_and_ties_go_by_id():
    logits = torch.full((2, V), -math.inf)
    logits[0, 3] = 1.0
    logits[1] = 0.0
    first, second = sample(logits, [row(logprobs=20, temperature=0), row(logprobs=3, temperature=0)])
    assert isinstance(first, Sampled)
    assert isinstance(second, Sampled)
    assert first.logprob is not None
    assert first.logprob.logprob == 0.0
    assert first.logprob.top == ((3, 0.0),)
    assert second.logprob is not None
    assert [t for t, _ in second.logprob.top] == [0, 1, 2]


def test_far_apart_logits_still_have_an_order():
    logits = torch.tensor([[5000.0, -6000.0, 10.0, 20.0]])
    (found,) = sample(logits, [row(logprobs=4, temperature=0, size=4)])
    assert isinstance(found, Sampled)
    assert found.logprob is not None
    assert found.logprob.top == ((0, 0.0), (3, -4980.0), (2, -4990.0), (1, -9999.0))


def test_logprobs_only_where_asked():
    found = sample(torch.zeros(2, V), [row(temperature=0), row(temperature=0, logprobs=0)])
    assert isinstance(found[0], Sampled)
    assert found[0].logprob is None
    assert isinstance(found[1], Sampled)
    assert found[1].logprob is not None
    assert found[1].logprob.top == ()


# The contract's edges.


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="logits"):
        sample(torch.zeros(2, V), [row()])
    with pytest.raises(ValueError, match="logits"):
        sample(torch.zeros(1, V, dtype=torch.float64), [row()])
    assert sample(torch.zeros(0, V), []) == []


def test_a_view_of_padded_logits_can_be_sampled():
    padded = torch.zeros(2, V + 4)
    padded[:, V:] = 50.0
    rows = [row(temperature=0, banned=(0,)), row(temperature=0, allowed=[3], logprobs=1)]
    assert [one.token_id for one in sample(padded[:, :V], rows) if isinstance(one, Sampled)] == [1, 3]
