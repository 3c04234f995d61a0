"""Faults that were reported for other servers, on this one over real engines: B29, B37, B40, B44, B46."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx
import numpy as np
import openai
import pytest
import tokenizers
from oracles.history_model import EOS, GREEDY, HistoryModel, byte_tokenizer

import treille as tr
from treille.runtime.errors import InvalidRequest
from treille.runtime.tokenizer import Tokenizer
from treille.runtime.types import Request
from treille.server.errors import classify

TEMPLATE = (
    "<bos>{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
BOS = 257


def with_bos(template: str | None = TEMPLATE) -> Tokenizer:
    """Bytes and `<eos>`, and a tokenizer that begins each text with `<bos>` by itself."""
    plain = byte_tokenizer()
    backend = tokenizers.Tokenizer.from_str(plain._parsing.to_str())
    backend.add_special_tokens([tokenizers.AddedToken("<bos>", special=True, normalized=False)])
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", BOS)]
    )
    return Tokenizer(backend, chat_template=template, bos_id=BOS, eos_ids=plain.eos_ids)


class Held(HistoryModel):
    """Takes no step before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()

    def forward(self, inputs, kv):
        assert self.may_go.wait(30)
        return super().forward(inputs, kv)


class TestB29:
    """Several samples of one request."""

    def test_each_choice_has_its_own_text_and_end(self, serve_history) -> None:
        """Three tokens are enough for `red`, and cut `blue` off."""
        _, live = serve_history(tokenizer=byte_tokenizer(TEMPLATE))
        with live.client() as client:
            fields = {
                "model": "history",
                "messages": [{"role": "user", "content": "color?"}],
                "n": 3,
                "max_tokens": 3,
                "seed": 4,
                "extra_body": {"regex": "(red|blue)"},
            }
            usage = {"stream": True, "stream_options": {"include_usage": True}}
            whole = client.chat.completions.create(**fields)
            chunks = list(client.chat.completions.create(**fields, **usage))
            one = client.chat.completions.create(**fields | {"n": 1})
        assert [choice.index for choice in whole.choices] == [0, 1, 2]
        found = [(choice.message.content, choice.finish_reason) for choice in whole.choices]
        assert set(found) == {("red", "stop"), ("blu", "length")}
        texts, ends = ["", "", ""], [[], [], []]
        for choice in (choice for chunk in chunks for choice in chunk.choices):
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] += [choice.finish_reason] if choice.finish_reason else []
        assert [(text, *reasons) for text, reasons in zip(texts, ends, strict=True)] == found
        counted = chunks[-1].usage
        assert (counted.prompt_tokens, counted.completion_tokens) == (whole.usage.prompt_tokens, 9)
        assert whole.usage.prompt_tokens == one.usage.prompt_tokens
        assert whole.usage.completion_tokens == 9


class TestB37:
    """The prompt's log-probabilities, whatever is cached."""

    PROMPT = "".join(chr(97 + number * 7 % 26) for number in range(64))

    def expected(self, model: HistoryModel, ids: Sequence[int]) -> list[float]:
        rows = [model.logits(ids[:place]) for place in range(1, len(ids))]
        return [float(row[i] - np.logaddexp.reduce(row)) for row, i in zip(rows, ids[1:], strict=True)]

    def test_sent_twice(self, serve_history) -> None:
        model = HistoryModel()
        _, live = serve_history(model)
        body = {"prompt": self.PROMPT, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
        with live.http() as client:
            client.post("/v1/completions", json={"prompt": self.PROMPT, "max_tokens": 1})  # now it is cached
            answers = [client.post("/v1/completions", json=body).json() for _ in range(2)]
        ids = [*self.PROMPT.encode()]
        ids += model.greedy(ids, 1)
        for answer in answers:
            (choice,) = answer["choices"]
            assert choice["text"].startswith(self.PROMPT)
            found = choice["logprobs"]
            assert found["tokens"][:64] == [*self.PROMPT]
            assert {len(column) for column in found.values()} == {65}
            assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
            assert found["token_logprobs"][1:] == pytest.approx(self.expected(model, ids), abs=1e-5)
            assert found["text_offset"] == [*range(65)]
            best = int(model.logits(ids[:8]).argmax())
            assert len(found["top_logprobs"][8]) == (1 if best == ids[8] else 2)
            assert answer["usage"]["prompt_tokens"] == 64
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert answers[0]["choices"] == answers[1]["choices"]

    @pytest.mark.parametrize("max_tokens", [0, 3])
    @pytest.mark.parametrize("logprobs", [None, 0, 2])
    def test_streamed_or_not_for_several_prompts(self, serve_history, max_tokens: int, logprobs) -> None:
        model = HistoryModel()
        _, live = serve_history(model)
        prompts = [[*b"abcdef"], [*b"x"], [*b"abcdeg"]]
        fields = {"model": "history", "prompt": prompts, "n": 2, "temperature": 0, "echo": True}
        fields |= {"max_tokens": max_tokens, "logprobs": logprobs, "extra_body": {"ignore_eos": True}}
        with live.client() as client:
            whole = client.completions.create(**fields)
            chunks = list(client.completions.create(**fields, stream=True))
        assert [choice.index for choice in whole.choices] == [*range(6)]
        for choice in whole.choices:
            prompt = prompts[choice.index // 2]
            ids = [*prompt, *model.greedy(prompt, max_tokens, stop_at_eos=False)]
            assert choice.text == byte_tokenizer().decode(ids)
            parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
            assert "".join(part.text for part in parts) == choice.text
            assert [part.finish_reason for part in parts if part.finish_reason] == ["length"]
            if logprobs is None:
                assert choice.logprobs is None and all(part.logprobs is None for part in parts)
                continue
            assert choice.logprobs.token_logprobs[0] is None
            assert choice.logprobs.token_logprobs[1:] == pytest.approx(self.expected(model, ids), abs=1e-5)
            for column in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                streamed = [
                    entry for part in parts if part.logprobs for entry in getattr(part.logprobs, column)
                ]
                assert streamed == getattr(choice.logprobs, column) and len(streamed) == len(ids)

    def test_tokens_without_text_and_their_places(self, serve_history) -> None:
        _, live = serve_history(tokenizer=with_bos())
        fields = {"echo": True, "logprobs": 0, "max_tokens": 0}
        with live.http() as client:
            spelled = client.post("/v1/completions", json={"prompt": "é<eos>b", **fields}).json()["choices"][
                0
            ]
            ids = [BOS, *"é".encode(), EOS, *b"b"]
            given = client.post("/v1/completions", json={"prompt": ids, **fields}).json()["choices"][0]
        assert (spelled["text"], given["text"]) == ("é<eos>b", "éb")
        assert spelled["logprobs"]["text_offset"] == [0, 0, 1, 1, 6]
        assert given["logprobs"]["text_offset"] == [0, 0, 1, 1, 1]
        assert spelled["logprobs"]["token_logprobs"] == given["logprobs"]["token_logprobs"]

    def test_healing_has_no_values_to_give(self, serve_history) -> None:
        _, live = serve_history()
        with live.http() as client:
            body = {"prompt": "ab", "echo": True, "heal": True, "max_tokens": 2}
            assert client.post("/v1/completions", json=body).json()["choices"][0]["text"].startswith("ab")
            refused = client.post("/v1/completions", json={**body, "logprobs": 1})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "echo"


class TestB40:
    """Too many at once, and whose result is whose."""

    def test_three_of_five_are_served(self, serve_history) -> None:
        engine, live = serve_history(model := Held(), max_num_seqs=1, max_queued=2)

        def call(number: int) -> httpx.Response:
            with httpx.Client(base_url=live.url, timeout=60) as client:
                body = {"prompt": f"{number}", "max_tokens": 50, "ignore_eos": True}
                return client.post("/v1/completions", json=body)

        with ThreadPoolExecutor(5) as pool:
            calls = {pool.submit(call, number) for number in range(5)}
            refused = set()
            while len(refused) < 2:  # they are answered while the others still wait
                done, calls = wait(calls, timeout=20, return_when=FIRST_COMPLETED)
                if not done:
                    break
                refused |= done
            model.may_go.set()
        assert len(refused) == 2
        for answer in (one.result() for one in refused):
            assert answer.status_code == 503 and answer.headers["retry-after"]
            assert answer.json()["error"]["code"] == "engine_overloaded"
        for answer in (one.result() for one in calls):
            assert answer.status_code == 200
            assert answer.json()["choices"][0]["finish_reason"] == "length"
        assert engine.stats()["unfinished_requests"] == 0

    def test_a_second_batch_gets_its_own_results(self, serve_history) -> None:
        model = HistoryModel()
        engine, live = serve_history(model, max_num_seqs=1, max_queued=2)
        for number in (1, 2):
            prompts = [tuple(f"{number} {word}".encode()) for word in ("one", "two", "three")]
            expected = [model.greedy(prompt, 12, stop_at_eos=False) for prompt in prompts]
            assert [list(done.token_ids) for done in engine.generate(prompts, GREEDY)] == expected
            with live.client() as client:
                answer = client.completions.create(
                    model="history",
                    prompt=[list(prompt) for prompt in prompts],
                    max_tokens=12,
                    temperature=0,
                    extra_body={"ignore_eos": True},
                )
            texts = [engine.tokenizer.decode(ids) for ids in expected]
            assert [choice.text for choice in answer.choices] == texts

    def test_an_id_that_was_used_is_a_400(self, serve_history) -> None:
        """Over HTTP the server alone names requests; a field for it is refused like any unknown one."""
        engine, live = serve_history()
        mine = Request(prompt_ids=(1,), params=GREEDY, request_id="mine")
        running = engine.submit(mine)
        for _ in range(2):  # while it runs, and after
            with pytest.raises(InvalidRequest, match="used before") as caught:
                engine.submit(mine)
            answer = classify(caught.value)
            assert (answer.status, answer.param) == (400, "request_id")
            list(running)
        with live.client() as client:
            with pytest.raises(openai.BadRequestError, match="request_id"):
                client.completions.create(model="history", prompt="a", extra_body={"request_id": "mine"})
            ids = {client.completions.create(model="history", prompt="a", max_tokens=1).id for _ in range(4)}
        assert len(ids) == 4


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """The prompts that reach any engine."""
    prompts: list[tuple[int, ...]] = []
    submit = tr.Engine._submit

    def record(engine, request, **more):
        prompts.append(request.prompt_ids)
        return submit(engine, request, **more)

    monkeypatch.setattr(tr.Engine, "_submit", record)
    yield prompts


class TestB44:
    """One token begins a text, whichever way it came in."""

    MESSAGES = [  # noqa: RUF012
        {"role": "system", "content": "Be <bos>brief<eos>."},
        {"role": "user", "content": "Hi <bos><eos>[user]"},
    ]

    def ask(self) -> tr.Program:
        @tr.program
        def talk(s: tr.State) -> None:
            s += tr.system(self.MESSAGES[0]["content"]) + tr.user(self.MESSAGES[1]["content"])
            s += tr.assistant(tr.gen("x", max_tokens=1))

        return talk

    def test_a_conversation_has_the_same_ids_everywhere(
        self, serve_history, seen: list[tuple[int, ...]]
    ) -> None:
        tokenizer = with_bos()
        assert tokenizer.adds_bos
        engine, live = serve_history(tokenizer=tokenizer)
        with live.client() as client:
            client.chat.completions.create(model="history", messages=self.MESSAGES, max_tokens=1)
            client.chat.completions.create(model="history", messages=self.MESSAGES, max_tokens=1, n=2)
        self.ask().run(backend=engine)
        offline = tokenizer.encode_chat(self.MESSAGES, add_generation_prompt=True)
        engine.generate([offline], tr.SamplingParams(max_tokens=1))
        (eos,) = tokenizer.eos_ids
        system, user = (message["content"].encode() for message in self.MESSAGES)
        expected = (BOS, *b"[system]", *system, eos, *b"[user]", *user, eos, *b"[assistant]")
        assert seen == [expected] * 4

    def test_texts_and_ids(self, serve_history, seen: list[tuple[int, ...]]) -> None:
        engine, live = serve_history(tokenizer=with_bos())
        prompts: Sequence[str | list[int]] = ["hi", "<bos>hi", [*b"hi"], [BOS, *b"hi"]]
        with live.client() as client:
            for prompt in prompts:
                client.completions.create(model="history", prompt=prompt, max_tokens=1)
        engine.generate(["hi", "<bos>hi", [*b"hi"]], tr.SamplingParams(max_tokens=1))
        whole, bare = (BOS, *b"hi"), (*b"hi",)
        assert seen == [whole, whole, bare, whole, whole, whole, bare]

    def test_no_template(self, serve_history) -> None:
        engine, live = serve_history(tokenizer=with_bos(None))
        with live.client() as client:
            for stream in (False, True):
                with pytest.raises(
                    openai.BadRequestError, match=r"put a chat_template\.jinja into its"
                ) as error:
                    client.chat.completions.create(model="history", messages=self.MESSAGES, stream=stream)
                assert error.value.param == "messages"
            assert client.completions.create(model="history", prompt="hi", max_tokens=1).choices
        with pytest.raises(tr.GenerationFailed, match=r"chat_template\.jinja"):
            self.ask().run(backend=engine)


class TestB46:
    """Constraints against `min_tokens` and `ignore_eos`, and one that the model cannot meet."""

    @pytest.mark.parametrize("fields", [{"min_tokens": 64, "max_tokens": 64}, {"ignore_eos": True}])
    @pytest.mark.parametrize("constraint", [{"regex": "7"}, {"choices": ["7"]}])
    def test_the_constraint_wins(self, serve_history, fields, constraint) -> None:
        _, live = serve_history()
        with live.http() as client:
            answer = client.post("/v1/completions", json={"prompt": "x", **fields, **constraint})
        (choice,) = answer.json()["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("7", "stop")

    @pytest.mark.parametrize("stream", [False, True])
    def test_nothing_left_is_a_400_of_that_request(self, serve_history, stream: bool) -> None:
        model = Held()
        # Two digits, since a text without a choice is given without asking the model.
        model.bias[ord("7")] = model.bias[ord("8")] = float("-inf")
        engine, live = serve_history(model)
        with live.http() as client, ThreadPoolExecutor(2) as pool:
            fields = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
            neighbour = pool.submit(client.post, "/v1/completions", json={"prompt": "abc", **fields})
            body = {"prompt": "x", "regex": "[78]", "stream": stream}
            impossible = pool.submit(client.post, "/v1/completions", json=body)
            while engine.stats()["unfinished_requests"] < 2:
                time.sleep(0.005)
            model.may_go.set()
            answer = impossible.result()
            assert answer.status_code == 400
            assert "leave no token" in answer.json()["error"]["message"]
            text = neighbour.result().json()["choices"][0]["text"]
        ids = model.greedy(b"abc", 40, stop_at_eos=False)
        assert text == byte_tokenizer().decode(ids)
