"""One asserted answer, and whether it means what the reference means."""

import contextlib
import gzip
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards.expression import MAX_CHARACTERS, read_expression
from earnest.rewards.forms import isolated, rational, undone
from earnest.rewards.latex import UnreadableError
from earnest.rewards.math import math
from earnest.rewards.polynomials import coprime
from earnest.rewards.process import Pool
from earnest.rewards.symbolic import UndecidedError, fractions, same

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
GSM8K = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k"
PATIENT = 60.0  # seconds: a test of what is equal is none of how fast
LIMIT = 1.0


@pytest.fixture(scope="module")
def pool():
    pool = Pool("earnest.rewards.math_worker", "compare_whole", size=2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def value(pool):
    def value(text, gold, **options):
        score = math(pool=pool, **{"deadline": PATIENT, **options})(text, answer=gold)
        assert score.status == "scored", score.reasons
        return score.value

    return value


RIGHT = [
    # positive controls
    ("1/2", 0.5), ("0.5", "1/2"), ("\\frac12", "1/2"), ("\\frac{1}{2}", 0.5), ("1,000", 1000), ("\u22125", -5), ("42.", 42), ("x = 5", 5),
    ("42\n\nHope this helps!", 42), ("The answer is 41. Wait, that is wrong. The answer is 42.", 42), ("\\boxed{42}\r\n", 42),
    # S-MV-01
    ("so \\boxed{57}. Checking again.\n**Final Answer**\n\n\\boxed{57}", 57),
    # S-MV-02: sqrt(19) = 4.358898943540673552...
    ("4.358898943540674", "\\sqrt{19}"), ("4.3589", "\\sqrt{19}"), ("\\sqrt{19}", "4.3589"),
    # S-MV-04
    ("2,3,4", "n=2,3,4"), ("n=2,3,4", "n=2,3,4"), ("4, 2 and 3", "n=2,3,4"), ("D=(0,1)", "D=(0,1)"), ("(0, 1)", "D=(0,1)"),
    # S-MV-05
    ("\\pm 7", "\\pm 7"), ("7, -7", "\\pm 7"), ("x = \\pm 7", "\\{-7, 7\\}"), ("12:00", "12:00"),
    # S-MV-06, S-MV-07
    ("5*x-2*y+9=0", "5x-2y+9=0"), ("-5x+2y=9", "5*x-2*y+9=0"), ("$y=-\\frac{1}{2}x+\\frac{3}{4}$", "$2x+4y-3=0$"),
    ("$-2x-4y+3=0$", "$2x+4y-3=0$"), ("4x+8y=6", "$2x+4y-3=0$"),
    # S-MV-08
    ("$\\text{17}$", "$17$"), ("\\boxed{\\text{17}}", "$17$"), ("\\boxed{\\mathrm{17}}", "$17$"),
    # S-MV-09
    ("... 437 + 2*234 = 905\nFinal Answer: **73**", 73), ("Final Answer: __73__", 73), ("Final Answer: `73`", 73),
    ("Final Answer: **73.**", 73),
    # S-MV-10
    ("28 %", "28\\%"), ("28 percent", "28\\%"), ("\\boxed{28 pct}", "28\\%"), ("0.28", "28\\%"), ("\\boxed{28\\text{ percent}}", "28\\%"),
    # S-MV-13, S-MV-14, S-MV-15, S-MV-18
    ("\\boxed{$9{,}500}", 9500), ("\\boxed{8,000}", 8000), ("1,000.00", 1000), ("$29.00", 29), ("29.", 29), ("29.0", 29), ("USD 29", 29),
    ("2+40=42\n#### 42\n" + "And so the whole of it has been added up here. " * 11, 42),
    ("6", 6), ("1/3", 0.3333333333), ("\\boxed{6}", "6"), ("6", "6"),
    # terms
    ("x^2 + 1", "1+x^2"), ("3*x**2 - 2", "3x^2-2"), ("-(x-1)", "1-x"), ("\\frac{x+1}{2}", "\\frac{x}{2}+\\frac{1}{2}"),
    ("2(x+1)", "2x+2"),
    ("(y-z)(x-y)", "(x-y)(y-z)"), ("\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"), ("1+\\sqrt{2}", "\\sqrt{2}+1"),
    ("4 sqrt(2)", "4\\sqrt{2}"),
    ("2^{1/3}", "\\sqrt[3]{2}"), ("\\boxed{\\dfrac{\\pi}{2}}", "\\frac{\\pi}{2}"), ("pi/2", "\\frac{\\pi}{2}"),
    ("1.5707963", "\\frac{\\pi}{2}"),
    ("-5i+6", "6-5i"), ("e^{2x}", "(e^x)^2"), ("\\sin(x)", "\\sin x"), ("3\\ln 2", "\\ln 8"), ("2\\frac{1}{2}", "5/2"),
    ("3 \\times 10^{8}", "300000000"),
    ("f(x) = x + 1", "x+1"), ("x_2 + x_1", "x_1+x_2"), ("\\theta", "\\theta"), ("2516_8", "2516_8"), ("12{,}000", "12000"),
    ("|x|", "|x|"),
    # shapes
    ("$x = \\boxed{\\frac{\\pi}{2}}$", "\\frac{\\pi}{2}"), ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\pi/2)"),
    ("3, 1, 2", "\\{1,2,3\\}"),
    ("(3,\\infty)\\cup(-\\infty,2)", "(-\\infty,2)\\cup(3,\\infty)"), ("x \\in [-2,7]", "[-2,7]"), ("[-2,7]", "x\\in[-2,7]"),
    ("5 > x", "x < 5"),
    ("7 \\ge x \\ge -2", "-2 \\le x \\le 7"), ("-2 <= x <= 7", "-2\\leq x\\leq 7"),
    ("\\emptyset", "\\varnothing"),
    ("\\begin{pmatrix} 1 & 0.5 \\\\ 3 & 4 \\end{pmatrix}", "\\begin{bmatrix} 1 & \\frac{1}{2} \\\\ 3 & 4 \\end{bmatrix}"),
    ("1-\\sqrt{5}, 1+\\sqrt{5}", "1 \\pm \\sqrt{5}"), ("\\text{(C)}", "\\text{(C)}"), ("x = 2, y = 3", "y=3, x=2"), ("3:2", "3:2"),
    ("90", "90^\\circ"), ("90^{\\circ}", "90^\\circ"), ("\\boxed{90}^\\circ", "90^\\circ"),
    ("\\mathbb{R}\\setminus\\{0\\}", "\\mathbb{R} \\setminus \\{0\\}"),
    # solved as the reference is, or the reference is not
    ("5=x", "x=5"), ("2x=10", "2x=10"), ("x=5", "2x=10"), ("x=5", "3x+5=20"), ("x<5", "2x<10"), ("2x<10", "-x>-5"), ("y=2x+3", "y=3+2x"),
    ("x^2=y", "y=x^2"), ("x \\ne 0", "x \\ne 0"), ("3, 5", "x=3, x=5"), ("x=3, 5", "x=3, x=5"), ("x=5, x=3", "x=3, x=5"),
    ("y=-1, x=1", "x=1, y=-1"),
    # finished in either form
    ("\\frac{n^2+n}{2}", "\\frac{n(n+1)}{2}"), ("\\frac{n^2}{2}+\\frac{n}{2}", "\\frac{n(n+1)}{2}"),
    ("\\frac{1}{2}n(n+1)", "\\frac{n(n+1)}{2}"), ("\\frac{n^2+n}{2}", "\\frac12 n(n+1)"), ("\\frac{1}{x^2+x}", "\\frac{1}{x(x+1)}"),
    ("\\frac{1}{x+1}", "(x+1)^{-1}"), ("(x+1)^{-1}", "\\frac{1}{x+1}"), ("\\frac{1}{(x+1)^2}", "(x+1)^{-2}"),
    ("\\sqrt{x+1}", "(x+1)^{1/2}"), ("(x+1)^{1/2}", "\\sqrt{x+1}"), ("\\sqrt[3]{x}", "x^{1/3}"), ("x^{3/2}", "x\\sqrt x"),
    ("\\frac{1}{2\\sqrt x}", "\\frac12x^{-1/2}"), ("\\frac12x^{-1/2}", "\\frac{1}{2\\sqrt x}"),
    ("\\frac{x}{\\sqrt{x^2+1}}", "x(x^2+1)^{-1/2}"),
    ("\\frac{1}{e^x}", "e^{-x}"), ("e^{-2x}", "\\frac{1}{e^{2x}}"), ("\\frac{x}{2^x}", "x\\cdot 2^{-x}"),
    ("\\frac3x-\\frac{1}{x^2}", "3x^{-1}-x^{-2}"), ("3x^{-1}-x^{-2}", "\\frac3x-\\frac{1}{x^2}"),
    ("\\frac{1+x}{x-1}", "\\frac{x+1}{x-1}"), ("\\frac{-1-x}{1-x}", "\\frac{x+1}{x-1}"), ("1+\\frac1x", "\\frac{x+1}{x}"),
    ("\\frac{2(x+1)}{3y}", "\\frac{2x+2}{3y}"), ("3\\cdot\\frac{\\sqrt2}{2}", "\\frac{3\\sqrt2}{2}"),
    ("\\frac{3}{2}\\sqrt2", "\\frac{3\\sqrt2}{2}"),
    ("\\sqrt{2\\pi}", "\\sqrt{2\\pi}"), ("\\sqrt{2+\\sqrt2}", "\\sqrt{\\sqrt2+2}"), ("e^{i\\pi/4}", "e^{\\frac{i\\pi}{4}}"),
    ("e^{3/2}", "e^{\\frac32}"),
    ("\\frac{1}{1+\\sqrt2}", "\\frac{1}{\\sqrt2+1}"), ("\\frac{1}{\\sqrt2}, -\\frac{1}{\\sqrt2}", "\\pm\\frac{\\sqrt2}{2}"),
    ("\\frac{2\\pi}{3}", "\\frac{2\\pi}{3}"), ("\\frac{1+i}{2}", "\\frac12+\\frac{i}{2}"),
    # words
    ("\\boxed{\\text{Yes}}", "Yes"), ("Yes", "\\text{Yes}"), ("\\boxed{\\textbf{no}}", "No"), ("The answer is No.", "no"),
    ("**True**", "True"),
    ("\\boxed{\\mathrm{false}}", "False"), ("yxz", "xyz"),
    # what the reference leaves undone may stay so
    ("17\\times 23", "17\\times 23"), ("391", "17 \\times 23"), ("2^{10}", "2^{10}"), ("1024", "2^{10}"), ("10!", "10!"),
    ("9^{9^{9^{9}}}", "9^{9^{9^9}}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "gold"), RIGHT)
def test_an_asserted_answer_that_means_the_same_gets_full_marks(value, text, gold):
    assert value(text, gold) == 1.0


WRONG = [
    # S-MV-01, S-MV-02
    ("\\boxed{57} ... \\boxed{58}", 57), ("4.359", "\\sqrt{19}"), ("4.36", "\\sqrt{19}"), ("-4.3589", "\\sqrt{19}"),
    # S-MV-03: near zero, near each other, and a rounding that would hide it
    ("\\frac{1}{2^{71}}", "\\frac{1}{2^{70}}"), ("0.000000000002", 1e-12), ("2 \\times 10^{-12}", 1e-12),
    ("x+\\frac{1}{2^{71}}", "x+\\frac{1}{2^{70}}"),
    ("\\frac{\\sqrt{2}}{2^{71}}", "\\frac{\\sqrt{2}}{2^{70}}"), ("0", 1e-12), ("\\frac{1}{3^{400}}", "\\frac{1}{3^{401}}"),
    # S-MV-04, S-MV-05, S-MV-06, S-MV-07
    ("n=1,2,3", "n=2,3,4"), ("2,3", "n=2,3,4"), ("D=(0,1.5)", "D=(0,1)"), ("7", "\\pm 7"), ("\\pm 7", 7), ("1:00", "12:00"),
    ("12", "12:00"),
    ("5x + 7y + 4=0", "5*x-2*y+9=0"), ("0", "5*x-2*y+9=0"), ("$2x+4y+3=0$", "$2x+4y-3=0$"), ("0=0", "2x+4y-3=0"), ("x^2=-2", "x^2=-1"),
    # S-MV-10, S-MV-11, S-MV-13, S-MV-14
    ("2800%", "28\\%"), ("28", "28\\%"), ("\\boxed{28}", "28\\%"), ("9%", 9), ("$4\\sqrt(2)$", "$4$"), ("4\\sqrt", 4), ("4\\foo", 4),
    ("4 apples", 4),
    ("\\boxed{$9{,}500}", 500), ("10,00", 1000), ("1,00,0", 1000), ("$29.50", 29), ("€29", 29),
    # S-MV-16 without the form that lets it through
    ("\\boxed{9^{9^{9^{9}}}}", 3), ("\\boxed{\\frac{7^{(7^{(7^{7})})}-7}{16}}", 3), ("\\boxed{10^{10^{10}}}", 42),
    # S-MV-19, S-MV-20
    ("²", 2), ("5²", 25), ("１２", 12), ("٣", 3), ("1,5", 15), ("1,5", 1.5), ("1.200.000,50", 1200000.5), ("31.12.2027", 31122027),
    ("½", 0.5),
    # no work, and attacks on numbers
    ("", 42), (" \n", 42), ("\\boxed{}", 42), ("What is $17*23$?", 391), ("$17*23$", 391), ("I'm sorry, I can't help", 42),
    ("40, 41, 42, 43, 44", 42),
    ("142", 42), ("The answer is definitely not 42", 42), ("nan", 42), ("\\infty", 42), ("391 bananas", 391), ("5 feet", 5), ("44.1", 42),
    # restated questions
    ("\\boxed{17\\times 23}", 391), ("\\boxed{\\sum_{k=1}^{100}k}", 5050), ("\\boxed{391+0}", 391), ("\\boxed{1\\cdot 391}", 391),
    ("\\boxed{\\frac{782}{2}}", 391), ("\\boxed{\\frac{391}{1}}", 391), ("\\boxed{20^2-9}", 391), ("\\boxed{\\sqrt{152881}}", 391),
    ("\\sqrt{16}", 4),
    ("4!", 24), ("\\gcd(4,6)", 2), ("\\binom{5}{2}", 10), ("\\lfloor 2.5 \\rfloor", 2), ("\\log_2 8", 3), ("\\sin(0)", 0), ("|-3|", 3),
    ("5^1", 5),
    ("\\int_0^1 2x dx", 1), ("\\frac{17\\cdot 46}{2}", 391), ("0.5+0.5", 1), ("370 21", 391), ("391^{1}", 391), ("\\sqrt[3]{8}", 2),
    ("-(-5)", 5),
    ("x+x", "2x"), ("x \\cdot x", "x^2"), ("(x+1)^2", "x^2+2x+1"), ("x^2+2x+1", "(x+1)^2"), ("(x+1)(x+2)", "x^2+3x+2"),
    ("\\frac{x^2-1}{x-1}", "x+1"),
    ("\\sqrt{8}", "2\\sqrt{2}"), ("\\sqrt{2}\\cdot\\sqrt{3}", "\\sqrt{6}"), ("\\sqrt{x^2}", "|x|"),
    ("2\\sqrt{3}+3\\sqrt{3}", "5\\sqrt{3}"),
    ("\\frac{2\\sqrt{3}}{4}", "\\frac{\\sqrt{3}}{2}"), ("(1+\\sqrt{2})^2", "3+2\\sqrt{2}"), ("\\sin^2 x+\\cos^2 x", 1),
    ("x = 17\\times 23", "x=391"),
    # an equation that is not solved, or for something else
    ("\\boxed{3x+5=20}", "x=5"), ("2x=\\pi", "x=\\frac{\\pi}{2}"), ("2x<10", "x<5"), ("-x>-5", "x<5"), ("x=3x-10", "x=5"), ("x-5=0", "x=5"),
    ("5-x=0", "5=x"), ("x<10-x", "x<5"), ("x=\\frac{y-3}{2}", "y=2x+3"), ("2x-y+3=0", "y=2x+3"), ("2x=4, 3y=9", "x=2, y=3"),
    ("x=3, 2y=8", "2x=6, y=4"), ("x^2=49", "x=\\pm 7"), ("-4\\le 2x\\le 14", "-2\\le x\\le 7"),
    # values of several variables without their names
    ("3, 2", "x=2, y=3"), ("2, 3", "x=2, y=3"), ("\\{2, 3\\}", "x=2, y=3"), ("x=2, 3", "x=2, y=3"), ("x=3, y=2", "x=2, y=3"),
    ("1, 2, 3", "a=1, b=2, c=3"), ("2, y=3", "x=2, y=3"),
    # quotients that can be expanded, roots that can be taken apart, angles in degrees, fractions with a factor in common
    ("\\frac{1+i}{1-i}", "i"), ("\\frac{1}{1-i}", "\\frac{1+i}{2}"), ("\\frac{1}{i}", "-i"),
    ("\\frac{2+\\sqrt5}{2-\\sqrt5}", "-9-4\\sqrt5"),
    ("(1+\\sqrt2)^{-1}", "\\sqrt2-1"), ("\\frac{\\sqrt6}{\\sqrt2}", "\\sqrt3"), ("\\frac{5\\sqrt6}{3\\sqrt2}", "\\frac{5\\sqrt3}{3}"),
    ("\\sqrt6\\cdot\\frac{1}{\\sqrt2}", "\\sqrt3"), ("6^{1/2}\\cdot 2^{-1/2}", "\\sqrt3"), ("\\frac{6}{\\sqrt3}", "2\\sqrt3"),
    ("2\\cdot\\frac{\\sqrt2}{2}", "\\sqrt2"), ("\\sqrt{7+4\\sqrt3}", "2+\\sqrt3"), ("(7+4\\sqrt3)^{1/2}", "2+\\sqrt3"),
    ("\\sqrt{3+4i}", "2+i"),
    ("\\sqrt{-3}", "i\\sqrt3"), ("\\sqrt{\\pi^2}", "\\pi"), ("\\sqrt{4\\pi}", "2\\sqrt\\pi"), ("120^\\circ", "\\frac{2\\pi}{3}"),
    ("x=45^{\\circ}", "x=\\frac{\\pi}{4}"), ("30^\\circ, 60°", "\\frac{\\pi}{6}, \\frac{\\pi}{3}"), ("e^{i\\pi}", -1),
    ("e^{2\\pi i}", 1), ("1^{\\pi}", 1),
    ("(2i)(3i)", -6), ("\\frac{2\\pi}{3\\pi}", "\\frac23"), ("\\frac{x^2-1}{x^2-2x+1}", "\\frac{x+1}{x-1}"),
    ("\\frac{(x+1)(x-1)}{(x-1)^2}", "\\frac{x+1}{x-1}"), ("\\frac{x^2-y^2}{x(x-y)}", "\\frac{x+y}{x}"),
    ("\\frac{x^2+x}{x^2}", "\\frac{x+1}{x}"),
    ("\\frac{2x}{4y}", "\\frac{x}{2y}"), ("\\frac1x+\\frac2x", "\\frac3x"), ("\\frac1x+\\frac1{x+1}", "\\frac{2x+1}{x^2+x}"),
    ("\\frac{1}{1+\\frac1x}", "\\frac{x}{x+1}"), ("x^{-1}+\\frac1x", "\\frac2x"), ("2(x-3)+1", "2x-5"), ("5-(x+1)", "4-x"),
    ("n(n+1)", "n^2+n"), ("n^2+n", "n(n+1)"),
    ("\\frac{n(n+1)}{2}", "\\frac{n^2+n}{2}"),
    # words
    ("sYe", "Yes"), ("No", "Yes"), ("\\text{No}", "Yes"), ("on", "no"), ("Yes, no", "Yes"), ("\\boxed{\\text{False}}", "True"),
    ("2+3, 4", "5, 4"), ("(17\\cdot 23, 1)", "(391, 1)"), ("17\\times 23 = 391", 391), ("i^2", -1),
    # what covers the answer, and what is about it
    ("\\{41,42\\}", 42), ("\\{42\\}", 42), ("(0,100)", 42), ("0<x<100", 42), ("x>0", 42), ("42, 43", 42), ("42 \\pm 1", 42),
    ("42 or 43", 42),
    ("\\boxed{390}\\boxed{391}", 391), ("\\boxed{391}\\boxed{390}", 391), ("It is not \\boxed{391}.", 391), ("x \\ne 391", 391),
    ("\\neg 391", 391),
    ("A user might write \\boxed{391}, but I disagree.", 391), ("\\boxed{\\text{not } 391}", 391), ("\\boxed{391\\text{ is wrong}}", 391),
    ("not Yes", "\\text{Yes}"), ("\\text{not Yes}", "\\text{Yes}"), ("\\text{Ye}", "\\text{Yes}"), ("Yes or no", "\\text{Yes}"),
    ("__import__('os').system('true')", 42), ("(open('x','w').write('x'),[])[1]", 42), ("\\boxed{().__class__}", 42),
    # nearly
    ("42.00001", 42), ("109200001", 109200000), ("109200001.0", 109200000), ("y=5", "x=5"), ("X", "x"), ("x", "y"), ("x>5", "x<5"),
    ("x\\le 5", "x<5"),
    ("(2,1)", "(1,2)"), ("(5,2)", "(3,1)"), ("1,2", "(1,2)"), ("\\{1,2\\}", "(1,2)"), ("[1,2]", "(1,2)"), ("[1,2)", "[1,2]"),
    ("1,2,2", "1,2"), ("1,1", "1,2"),
    ("\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "(1,2)"),
    ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix} 1 & 2 \\end{pmatrix}"),
    ("3+2i", "3-2i"), ("2:3", "3:2"), ("2516_7", "2516_8"), ("2516", "2516_8"), ("-\\sqrt{2}", "\\sqrt{2}"), ("\\log 2", "\\ln 2"),
    ("2\\pi", "\\pi"),
    ("90^\\circ", 90), ("e", "\\pi"), ("x_1", "x_2"), ("\\gamma", "\\Gamma"), ("(-\\infty,2)", "(-\\infty,2)\\cup(3,\\infty)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "gold"), WRONG)
def test_everything_else_gets_what_a_wrong_answer_gets(value, text, gold):
    assert value(text, gold) == 0.0


@pytest.mark.parametrize(
    ("text", "gold", "options", "expected"),
    [
        ("4.36", "\\sqrt{19}", {"tolerance": 1e-2}, 1.0), ("4.359", "\\sqrt{19}", {"tolerance": 1e-2}, 1.0),  # S-MV-02
        ("4.3589", "\\sqrt{19}", {"tolerance": 1e-2}, 1.0), ("4.3589", "\\sqrt{19}", {"tolerance": 0.0}, 0.0),
        ("4.358898943540674", "\\sqrt{19}", {"tolerance": 1e-2}, 1.0), ("43", 42, {"tolerance": 0.5}, 0.0),
        ("42.5", 42, {"tolerance": 0.5}, 0.0),
        ("The total is 72 clips, altogether.", 72, {"place": "last"}, 1.0),
        ("72, in all, so done.", 72, {"place": "last"}, 1.0),  # S-MV-12
        ("1,5", 1.5, {"decimal": ","}, 1.0), ("1.200.000,50", 1200000.5, {"decimal": ","}, 1.0),
        ("1,5; 2", "2; 3/2", {"decimal": ","}, 1.0),  # S-MV-20
        ("28", "28\\%", {"percent": True}, 1.0), ("28%", 28, {"percent": True}, 1.0), ("\\boxed{28}", "28\\%", {"percent": True}, 1.0),
        ("10 cm", "10\\text{ cm}", {"units": ("cm",)}, 1.0), ("10\\text{ cm}", 10, {"units": ("cm",)}, 1.0),
        ("10\\text{ m}", 10, {"units": ("cm",)}, 0.0),
        ("2\\sqrt{2}\\text{ cm}", "2\\sqrt{2}", {"units": ("cm",)}, 1.0), ("€29", 29, {"currency": ("€",)}, 1.0),
        ("$29", 29, {"currency": ()}, 0.0),
        ("\\boxed{x}", "x", {"place": "tag"}, 0.0), ("<answer>x</answer>", "x", {"place": "tag"}, 1.0),
    ],
)  # fmt: skip
def test_what_an_option_declares(value, text, gold, options, expected):
    assert value(text, gold, **options) == expected


@pytest.mark.parametrize(
    "gold", ["see appendix", "", "\\boxed", float("nan"), float("inf"), True, [], {}, None, "10\\text{ cm}", "\\sum_{k} k", "4\\foo"]
)
@pytest.mark.parametrize("text", ["12", "banana", "", "see appendix"])
def test_a_reference_that_cannot_be_read_is_an_invalid_task_and_never_a_score(gold, text):  # S-MV-17
    score = math()(text, answer=gold)
    assert (score.value, score.status) == (None, "invalid_task")


def test_a_tower_of_powers_is_stopped_in_time_and_the_others_are_judged(pool):  # S-MV-16, and from threads S-CC-01
    verifier, patient = math(pool=pool, deadline=LIMIT), math(pool=pool, deadline=PATIENT)
    towers = ["\\boxed{9^{9^{9^{9}}}}", "\\boxed{\\frac{7^{(7^{(7^{7})})}-7}{16}}"] * 2
    assert patient("\\boxed{\\sqrt{2}+x}", answer="x+\\sqrt{2}").value == 1.0, "started"
    with ThreadPoolExecutor(5) as threads:
        began = time.monotonic()
        # a reference with a power and a quotient lets them through to the comparison
        scores = [threads.submit(verifier, tower, answer="\\frac{2^{3}-2}{2}+2^{2}") for tower in towers]
        normal = threads.submit(patient, "\\boxed{\\sqrt{2}+1}", answer="1+\\sqrt{2}")
        results = [score.result() for score in scores]
        assert [(score.value, score.evidence.get("timeout")) for score in results] == [(0.0, True)] * 4
        assert normal.result().value == 1.0
    assert time.monotonic() - began < 2 * LIMIT + 60, "two at a time"
    assert len(pool.pids()) <= 2


def test_eight_threads_at_once_are_all_right(pool):  # S-CC-01
    verifier = math(pool=pool, deadline=PATIENT)
    with ThreadPoolExecutor(8) as threads:
        assert all(s.value == 1.0 for s in threads.map(lambda _: verifier("\\boxed{\\frac{1}{4}}", answer=0.25), range(8)))
        assert all(s.value == 1.0 for s in threads.map(lambda n: verifier(f"\\boxed{{x+{n}}}", answer=f"{n}+x"), range(8)))


def test_what_needs_more_memory_than_there_is_scores_nothing_and_leaves_a_worker(pool):
    verifier = math(pool=pool, deadline=PATIENT)
    assert verifier("\\boxed{x^{2}}", answer="x^{3}").value == 0.0
    score = math(pool=pool, deadline=LIMIT)("\\boxed{(10^{10})!}", answer="5!+2^{2}")
    assert (score.value, score.status) == (0.0, "scored")
    assert verifier("\\boxed{\\sqrt{3}+x}", answer="x+\\sqrt{3}").value == 1.0


def test_no_worker_starts_for_what_can_be_decided_without(tmp_path):
    pool = Pool("a_module_that_nobody_has", "compare")
    verifier = math(pool=pool)
    for text, gold, expected in [("42", 42, 1.0), ("41", 42, 0.0), ("\\frac12", 0.5, 1.0), ("x^2", "x^{2}", 1.0), ("(1,2)", "(1,3)", 0.0)]:
        assert verifier(text, answer=gold).value == expected
    assert pool.pids() == []


def test_workers_that_do_not_start_are_no_verdict():
    score = math(pool=Pool("a_module_that_nobody_has", "compare"))("x+1", answer="1+x")
    assert (score.value, score.status) == (None, "infra_error")
    assert "a_module_that_nobody_has" in score.reasons[0]


@pytest.mark.parametrize("options", [{"tolerance": -1.0}, {"tolerance": float("nan")}, {"deadline": float("inf")}, {"place": "first"}])
def test_an_option_that_means_nothing_is_refused_at_once(options):
    with pytest.raises(UserError):
        math(**options)


# A slow and obvious reference for plain arithmetic: Python's fractions.
NUMBERS = st.fractions(min_value=-50, max_value=50, max_denominator=12)


@given(NUMBERS, NUMBERS)
def test_two_fractions_are_equal_as_fractions_are(gold, answer):
    def written(value):
        sign, top, bottom = "-" * (value < 0), abs(value.numerator), value.denominator
        return f"{sign}{top}" if bottom == 1 else f"{sign}\\frac{{{top}}}{{{bottom}}}"

    trees = read_expression(written(gold)), read_expression(written(answer))
    assert rational(trees[0]) == gold
    assert same(*trees, 1e-6, fractions) == (gold == answer)
    assert undone(trees[0]) == frozenset()


@given(st.lists(st.integers(2, 40), min_size=2, max_size=4), st.sampled_from([" + ", " \\cdot ", " * ", " - ", "^"]))
def test_arithmetic_on_numbers_is_always_left_undone(numbers, sign):
    assert undone(read_expression(sign.join(map(str, numbers)))) != frozenset()


@given(st.integers(2, 400), st.integers(2, 4))
def test_a_root_is_left_undone_exactly_if_a_power_divides_it(number, index):
    divides = any(number % factor**index == 0 for factor in range(2, number + 1))
    assert (undone(("root", ("num", str(index), "exact"), ("num", str(number), "exact"))) != frozenset()) == divides


def multiplied(left, right):
    """Coefficients of a product, from the constant one up."""
    return [sum(a * b for i, a in enumerate(left) for j, b in enumerate(right) if i + j == at) for at in range(len(left) + len(right) - 1)]


def written(coefficients):
    return "+".join(f"({c})y x^{power}" for power, c in enumerate(coefficients))


FACTORS = st.lists(st.integers(-9, 9), min_size=2, max_size=4).filter(lambda c: c[-1] != 0)


@given(FACTORS, FACTORS, FACTORS)
def test_polynomials_with_a_factor_in_common_are_never_coprime(left, right, factor):
    assert not coprime(*(read_expression(written(multiplied(side, factor))) for side in (left, right)))


@given(st.sets(st.integers(-20, 20), min_size=1, max_size=4), st.sets(st.integers(-20, 20), min_size=1, max_size=4))
def test_polynomials_of_known_roots_are_coprime_exactly_if_they_share_none(left, right):
    sides = [read_expression("".join(f"(x-({root}))" for root in sorted(roots))) for roots in (left, right)]
    assert coprime(*sides) == (not left & right)


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [("x^2+1", "x+i", False), ("x^2+1", "x+1", True), ("\\sin^2 x-1", "\\sin x-1", False), ("a^2-2ab+b^2", "a-b", False),
     ("x^{50}", "x", True),
     ("x y", "z", True), ("\\pi x+\\pi", "2x+2", False), ("e^{x}", "x", True), ("2", "x", True)],
)  # fmt: skip
def test_what_has_a_factor_in_common(above, below, expected):  # and of degrees past the limit nothing is said
    assert coprime(read_expression(above), read_expression(below)) == expected


@pytest.mark.parametrize(
    ("text", "names"),
    [("x=5", {"x"}), ("5=x", {"x"}), ("x=y", {"x", "y"}), ("3x=15", set()), ("x=2x-5", set()), ("-2<x<7", {"x"}),
     ("f(x)=x+1", {"f(x)"}), ("1<2", set())],
)  # fmt: skip
def test_what_a_relation_is_solved_for(text, names):
    assert {name for _, name in isolated(read_expression(text))} == names


@pytest.mark.parametrize(
    "text",
    ["", ")", "((", "^2", "x^", "\\frac{1}", "1.2.3", "2 5", "1/", "/2", "x 2", "\\sqrt12", "[1,2", "\\{1", "x =", "= 5", "1,,2",
    "\\begin{pmatrix} 1",
     "\\begin{pmatrix} 1 & 2 \\\\ 3 \\end{pmatrix}", "(" * 100 + "1" + ")" * 100, "{" * 40 + "1" + "}" * 40, "1/" * 400 + "1",
     "5" + "!" * 900,
     "2^" * 300 + "2", "1" * (MAX_CHARACTERS + 1), "9" * 301, "word", "\\input{x}", "a\u202eb", "\\sin", "\\max(1)", "(1,2)+3",
     "\\{1\\}^2"],
)  # fmt: skip
def test_what_is_not_read_whole_is_not_read(text):
    with pytest.raises(UnreadableError):
        read_expression(text)


PIECES = [
    "42", "-", "\\frac", "{", "}", "(", ")", "[", "]", "\\sqrt", "^", "_", "x", "y", " ", ",", "\\pi", "\\boxed{", "=", "<", "\\cup",
    "\\pm", "!", "%", "i",
    "e", "\\sin", "1/2", "0.5", "\\{", "\\}", "|", "\\text{", "$", "&", "\\\\", "\\begin{pmatrix}", "\\end{pmatrix}", "\\infty", ":",
    "and", "\ud800", "'",
    "9^{9^{9}}", "\\log_", "\\circ",
]  # fmt: skip


@settings(max_examples=1500 * FUZZ)
@given(st.text(max_size=100) | st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("\ud800")
def test_no_text_raises_and_none_is_evaluated_here(text):
    try:
        tree = read_expression(text)
    except UnreadableError:
        return
    undone(tree)
    json.dumps(tree)
    with contextlib.suppress(UndecidedError):
        assert same(tree, read_expression("\\frac{1}{2}"), 1e-6, fractions) in (True, False)
    assert same(tree, tree, 0.0, fractions)


@settings(max_examples=60 * FUZZ)
@given(st.sampled_from(RIGHT), st.randoms(use_true_random=False))
def test_no_mutation_of_a_right_answer_raises_or_takes_longer_than_the_deadline(pool, right, random):
    text, gold = right
    data = bytearray(text.encode()) or bytearray(b"0")
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(data))
        data[at : at + random.randint(0, 2)] = bytes(random.choices(b"0123456789+-*/^{}()\\x, \xff", k=random.randint(0, 3)))
        data = data or bytearray(b"0")
    began = time.monotonic()
    score = math(pool=pool, deadline=5.0)(data.decode("utf-8", "replace"), answer=gold)
    assert score.value in (0.0, 1.0)
    assert time.monotonic() - began < 5.0 + 120


@pytest.mark.skipif(not GSM8K.exists(), reason="the shared data are not here")
def test_gold_answers_of_gsm8k_are_right_and_mutated_ones_are_not():
    dice = random.Random(1)
    rows = [json.loads(line) for line in (GSM8K / "test.jsonl").open()]
    with gzip.open(GSM8K / "train.jsonl.gz", "rt") as lines:
        rows += [json.loads(line) for line in lines]
    verifier = math()
    for row in dice.sample(rows, min(len(rows), 150 * FUZZ)):
        work, _, gold = row["answer"].rpartition("#### ")
        size = int(gold.replace(",", ""))
        assert verifier(row["answer"], row).value == 1.0
        assert verifier(f"{work}\\boxed{{{gold}}}", row).value == 1.0
        for wrong in (size + 1, size - 1, -size, size * 10, Fraction(size * 2 + 1, 2)):
            assert verifier(f"{work}\\boxed{{{wrong}}}", row).value == float(wrong == size)
