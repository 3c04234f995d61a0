"""Pure functions on prompts."""

from __future__ import annotations

from treille.dsl.protocol import Message, Prompt, Text


def extend(prompt: Prompt, text: str) -> Prompt:
    """The prompt with more text at its end: in the open turn, or outside roles."""
    if not text:
        return prompt
    head, last = prompt.parts[:-1], prompt.parts[-1] if prompt.parts else None
    if isinstance(last, Text):
        return Prompt((*head, Text(last.text + text)))
    if isinstance(last, Message) and last.open:
        return Prompt((*head, Message(last.role, last.content + text, open=True)))
    return Prompt((*prompt.parts, Text(text)))


def common_text(first: str, second: str) -> str:
    """The longest text that both begin with."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return first[:low]


def common_prefix(first: Prompt, second: Prompt) -> Prompt:
    """The longest prompt that both start with; it ends in an open turn where they part within one."""
    shared: list[Text | Message] = []
    for ours, theirs in zip(first.parts, second.parts, strict=False):
        if ours == theirs:
            shared.append(ours)
            continue
        if isinstance(ours, Text) and isinstance(theirs, Text):
            text = common_text(ours.text, theirs.text)
            shared.extend([Text(text)] if text else [])
        elif isinstance(ours, Message) and isinstance(theirs, Message) and ours.role == theirs.role:
            shared.append(Message(ours.role, common_text(ours.content, theirs.content), open=True))
        break
    return Prompt(tuple(shared))
