"""Grammars, texts of them, and what happens to texts."""

from __future__ import annotations

import pkgutil
import random

JSON = r"""
?start: value
?value: object | array | string | SIGNED_NUMBER -> number | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: string ":" value
string: ESCAPED_STRING
%import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
%ignore WS
"""

CALCULATOR = r"""
?start: sum | NAME "=" sum -> assign
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product: atom | product "*" atom -> mul | product "/" atom -> div
?atom: NUMBER | "-" atom -> neg | NAME | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""

STATEMENTS = r"""
start: (statement _NL)*
?statement: assign | expr | "return" expr? -> ret | "del" NAME | "pass" | "import" dotted ["as" NAME]
    | "if" expr ":" statement ["else" ":" statement]
assign: NAME ("=" | AUGMENTED) expr
AUGMENTED: /[+*\/-]=/
?expr: "lambda" [params] ":" expr | or_test ["if" or_test "else" expr]
params: NAME ("," NAME)*
?or_test: and_test ("or" and_test)*
?and_test: not_test ("and" not_test)*
?not_test: "not" not_test | comparison
?comparison: arith (comp_op arith)*
!comp_op: "<" | ">" | "==" | "in" | "not" "in" | "is" "not" | "is"
?arith: term (("+"|"-") term)*
?term: factor (("*"|"/"|"//"|"%") factor)*
?factor: ("-"|"+") factor | power
?power: call ["**" factor]
?call: atom | call "(" [args] ")" | call "[" expr "]" | call "." NAME
args: arg ("," arg)* ","?
arg: NAME "=" expr | expr | "*" expr
?atom: NAME | NUMBER | STRING+ | "None" | "True" | "(" expr ("," expr)* ","? ")" | "[" [expr ("," expr)*] "]"
    | "{" [expr ":" expr ("," expr ":" expr)*] "}"
dotted: NAME ("." NAME)*
NAME: /[^\W\d]\w*/
NUMBER: /0[xX][\da-f]+|\d+(\.\d*)?(e[+-]?\d+)?|\.\d+/i
STRING: /[ubf]?r?("(?!"").*?(?<!\\)(\\\\)*?"|'(?!'').*?(?<!\\)(\\\\)*?')/i
_NL: ( /\r?\n[\t ]*/ | COMMENT )+
COMMENT: /#[^\n]*/
%ignore /[\t \f]+/
%ignore /\\[\t \f]*\r?\n/
%ignore COMMENT
"""


def shipped(name: str) -> str:
    """A grammar that Lark brings along."""
    return (pkgutil.get_data("lark", f"grammars/{name}.lark") or b"").decode()


# By name: the grammar, texts of it, and characters to put into them.
CASES: dict[str, tuple[str, list[str], str]] = {
    "json": (
        JSON,
        ['{"a": [1, -2.5e3, true, null, "x\\"y"], "b": {}}', "[]", ' [ "a" , {"k" : "v\\\\"} ] '],
        '[]{},:"\\ ab1-+.etrufalsn\n',
    ),
    "calculator": (
        CALCULATOR,
        ["x = 1 + 2*(3-y)/4.5", "-a*(b - c)", "12 e3"],
        "xyab12.=+-*/() e_",
    ),
    "statements": (
        STATEMENTS,
        [
            'x = f(1, y=2)[3].z if a and not b else "s"\n',
            "return 'a\\'b' 'c' # hi\nif x in y: del z\n",
            "lambda a, b: a ** -b // 2\npass\nimport a.b as c\n",
            'x += {1: [2, 3], "k": (a,)}\n\n# c\nnot_in = a not in b is not c\n',
        ],
        "xyab12.=+-*/() e_:[]{}\"'\\#\n ,rfinotsl",
    ),
    "lark": (
        shipped("lark"),
        [
            'start: a "b"~1..2 | /x+/i -> c // hm\nA.2: "a".."z"+ [B]\n',
            '%import common.INT -> N\n%ignore " "\na{x,y}: x ("," y)?\n',
            shipped("unicode"),
            shipped("common")[:300],
        ],
        'ab AZ:|"/\\\n()[]{}?*+~.->,%#_1i',
    ),
}


def mutated(text: str, letters: str, choose: random.Random) -> str:
    """The text after up to three small accidents."""
    for _ in range(choose.choice([0, 1, 1, 1, 2, 3])):
        at = choose.randrange(len(text) + 1)
        what = choose.random()
        if what < 0.35:
            text = text[:at] + text[at + 1 :]
        elif what < 0.7:
            text = text[:at] + choose.choice(letters) + text[at:]
        elif what < 0.85:
            text = text[:at] + choose.choice(letters) + text[at + 1 :]
        else:
            other = choose.randrange(len(text) + 1)
            text = text[: min(at, other)] + text[max(at, other) :]
    return text
