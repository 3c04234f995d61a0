"""Programs in the shapes of the SGLang paper's workloads (arXiv 2312.07104, section 6 and appendix), made of
random token ids: which calls share which prefixes is what counts here, not what they say.

A program is a generator. It yields the calls that it makes at once, gets the token ids that each was answered
with, and goes on. Lengths are in tokens and stand in each workload's docstring.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass

Ids = list[int]


@dataclass(frozen=True)
class Call:
    """Sample `new` tokens after `prompt`; or, with `choices`, score each of them after it."""

    prompt: Ids
    new: int = 0
    choices: tuple[tuple[int, ...], ...] = ()


Program = Generator[list[Call], list[Ids], None]
Make = Callable[[random.Random, int], list[Program]]


def text(rng: random.Random, low: int, high: int | None = None) -> Ids:
    """Random ids, `low` to `high` of them."""
    return [rng.randrange(100, 49_000) for _ in range(rng.randint(low, high or low))]


def once(*calls: Call) -> Program:
    """A program of one round."""
    yield list(calls)


def mmlu(rng: random.Random, count: int) -> list[Program]:
    """Five examples a subject (300-700), 20 questions each (40-150), one token answers."""
    programs = []
    for _ in range(-(-count // 20)):
        shots = text(rng, 300, 700)
        programs += [once(Call(shots + text(rng, 40, 150), 1)) for _ in range(20)]
    rng.shuffle(programs)
    return programs


def hellaswag(rng: random.Random, count: int) -> list[Program]:
    """Twenty examples (1,600), a beginning (40-80), four ends to choose from (15-40)."""
    shots = text(rng, 1600)
    return [
        once(Call(shots + text(rng, 40, 80), choices=tuple(tuple(text(rng, 15, 40)) for _ in range(4))))
        for _ in range(count)
    ]


def react(rng: random.Random, count: int) -> list[Program]:
    """An agent: template (1,200), question (20-50), three to six rounds of thought (30-60) and observation
    (100-200)."""
    template = text(rng, 1200)

    def agent(rng: random.Random) -> Program:
        prompt = template + text(rng, 20, 50)
        for _ in range(rng.randint(3, 6)):
            (thought,) = yield [Call(prompt, rng.randint(30, 60))]
            prompt = prompt + thought + text(rng, 100, 200)

    return [agent(random.Random(rng.random())) for _ in range(count)]


def generative_agents(rng: random.Random, count: int) -> list[Program]:
    """Agents of a small town: eight kinds of question (100-200), who asks (120-180, 25 of them), what they
    know now (150-300), answers of 20-50. Each agent asks five times, one after another."""
    kinds = [text(rng, 100, 200) for _ in range(8)]
    people = [text(rng, 120, 180) for _ in range(25)]

    def agent(rng: random.Random) -> Program:
        person = rng.choice(people)
        for _ in range(5):
            yield [Call(rng.choice(kinds) + person + text(rng, 150, 300), rng.randint(20, 50))]

    return [agent(random.Random(rng.random())) for _ in range(-(-count // 5))]


def tree_of_thought(rng: random.Random, count: int) -> list[Program]:
    """Template (400), question (50-100); three levels, three thoughts (30-50) after each node, each judged
    (instruction of 30, answer of 4); two go on."""
    template, judge = text(rng, 400), text(rng, 30)

    def tree(rng: random.Random) -> Program:
        nodes = [template + text(rng, 50, 100)]
        for _ in range(3):
            thoughts = yield [Call(node, rng.randint(30, 50)) for node in nodes for _ in range(3)]
            grown = [nodes[place // 3] + thought for place, thought in enumerate(thoughts)]
            yield [Call(node + judge, 4) for node in grown]
            nodes = rng.sample(grown, 2)

    return [tree(random.Random(rng.random())) for _ in range(count)]


def skeleton_of_thought(rng: random.Random, count: int) -> list[Program]:
    """Template (200), question (20-40), skeleton (60-90); then five to eight points at once, each after a
    second template (200), question, skeleton and the point (10), answers of 50-90."""
    first, second = text(rng, 200), text(rng, 200)

    def answer(rng: random.Random) -> Program:
        question = text(rng, 20, 40)
        (skeleton,) = yield [Call(first + question, rng.randint(60, 90))]
        stem = second + question + skeleton
        yield [Call(stem + text(rng, 10), rng.randint(50, 90)) for _ in range(rng.randint(5, 8))]

    return [answer(random.Random(rng.random())) for _ in range(count)]


def judge(rng: random.Random, count: int) -> list[Program]:
    """Branch, solve, merge: instructions (150), an essay (300-600), a fork of four views (30, answers of
    60-100), then all of them together and a verdict (80-120)."""
    system, views = text(rng, 150), [text(rng, 30) for _ in range(4)]

    def verdict(rng: random.Random) -> Program:
        stem = system + text(rng, 300, 600)
        answers = yield [Call(stem + view, rng.randint(60, 100)) for view in views]
        merged = [token for view, answer in zip(views, answers, strict=True) for token in view + answer]
        yield [Call(stem + merged, rng.randint(80, 120))]

    return [verdict(random.Random(rng.random())) for _ in range(count)]


def json_decoding(rng: random.Random, count: int) -> list[Program]:
    """Template with an example (250), a document (200-400), a record of 80-120."""
    template = text(rng, 250)
    return [once(Call(template + text(rng, 200, 400), rng.randint(80, 120))) for _ in range(count)]


def _chat(rng: random.Random, count: int, low: int, high: int) -> list[Program]:
    def chat(rng: random.Random) -> Program:
        prompt: Ids = []
        for _ in range(4):
            prompt = prompt + text(rng, 256, 512)
            (answer,) = yield [Call(prompt, rng.randint(low, high))]
            prompt = prompt + answer

    return [chat(random.Random(rng.random())) for _ in range(count)]


def chat_short(rng: random.Random, count: int) -> list[Program]:
    """Four turns: questions of 256-512, answers of 4-8."""
    return _chat(rng, count, 4, 8)


def chat_long(rng: random.Random, count: int) -> list[Program]:
    """Four turns: questions of 256-512, answers of 256-512."""
    return _chat(rng, count, 256, 512)


def rag(rng: random.Random, count: int) -> list[Program]:
    """A pipeline of two steps: examples (600) and a question (20-40) give a query (10-20); other examples
    (600), three passages (120-180) of fifty, few of them popular, and the question an answer (30-60)."""
    first, second = text(rng, 600), text(rng, 600)
    passages = [text(rng, 120, 180) for _ in range(50)]
    weights = [1 / (rank + 1) for rank in range(50)]

    def pipeline(rng: random.Random) -> Program:
        question = text(rng, 20, 40)
        yield [Call(first + question, rng.randint(10, 20))]
        found = sorted(set(rng.choices(range(50), weights, k=3)))
        yield [Call(sum((passages[n] for n in found), second) + question, rng.randint(30, 60))]

    return [pipeline(random.Random(rng.random())) for _ in range(count)]


@dataclass(frozen=True)
class Workload:
    """`count` programs (of mmlu: questions, of generative agents: calls)."""

    make: Make
    count: int

    def programs(self, seed: int, scale: float = 1.0) -> list[Program]:
        """The programs of a seed; `scale` times as many."""
        return self.make(random.Random(f"{self.make.__name__}-{seed}"), max(1, round(self.count * scale)))


WORKLOADS = {
    "mmlu": Workload(mmlu, 1140),
    "hellaswag": Workload(hellaswag, 200),
    "react": Workload(react, 64),
    "generative agents": Workload(generative_agents, 500),
    "tree of thought": Workload(tree_of_thought, 32),
    "skeleton of thought": Workload(skeleton_of_thought, 64),
    "judge": Workload(judge, 64),
    "json": Workload(json_decoding, 128),
    "chat, short": Workload(chat_short, 64),
    "chat, long": Workload(chat_long, 64),
    "rag": Workload(rag, 128),
}
