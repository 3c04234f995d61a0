"""Chat templates: from messages to one prompt text, in which only the template writes control tokens.

A template is Jinja source that came with a model. It runs in a sandbox, with a bound on what it may
write. What a message says is data: where its text spells a control token, `ControlTexts.defuse` breaks
the spelling with a character that occurs nowhere else, so that after rendering the template's own
control tokens can be told from a user's look-alikes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from treille.runtime.errors import InvalidRequest

MAX_RENDERED = 16 * 1024 * 1024
MAX_SECONDS = 5.0  # of processor time
_ROLE = re.compile(r"[\w.-]{1,64}")
_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    SyntaxError,  # too many loops within each other
)
_TICK = "treille_tick"


class ControlTexts:
    """The spellings of a tokenizer's control tokens: finds them in a text, and breaks them.

    A break character follows the first character of a broken spelling. It also ends a text whose tail
    could be completed to a control token by whatever the template puts after it.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(sorted((text for text in texts if text), key=len, reverse=True))
        self._any = "|".join(map(re.escape, self.texts))
        self._prefixes = frozenset(text[:n] for text in self.texts for n in range(1, len(text)))
        self._longest = len(self.texts[0]) if self.texts else 0

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        # The look-ahead takes one character where a spelling begins, so overlapping ones are all found.
        return re.compile(f"(?={self._any}).", re.DOTALL)

    def defuse(self, text: str, mark: str) -> str:
        """`text` with `mark` (one character, not in `text`) inside each spelling of a control token."""
        if not self.texts:
            return text
        broken = self._starts.sub(lambda found: found.group() + mark, text)
        body = broken.rstrip()
        if any(body[-n:] in self._prefixes for n in range(1, min(self._longest, len(body) + 1))):
            broken = body + mark + broken[len(body) :]
        return broken

    def replace(self, text: str, mark: str, put: Callable[[str], str]) -> str:
        """`text` with each unbroken spelling `c` replaced by `put(c)` (longest first), and no marks left."""
        if self.texts:
            text = re.sub(f"(?:{self._any})(?!{mark})", lambda found: put(found.group()), text)
        return text.replace(mark, "")


def unused_mark(texts: Sequence[str]) -> str:
    """A Unicode noncharacter that occurs in none of the texts; `InvalidRequest` if there is none."""
    for code in range(0xFDD0, 0xFDF0):
        if not any(chr(code) in text for text in texts):
            return chr(code)
    raise InvalidRequest("the messages use every Unicode noncharacter: remove them", field="messages")


def check_messages(messages: Sequence[Mapping[str, str]]) -> None:
    """Raises `InvalidRequest` unless every message has a role and a content, and only texts."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidRequest("messages must be a list of messages", field="messages")
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, Mapping):
            raise InvalidRequest(f"{where} must be an object with role and content", field="messages")
        for key in ("role", "content"):
            if key not in message:
                raise InvalidRequest(f"{where} has no {key}", field="messages")
        for key, value in message.items():
            if not isinstance(value, str):
                raise InvalidRequest(
                    f"{where}.{key} must be a string, not {type(value).__name__}", field="messages"
                )
        if not _ROLE.fullmatch(message["role"]):
            raise InvalidRequest(
                f"{where}.role must be a word such as user or assistant, not {message['role'][:80]!r}",
                field="messages",
            )


class ChatTemplate:
    """One chat template. Immutable; `render` may be called from any thread.

    `variables` are further names that the template sees (`bos_token`, `eos_token`, ...). The source is
    compiled at the first use, so that a faulty template fails chats and nothing else.
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.variables = dict(variables or {})

    @cached_property
    def _template(self) -> jinja2.Template:
        environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        environment.globals.pop("lipsum")
        return environment.from_string(_ticking(environment, self.source))

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The conversation as one text. Raises `InvalidRequest` (field `messages`) if the template does."""
        values: dict[str, object] = {
            **self.variables,
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            _TICK: _Clock().tick,
        }
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(values):
                size += len(part)
                if size > MAX_RENDERED:
                    raise jinja2.TemplateError(f"it wrote more than {MAX_RENDERED} characters")
                parts.append(part)
        except _TEMPLATE_FAULTS as error:
            reason = str(error) or type(error).__name__
            raise InvalidRequest(
                f"the model's chat template cannot render these messages: {reason}", field="messages"
            ) from error
        return "".join(parts)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which also refuses to multiply a text beyond the bound on the output."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: object, right: object
    ) -> object:
        sized, count = (right, left) if isinstance(left, int) else (left, right)
        if operator == "*" and isinstance(sized, (str, list, tuple)) and isinstance(count, int):
            if len(sized) * count > MAX_RENDERED:
                raise jinja2.TemplateError("it repeats a text too often")
        elif operator == "**" and isinstance(right, (int, float)) and abs(right) > 1024:
            raise jinja2.TemplateError("it raises a number to too high a power")
        return super().call_binop(context, operator, left, right)


class _Clock:
    """Ends a rendering that takes too long: the template asks it at each turn of a loop."""

    def __init__(self) -> None:
        self._deadline = time.thread_time() + MAX_SECONDS

    def tick(self) -> bool:
        """True, so that it can stand before a condition."""
        if time.thread_time() > self._deadline:
            raise jinja2.TemplateError(f"it takes longer than {MAX_SECONDS:g} s")
        return True


def _ticking(environment: jinja2.Environment, source: str) -> nodes.Template:
    """The parsed template, with a tick in each turn of a loop and each call of a macro."""

    def tick(line: int) -> nodes.Call:
        return nodes.Call(nodes.Name(_TICK, "load"), [], [], None, None, lineno=line)

    template = environment.parse(source)
    places: list[nodes.For | nodes.Macro] = [*template.find_all(nodes.For), *template.find_all(nodes.Macro)]
    for node in places:
        node.body.insert(0, nodes.ExprStmt(tick(node.lineno), lineno=node.lineno))
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(tick(node.lineno), node.test, lineno=node.lineno)
    template.set_environment(environment)
    return template


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the model wrote, for training: here just a body."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's protocol)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 (the signature that templates call)
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    # Jinja's own filter escapes for HTML, which would put `\u003c` into prompts.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
