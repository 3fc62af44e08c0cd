"""What a written answer of mathematics is: a grammar from LaTeX or plain characters to a tree, or a refusal.

The whole answer is read or none of it: what is left over, an unknown command, a word, two numbers side by side are refused, since
an answer read in part is another answer. Nothing is evaluated here, and no text of a model ever reaches a parser that evaluates.

A tree is a tuple of its kind and its parts, all of them trees or strings, so that it goes through JSON:

    ("num", "1/2", "exact" or "decimal")  ("var", name)  ("const", "pi", "e", "i" or "oo")
    ("add", ...)  ("neg", a)  ("pm", a, b)  ("mul", ...)  ("div", a, b)  ("pow", a, b)  ("root", n, a)  ("call", name, ...)
    ("percent", a)  ("degree", a)  ("base", digits, base)  ("text", words)
    ("list", ...)  ("set", ...)  ("seq", open, close, ...)  ("union", a, b)  ("cap", a, b)  ("minus", a, b)
    ("matrix", row, ...)  ("row", ...)  ("ratio", ...)  ("relation", a, sign, b, ...)
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from earnest.rewards.latex import FUNCTIONS, GREEK, refuse, tokens

Tree = tuple[Any, ...]

MAX_CHARACTERS = 1_000
MAX_DEPTH = 30  # of brackets, of powers on powers
MAX_TREE = 80  # of terms in terms, such as a quotient by a quotient by a quotient
MAX_EXPONENT = 308

SCALARS = frozenset({"num", "var", "const", "add", "neg", "pm", "mul", "div", "pow", "root", "call", "percent", "degree"})
RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=",
    "ne": "!=", "neq": "!=", "in": "in", "lt": "<", "gt": ">",
}  # fmt: skip
SETS = {"cup": "union", "cap": "cap", "setminus": "minus", "backslash": "minus"}
TIMES = frozenset({"*", "cdot", "times"})
OVER = frozenset({"/", "div"})


def read_expression(text: str, decimal: str = ".") -> Tree:
    """The tree of an answer, all of it.

    Args:
        text: Without the delimiters of mathematics around it.
        decimal: The decimal sign; a decimal comma must stand between digits, and elements are then separated by other commas or
            semicolons.

    Raises:
        UnreadableError: It is none of this grammar.
    """
    if len(text) > MAX_CHARACTERS:
        refuse("too long")
    tree = _Reader(tokens(text, decimal)).answer()
    level = [tree]
    for _ in range(MAX_TREE):
        level = [part for node in level for part in node[1:] if isinstance(part, tuple)]
        if not level:
            return tree
    return refuse("too deep")


def scalar(tree: Tree) -> Tree:
    """The tree, if it stands for one number or term."""
    return tree if tree[0] in SCALARS else refuse("a set or a pair inside of a term")


def num(value: str | Fraction, how: str = "") -> Tree:
    """A number as a tree."""
    return ("num", str(Fraction(value)), how or ("decimal" if "." in str(value) else "exact"))


class _Reader:
    """A recursive descent over the tokens; each method reads one level of the grammar."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = [*tokens, ("end", "")]
        self.at = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def name(self) -> str:
        """The command or sign that comes next."""
        kind, found = self.peek()
        return found if kind in ("cmd", "sym") else ""

    def take(self, *names: str) -> str:
        """Read one of these commands or signs, if it comes next."""
        found = self.name()
        if found and found in names:
            self.at += 1
            return found
        return ""

    def need(self, name: str) -> None:
        if not self.take(name):
            refuse(f"no {name} where one must be")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            refuse("too deep")

    def answer(self) -> Tree:
        items = self.items()
        if self.peek()[0] != "end":
            refuse("something is left over")
        first = items[0]
        if len(items) == 1:
            return first
        if first[0] == "relation" and len(first) == 4 and all(item[0] != "relation" for item in items[1:]):
            return (*first[:3], ("list", first[3], *items[1:]))  # n = 2, 3, 4
        return ("list", *items)

    def items(self) -> list[Tree]:
        """Elements with commas or semicolons between them; a comma before "and" is one with it."""
        items = [self.relation()]
        while separator := self.take(",", ";", "and"):
            if separator == ",":
                self.take("and")
            items.append(self.relation())
        return items

    def relation(self) -> Tree:
        parts: list[Any] = [self.union()]
        while self.name() in RELATIONS:
            sign = RELATIONS[self.name()]
            self.at += 1
            if sign in "<>" and self.take("="):
                sign += "="
            parts += [sign, self.union()]
        if len(parts) == 1 and self.name() == ":":
            while self.take(":"):
                parts.append(scalar(self.union()))
            return ("ratio", scalar(parts[0]), *parts[1:])
        return ("relation", *parts) if len(parts) > 1 else parts[0]

    def union(self) -> Tree:
        left = self.sum()
        while self.name() in SETS:
            kind = SETS[self.name()]
            self.at += 1
            left = (kind, left, self.sum())
        return left

    def sum(self) -> Tree:
        sign = self.take("-", "+", "pm")
        total = self.product()
        if sign:
            total = {"-": ("neg", total), "+": total, "pm": ("pm", num("0"), total)}[sign]
            scalar(total[-1] if sign != "+" else total)
        terms = [total]
        while sign := self.take("-", "+", "pm", "mp"):
            term = scalar(self.product())
            if sign in ("pm", "mp"):
                left = terms[0] if len(terms) == 1 else ("add", *terms)
                terms = [("pm", scalar(left), term if sign == "pm" else ("neg", term))]
            else:
                terms.append(("neg", term) if sign == "-" else term)
        return terms[0] if len(terms) == 1 else ("add", *map(scalar, terms))

    def product(self) -> Tree:
        factors = [self.power()]
        while True:
            if self.name() in TIMES:
                self.at += 1
                factors.append(self.signed_power())
                factors[-2:] = _scientific(*factors[-2:])
            elif self.name() in OVER:
                self.at += 1
                below = self.signed_power()
                above = factors[0] if len(factors) == 1 else ("mul", *map(scalar, factors))
                factors = [("div", scalar(above), scalar(below))]
            elif self.begins_factor():
                if self.peek()[0] == "num":
                    refuse("a number right after something else")
                factors.append(self.power())
                factors[-2:] = _mixed(*factors[-2:])
            else:
                return factors[0] if len(factors) == 1 else ("mul", *map(scalar, factors))

    def begins_factor(self) -> bool:
        kind, found = self.peek()
        if kind in ("num", "let"):
            return True
        known = kind == "cmd" and (
            found in FUNCTIONS | GREEK or found in ("frac", "sqrt", "pi", "infty", "binom", "lfloor", "lceil", "lvert")
        )
        return known or (kind == "sym" and found in "([{")

    def signed_power(self) -> Tree:
        return ("neg", scalar(self.power())) if self.take("-") else self.power()

    def power(self) -> Tree:
        base = self.primary()
        while True:
            if self.take("!"):
                base = ("call", "factorial", scalar(base))
            elif self.take("%"):
                base = ("percent", scalar(base))
            elif self.take("^"):
                self.deeper()
                base = self.raised(scalar(base))
                self.depth -= 1
            else:
                return base

    def raised(self, base: Tree) -> Tree:
        if self.take("circ"):
            return ("degree", base)
        if self.peek() == ("sym", "{") and self.peek(1) == ("cmd", "circ") and self.peek(2) == ("sym", "}"):
            self.at += 3
            return ("degree", base)
        sign = self.take("-")
        exponent = scalar(self.primary())
        if self.take("^"):  # to the right: 2^3^2 is 2^(3^2)
            self.deeper()
            exponent = self.raised(exponent)
            self.depth -= 1
        return ("pow", base, ("neg", exponent) if sign else exponent)

    def primary(self) -> Tree:
        kind, found = self.peek()
        self.at += 1
        self.deeper()
        try:
            if kind == "num":
                return self.numeral(found)
            if kind == "let":
                return self.variable(found)
            if kind == "text":
                return ("text", found.lower())
            if found in ("(", "[", "{", "lbrace", "langle", "|", "lvert", "lfloor", "lceil"):
                return self.bracket(found)
            if kind == "cmd":
                return self.command(found)
        finally:
            self.depth -= 1
        return refuse("an incomplete term")

    def numeral(self, digits: str) -> Tree:
        if self.take("_"):
            base = self.group()
            return ("base", digits, base[1]) if base[0] == "num" and "." not in digits else refuse("an index on a number")
        return num(digits)

    def variable(self, letter: str) -> Tree:
        if self.take("_"):
            kind, found = self.peek()
            self.at += 1
            if found == "{":
                closing = next((i for i in range(self.at, len(self.tokens)) if self.tokens[i] == ("sym", "}")), -1)
                inside = self.tokens[self.at : closing]
                if closing < 0 or not inside or any(k not in ("num", "let", "text") and f != "," for k, f in inside):
                    refuse("an index that is no name")
                self.at, found = closing + 1, "".join(f for _, f in inside)
            elif kind not in ("num", "let"):
                refuse("an index that is no name")
            return ("var", f"{letter}_{found}")
        while self.take("'"):
            letter += "'"
        following = [self.peek(ahead) for ahead in range(4)]
        if [found for _, found in following[::2]] == ["(", ")"] and following[1][0] == "let" and following[3] == ("sym", "="):
            self.at += 3
            return ("var", f"{letter}({following[1][1]})")  # f(x) = ... names a value
        return ("const", letter) if letter in ("e", "i") else ("var", letter)

    def bracket(self, opening: str) -> Tree:
        if opening == "{":
            inside = self.union()
            self.need("}")
            return inside
        if opening in ("|", "lvert", "lfloor", "lceil"):
            inside = scalar(self.sum())
            self.need({"|": "|", "lvert": "rvert", "lfloor": "rfloor", "lceil": "rceil"}[opening])
            return ("call", {"|": "abs", "lvert": "abs", "lfloor": "floor", "lceil": "ceil"}[opening], inside)
        if opening == "lbrace":
            if self.take("rbrace"):
                return ("set",)
            items = self.items()
            self.need("rbrace")
            return ("set", *items)
        items = self.items()
        closing = self.take(")", "]", "rangle") or refuse("a bracket that is not closed")
        if (opening == "langle") != (closing == "rangle"):
            refuse("brackets that do not fit")
        if len(items) == 1 and (opening, closing) == ("(", ")"):
            return items[0]
        return ("seq", opening, closing, *items)

    def group(self) -> Tree:
        """An argument: in braces, or one character."""
        if self.take("{"):
            inside = scalar(self.sum())
            self.need("}")
            return inside
        kind, found = self.peek()
        if kind == "num" and found.isdigit():
            if len(found) > 1:  # \frac12 takes one digit and leaves the other
                self.tokens[self.at] = ("num", found[1:])
            else:
                self.at += 1
            return num(found[0])
        return scalar(self.primary())

    def command(self, name: str) -> Tree:
        if name == "frac":
            return ("div", self.group(), self.group())
        if name == "binom":
            return ("call", "binom", self.group(), self.group())
        if name == "sqrt":
            index = num("2")
            if self.take("["):
                index = scalar(self.sum())
                self.need("]")
            return ("root", index, self.group())
        if name in ("pi", "infty"):
            return ("const", {"pi": "pi", "infty": "oo"}[name])
        if name in ("emptyset", "varnothing"):
            return ("set",)
        if name.startswith("mathbb"):
            return ("text", name)
        if name in GREEK:
            return self.variable("\\" + name)
        if name in FUNCTIONS:
            return self.function(name)
        if name == "begin":
            return self.matrix()
        return refuse(f"\\{name} is not known here" if len(name) < 20 else "an unknown command")

    def function(self, name: str) -> Tree:
        base = exponent = None
        if self.take("_"):
            base = self.group()
        if self.take("^"):
            sign = self.take("-")
            exponent = ("neg", self.group()) if sign else self.group()
        if self.peek() in (("sym", "("), ("sym", "{")):
            closing = ")" if self.take("(") else "}" if self.take("{") else ""
            arguments = [scalar(item) for item in self.items()]
            self.need(closing)
        else:
            factors = [self.power()]  # \sin 2x
            while self.peek()[0] == "let" or self.name() in ("pi", *GREEK):
                factors.append(self.power())
            arguments = [scalar(factors[0] if len(factors) == 1 else ("mul", *factors))]
        many = name in ("max", "min", "gcd", "lcm")
        if (len(arguments) > 1) != many or (base is not None and name != "log"):
            refuse("a function with other arguments than it has")
        call = ("call", name, *arguments, *([base] if base is not None else []))
        return ("pow", call, exponent) if exponent is not None else call

    def matrix(self) -> Tree:
        kind, name = self.peek()
        self.at += 1
        if kind != "text" or name not in ("pmatrix", "bmatrix", "matrix", "array"):
            refuse("an environment that is no matrix")
        rows, row = [], [scalar(self.sum())]
        while True:
            if self.take("&"):
                row.append(scalar(self.sum()))
            elif self.take("\\\\"):
                rows.append(("row", *row))
                if self.name() == "end":
                    break
                row = [scalar(self.sum())]
            else:
                rows.append(("row", *row))
                break
        self.need("end")
        self.at += 1
        if self.tokens[self.at - 1] != ("text", name) or len({len(r) for r in rows}) != 1:
            refuse("a matrix that is not closed, or whose rows differ")
        return ("matrix", *rows)


def _is_integer(tree: Tree) -> bool:
    return tree[0] == "num" and tree[2] == "exact" and "/" not in tree[1]


def _mixed(whole: Tree, part: Tree) -> tuple[Tree, ...]:
    """Two and a half, where a proper fraction follows an integer; else both as they are."""
    if _is_integer(whole) and part[0] == "div" and _is_integer(part[1]) and _is_integer(part[2]):
        top, bottom = int(part[1][1]), int(part[2][1])
        value = Fraction(top, bottom) if 0 < top < bottom else None
        if value is not None and value.denominator == bottom:
            return (num(int(whole[1]) + value),)
    return whole, part


def _scientific(mantissa: Tree, power: Tree) -> tuple[Tree, ...]:
    """3 x 10^8 as the one number it is, where it is written as such."""
    if mantissa[0] == "num" and power[0] == "pow" and power[1] == num("10"):
        negative = power[2][0] == "neg"
        exponent = power[2][1] if negative else power[2]
        if _is_integer(exponent) and 1 <= Fraction(mantissa[1]) < 10 and int(exponent[1]) <= MAX_EXPONENT:
            power_of_ten = Fraction(10) ** (-int(exponent[1]) if negative else int(exponent[1]))
            return (("num", str(Fraction(mantissa[1]) * power_of_ten), mantissa[2]),)
    return mantissa, power
