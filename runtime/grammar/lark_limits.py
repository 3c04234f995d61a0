"""What a Lark grammar may cost Lark, measured before Lark is asked.

Lark trusts its grammars. An alternative of forty options becomes 2**40 rules, terminals that use each other
twice double their pattern at every step, a string without an end sends its lexer's `re` on an exponential
search. Each of these is cheap to foresee.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lark.grammar import Symbol
from lark.tree import Tree as LarkTree

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.cfg import components

MAX_TEXT = 64 * 1024  # characters
MAX_BLANKS = 500  # in a row: Lark's lexer takes quadratic time
MAX_SYMBOLS = 12_000  # in the alternatives of all rules, written out
MAX_INSTANCES = 1000  # of templates
MAX_NAME = 2000  # characters of a template's name with its arguments
MAX_PATTERN = 20_000  # characters of a terminal, written out
MAX_PATTERNS = 2_000_000  # characters that Lark looks at while it writes them out
MAX_DEFINITIONS = 5000
MAX_REFERENCES = 3_000_000  # steps in which Lark replaces names in terminals
MAX_LALR_RULES = 1_000  # alternatives, once loops and options are written out
MAX_STRETCHES = 30_000_000
_LARGE = 1 << 40

# By name, the parameters (of a template) and the body.
Rules = Mapping[str, tuple[tuple[str, ...], LarkTree[Any]]]

_TOKEN = re.compile(
    r"""(?P<blank>\s+)|//[^\n]*|\#[^\n]*|(?P<quote>["/])|(?P<name>[_A-Za-z]\w*)|(?P<number>[+-]?\d+)|.""",
    re.DOTALL,
)
_STRING_END = re.compile(r'(?:[^"\\\n]|\\[^\n])*+"')
_REGEXP_END = re.compile(r"(?:[^/\\]|\\(?s:.))*+/")


@dataclass(slots=True)
class _Definition:
    """What stands after a name and a colon: names, characters of literals, groups and bars."""

    names: list[str] = field(default_factory=list)
    size: int = 8
    groups: int = 1


def check_text(text: str) -> None:
    """Raises for a text that Lark's lexer would take too long for: too large, or with a literal without end.

    `InvalidConstraint` for what is no grammar, `UnsupportedConstraint` for what is too large.
    """
    if not isinstance(text, str):
        raise InvalidConstraint(f"a grammar is a string, not {text!r}")
    if not text.strip():
        raise InvalidConstraint("the grammar is empty")
    if len(text) > MAX_TEXT:
        raise _exceeded(f"it is {len(text)} characters long, the limit is {MAX_TEXT}")
    _check_terminals(_definitions(text))


def _definitions(text: str) -> dict[str, _Definition]:
    """What is defined, by name: `name:` or `name.priority:` begins a definition, the next one ends it."""
    found: dict[str, _Definition] = {}
    current = _Definition()
    before = ["", "", ""]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise InvalidConstraint(f"cannot read the grammar at {_place(text, at)}")
        at = token.end()
        if token.lastgroup == "blank":
            if at - token.start() > MAX_BLANKS:
                raise _exceeded(f"more than {MAX_BLANKS} blanks in a row at {_place(text, token.start())}")
            continue
        word = token[0]
        if token.lastgroup == "quote":
            at = _literal_end(text, token.start())
        elif word == ":":
            name = before[0] if before[1] == "." else before[2]
            if len(found) >= MAX_DEFINITIONS:
                raise _exceeded(f"it has more than {MAX_DEFINITIONS} definitions")
            if current.names[-1:] == [name]:
                current.names.pop()
            current = found.setdefault(name, _Definition())
        elif word == "%":
            current = _Definition()
        elif token.lastgroup == "name":
            current.names.append(word)
        elif word in "([|":
            current.groups += 1
        current.size += 2 * (at - token.start())
        before = [*before[1:], word]
    return found


def _literal_end(text: str, at: int) -> int:
    """Where the string or regular expression that begins here ends."""
    what, end = ("string", _STRING_END) if text[at] == '"' else ("regular expression", _REGEXP_END)
    rest = end.match(text, at + 1)
    if rest is None:
        raise InvalidConstraint(f"a {what} without an end, at {_place(text, at)}")
    return rest.end()


def _check_terminals(definitions: Mapping[str, _Definition]) -> None:
    """Raises for terminals that use themselves, or are too large, written out."""
    terminals = {name: one for name, one in definitions.items() if name.isupper()}
    edges = {name: [one for one in body.names if one in terminals] for name, body in terminals.items()}
    parts = sum(len(body.names) + body.groups for body in terminals.values())
    if sum(map(bool, edges.values())) * parts > MAX_REFERENCES:
        raise _exceeded("it has too many terminals that use terminals")
    numbers = {name: number for number, name in enumerate(terminals)}
    graph = {numbers[name]: [numbers[one] for one in used] for name, used in edges.items()}
    sizes: dict[str, tuple[int, int]] = {}
    total = 0
    # Components come with those first that the others lead to.
    for members in dict.fromkeys(components(graph).values()):
        name = next(one for one in terminals if numbers[one] in members)
        if len(members) > 1 or name in edges[name]:
            raise InvalidConstraint(
                f"Recursion in terminal {name!r} (recursion is only allowed in rules, not terminals)"
            )
        size = terminals[name].size + sum(sizes[one][0] for one in edges[name])
        work = size * terminals[name].groups + sum(sizes[one][1] for one in edges[name])
        sizes[name] = min(size, _LARGE), min(work, _LARGE)
        total += work
        if size > MAX_PATTERN or total > MAX_PATTERNS:
            raise _exceeded(f"the terminal {name} is too large, written out")


def check_rules(rules: Rules) -> None:
    """Raises `UnsupportedConstraint` for rules that are too large once Lark has written them out."""
    symbols = 0
    for name in _instances(rules):
        symbols += _Alternatives().of_rule(rules[name][1])
        if symbols > MAX_SYMBOLS:
            raise _exceeded(f"its rules have more than {MAX_SYMBOLS} symbols, written out (at {name})")


def check_lalr(rules: Iterable[tuple[int, tuple[int, ...]]]) -> None:
    """Raises `UnsupportedConstraint` for rules that Lark's analysis would take too long for.

    It looks at every stretch of every alternative, again until nothing changes, at most once a rule.
    """
    lengths = [len(symbols) for _, symbols in rules]
    if len(lengths) > MAX_LALR_RULES or len(lengths) * sum(one**3 for one in lengths) > MAX_STRETCHES:
        raise _exceeded("its rules are too many or too long for the LALR parser")


class _Alternatives:
    """How many alternatives, and symbols in them, Lark makes of a rule. All numbers stop at a large one."""

    def __init__(self) -> None:
        self._extra = 0

    def of_rule(self, tree: LarkTree[Any]) -> int:
        """Symbols (and one for each alternative) of the rule and of those that Lark makes for its loops."""
        count, symbols = self._of(tree)
        return min(count + symbols + self._extra, _LARGE)

    def _of(self, tree: Any) -> tuple[int, int]:
        if not isinstance(tree, LarkTree) or tree.data in ("value", "literal", "range", "template_usage"):
            return 1, 1
        if tree.data == "expansions":
            parts = [self._of(child) for child in tree.children]
            return min(sum(one for one, _ in parts), _LARGE), min(sum(one for _, one in parts), _LARGE)
        if tree.data == "alias":
            return self._of(tree.children[0])
        if tree.data == "maybe":
            count, symbols = self._of(tree.children[0])
            return count + 1, symbols
        if tree.data == "expr":
            body, *loop = tree.children
            return self._of_loop(body, *map(str, loop))
        return _product(self._of(child) for child in tree.children)

    def _of_loop(self, body: Any, operator: str, *bounds: str) -> tuple[int, int]:
        count, symbols = self._of(body)
        if operator == "?":
            return count + 1, symbols
        if operator in ("+", "*"):
            self._extra = min(self._extra + 3 * (count + symbols), _LARGE)
            return (1, 1) if operator == "+" else (2, 1)
        low, high = int(bounds[0]), int(bounds[-1])
        if high >= 50:  # Lark writes these as rules of at most five parts each
            _, once = _product([(count, symbols)] * 5)
            self._extra = min(self._extra + 10 * once * high.bit_length(), _LARGE)
            return 1, 2
        turns = [_product([(count, symbols)] * turn) for turn in range(max(low, 0), high + 1)]
        return min(sum(one for one, _ in turns), _LARGE), min(sum(one for _, one in turns), _LARGE)


def _product(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Alternatives and symbols of parts in a row: one alternative for every choice in each."""
    count, symbols = 1, 0
    for more, more_symbols in parts:
        symbols = min(symbols * more + more_symbols * count, _LARGE)
        count = min(count * more, _LARGE)
    return count, symbols


def _instances(rules: Rules) -> Iterator[str]:
    """The name of every rule that is no template, and of a template once for every use with new arguments."""
    known: set[str] = set()
    todo: list[tuple[str, dict[str, str]]] = [(name, {}) for name, (params, _) in rules.items() if not params]
    while todo:
        name, names = todo.pop()
        yield name
        for usage in rules[name][1].find_data("template_usage"):
            called, arguments = _call(usage, names)
            instance = _spelled(called, arguments)
            if instance in known or called not in rules:
                continue
            known.add(instance)
            if len(known) > MAX_INSTANCES or len(instance) > MAX_NAME:
                raise _exceeded(f"the template {called} is used with too many different arguments")
            todo.append((called, dict(zip(rules[called][0], arguments, strict=False))))


def _call(usage: Any, names: Mapping[str, str]) -> tuple[str, list[str]]:
    name = usage.children[0].name
    return names.get(name, name), [_argument(one, names) for one in usage.children[1:]]


def _argument(tree: Any, names: Mapping[str, str]) -> str:
    """What an argument is, where `names` are the arguments of the template that it stands in."""
    if isinstance(tree, LarkTree) and tree.data == "value":
        return _argument(tree.children[0], names)
    if isinstance(tree, Symbol):
        return names.get(tree.name, tree.name)
    if isinstance(tree, LarkTree) and tree.data == "template_usage":
        return _spelled(*_call(tree, names))
    return str(tree)


def _spelled(name: str, arguments: Iterable[str]) -> str:
    return f"{name}{{{','.join(arguments)}}}"


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at)
    return f"line {line + 1} column {at - text.rfind(chr(10), 0, at)}"


def _exceeded(reason: str) -> UnsupportedConstraint:
    return UnsupportedConstraint("grammar", "offset 0", reason)
