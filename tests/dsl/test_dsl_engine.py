"""Programs on the real engine, over a model whose next token depends on the last one alone.

Its log-probabilities are a table, so that every score and every greedy text can be computed by hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pytest
import tokenizers
import torch

import treille as tr
from treille.kernels.api import KVCache
from treille.runtime.models.config import ModelConfig, RopeConfig
from treille.runtime.models.llama import ModelInputs
from treille.runtime.models.load import LoadedModel
from treille.runtime.tokenizer import Tokenizer

EOS = 256
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TABLE = np.random.default_rng(5).standard_normal((EOS + 1, EOS + 1)).astype(np.float32) * 2
LOGPROBS = TABLE - np.log(np.exp(TABLE.astype(np.float64)).sum(axis=1, keepdims=True))


class BigramModel:
    """Rows of `TABLE`, looked up by the last token."""

    def __init__(self) -> None:
        self.config = ModelConfig(
            architecture="LlamaForCausalLM",
            vocab_size=EOS + 1,
            hidden_size=8,
            intermediate_size=8,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=8,
            rms_norm_eps=1e-6,
            rope=RopeConfig(),
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            windows=(None,),
        )
        self.dtype = torch.float32
        self.device = torch.device("cpu")

    def page_bytes(self, page_size: int) -> int:
        return 8 * page_size

    def new_kv(self, num_pages: int, page_size: int) -> KVCache:
        pages = torch.zeros((num_pages, page_size))
        return KVCache((pages,), (pages,), num_pages, page_size, 1, 8)

    def copy_pages(self, kv: KVCache, pairs: object) -> None:
        """There is nothing in the pages."""

    def forward(self, inputs: ModelInputs, kv: KVCache) -> torch.Tensor:
        return torch.from_numpy(TABLE)[inputs.token_ids[inputs.logit_rows]]


def byte_tokenizer() -> Tokenizer:
    """One token a byte, and `<eos>`."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet(), key=ord)
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken("<eos>", special=True)])
    return Tokenizer(backend, chat_template=TEMPLATE, eos_ids=[EOS])


@pytest.fixture(scope="module")
def engine() -> Iterator[tr.Engine]:
    model = BigramModel()
    loaded = LoadedModel("bigram", model.config, model, byte_tokenizer(), None)
    with tr.Engine(loaded, max_seq_len=1024, page_size=4, kv_memory=2**21) as made:
        yield made


def score(engine: tr.Engine, prompt: str, choice: str) -> list[float]:
    """The choice's token log-probabilities by hand."""
    ids = engine.tokenizer.encode(prompt + choice, parse_special=True)
    first = len(ids) - len(engine.tokenizer.encode(choice))
    return [float(LOGPROBS[ids[i - 1], ids[i]]) for i in range(first, len(ids))]


def test_gen_is_the_engines_own_generation(engine: tr.Engine) -> None:
    @tr.program
    def say(s: tr.State) -> None:
        s += "Once" + tr.gen("x", max_tokens=20, logprobs=0) + "|" + tr.gen("y", max_tokens=5)

    state = say.run(backend=engine, temperature=0)
    params = tr.SamplingParams(max_tokens=20, temperature=0)
    assert state["x"] == engine.generate(["Once"], params)[0].text
    second = engine.generate([f"Once{state['x']}|"], tr.SamplingParams(max_tokens=5, temperature=0))[0]
    assert state["y"] == second.text
    assert state.text() == f"Once{state['x']}|{state['y']}"
    meta = state.meta("x")
    assert meta.logprobs is not None  # type: ignore[union-attr]
    assert len(meta.logprobs) == len(meta.token_ids)  # type: ignore[union-attr,arg-type]
    assert state.usage.completion_tokens == sum(len(state.meta(n).token_ids) for n in "xy")  # type: ignore[union-attr]


def test_turns_are_the_template(engine: tr.Engine) -> None:
    @tr.program
    def chat(s: tr.State) -> None:
        s += tr.user("Hi <eos>")
        s += tr.assistant("So " + tr.gen("x", max_tokens=8))

    state = chat.run(backend=engine, temperature=0)
    ids = engine.tokenizer.encode_chat(
        [{"role": "user", "content": "Hi <eos>"}], add_generation_prompt=True, continuation="So "
    )
    assert ids.count(EOS) == 1
    (alone,) = engine.generate([ids], tr.SamplingParams(max_tokens=8, temperature=0))
    assert state["x"] == alone.text


def test_select_scores_every_choice(engine: tr.Engine) -> None:
    choices = ["sun", "sunset", "moon", "st", "stone", "river"]

    @tr.program
    def pick(s: tr.State) -> None:
        for method in ("token_length_normalized", "greedy_token", "unconditional_likelihood_normalized"):
            s += "Which? " + tr.select(method, choices, method=method)  # type: ignore[arg-type]

    state = pick.run(backend=engine)
    prompt = "Which? "
    expected = {choice: score(engine, prompt, choice) for choice in choices}
    found = state.scores("token_length_normalized")
    for choice in choices:
        assert found[choice] == pytest.approx(expected[choice], abs=1e-4)
    best = max(choices, key=lambda choice: sum(expected[choice]) / len(choice))
    assert state["token_length_normalized"] == best
    bare = {choice: score(engine, "<eos>", choice) for choice in choices}
    prompt = state.text().split(str(state["unconditional_likelihood_normalized"]))[0]
    meta = state.meta("unconditional_likelihood_normalized")
    for choice, base in zip(choices, meta.unconditional, strict=True):  # type: ignore[union-attr]
        assert base.logprobs == pytest.approx(bare[choice], abs=1e-4)
    assert all(math.isfinite(value) for values in found.values() for value in values)


def test_b25_b29_constraints_hold(engine: tr.Engine) -> None:
    choices = ["ok", "not\nnow", 'say "hi"', "a|b", "back\\slash", "\0", "é"]

    @tr.program
    def ask(s: tr.State) -> None:
        s += "A: " + tr.gen("choice", choices=choices)
        s += "B: " + tr.gen("colors", n=3, regex="(red|blue)")
        s += "C: " + tr.gen("int", type=int) + tr.gen("bool", type=bool)
        s += "D: " + tr.gen("literal", type=Literal["x", 7]) + tr.gen("float", type=float)
        s += "E: " + tr.gen("ids", regex=r"[A-Z]{2,4}-[0-9]{1,5}", max_tokens=12)
        s += "F: " + tr.select("picked", choices)

    for seed in range(5):
        state = ask.run(backend=engine, seed=seed, temperature=2)
        assert state["choice"] in choices
        assert state["picked"] in choices
        colors = state["colors"]
        assert isinstance(colors, list)
        assert len(colors) == 3
        assert set(colors) <= {"red", "blue"}
        assert type(state["int"]) is int
        assert type(state["bool"]) is bool
        assert state["literal"] in ("x", 7)
        assert type(state["float"]) is float
        assert re.fullmatch(r"[A-Z]{2,4}-[0-9]{1,5}", str(state["ids"]))


def test_a_fork_computes_the_prefix_once(engine: tr.Engine) -> None:
    engine.flush_cache()
    prefix = "A long beginning that all of the branches have in common. " * 4

    @tr.program
    def split(s: tr.State) -> None:
        s += prefix
        with s.fork(5) as branches:
            for index, branch in enumerate(branches):
                branch += f"{index}:" + tr.gen("x", max_tokens=3)

    usage = split.run(backend=engine, temperature=0).usage
    assert usage.num_requests == 6
    assert usage.prompt_tokens == 6 * len(prefix) + 5 * 2
    # Each branch computes its two characters and at most one page of the prefix again.
    assert usage.prompt_tokens - usage.cached_tokens <= len(prefix) + 5 * (2 + 4)


def test_a_batch_computes_the_prefix_once(engine: tr.Engine) -> None:
    engine.flush_cache()
    prefix = "Instructions that stand before each of the questions. " * 4

    @tr.program
    def ask(s: tr.State, question: str) -> None:
        s += tr.system(prefix) + tr.user(question)
        s += tr.assistant(tr.gen("x", max_tokens=3))

    states = ask.batch([{"question": f"{i}?"} for i in range(40)], backend=engine, temperature=0)
    for state in states:
        assert state.usage.cached_tokens >= len("[system]" + prefix) - 4
    again = ask.run(question="7?", backend=engine, temperature=0)
    assert again["x"] == states[7]["x"]  # type: ignore[index]


def test_leaving_a_stream_frees_the_engine(engine: tr.Engine) -> None:
    @tr.program
    def long(s: tr.State) -> None:
        s += "x" + tr.gen("y", max_tokens=900, ignore_eos=True)

    with long.stream(backend=engine) as stream:
        for event in stream:
            if getattr(event, "variable", None) == "y":
                break
    engine.flush_cache()
    stats = engine.stats()
    assert (stats["running"], stats["waiting"]) == (0, 0)


def test_what_the_engine_refuses_has_the_programs_line(engine: tr.Engine) -> None:
    @tr.program
    def wrong(s: tr.State) -> None:
        s += tr.gen("x", regex="ab**")

    with pytest.raises(tr.GenerationFailed, match="gen 'x'") as caught:
        wrong.run(backend=engine)
    assert isinstance(caught.value.__cause__, tr.ConstraintError)
    assert caught.value.line == 's += tr.gen("x", regex="ab**")'
