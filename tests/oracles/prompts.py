"""Fifty prompts: short and nearly empty, prose, unicode, code, long."""

from __future__ import annotations

SHORT = [
    "",
    "a",
    " ",
    "\n",
    ".",
    "The",
    "Hello",
    "1",
    "\t\t",
    "I am",
    "Why?",
    "éa",
    "你",
    "🙂",
    "Once upon a time",
]
PROSE = [
    "The quick brown fox jumps over the lazy dog and",
    "In 1969, the first people who walked on the Moon",
    "A recipe for bread: flour, water, salt and",
    "Dear Sir or Madam,\n\nI am writing to you because",
    "The three laws of thermodynamics say that",
    "Q: What is the capital of Italy?\nA:",
    "Q: How many legs has a spider?\nA:",
    "She opened the door, looked at the garden, and",
    "List of planets:\n1. Mercury\n2. Venus\n3.",
    "The opposite of hot is",
]
UNICODE = [
    "El perro corre por la calle y",
    "Der Hund läuft über die Straße, und",
    "Je m'appelle Zoé et j'habite à",
    "日本の首都は東京です。",
    "Привет, как твои дела?",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "Ελλάδα είναι",
    "🙂🙃🙂🙃🙂",
    "e\u0301 \u200b zero width",
]
CODE = [
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "import numpy as np\n\nx = np.array([",
    "SELECT name, age FROM users WHERE",
    "<html>\n  <body>\n    <h1>",
    '{"name": "Ada", "age": 36, "tags": ["',
    "for (int i = 0; i < n; i++) {\n",
    "#include <stdio.h>\n\nint main(void) {\n\t",
    "fn main() {\n    println!(",
    "$ ls -la\ntotal 42\ndrwxr-xr-x",
    "x = 123456789 + 987654321\nprint(x)\n",
]
LONG = [
    "word " * 300,
    "The cat sat on the mat. " * 40 + "Then",
    "".join(f"{i}, " for i in range(250)),
    "abc " * 50 + "\n\n" + "xyz " * 50,
    "\n".join(f"line {i}: value={i * i}" for i in range(60)),
]
PROMPTS = SHORT + PROSE + UNICODE + CODE + LONG
