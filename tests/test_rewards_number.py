"""One asserted answer, and whether it is the number of the row."""

import gzip
import json
import math
import os
import random
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards.asserted import LONGEST, find_asserted
from earnest.rewards.number import Format, number, read_number

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
GSM8K = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k"


def value(text, gold, **options):
    score = number(**options)(text, answer=gold)
    assert score.status == "scored", score.reasons
    return score.value


def reason(text, gold, **options):
    return " ".join(number(**options)(text, answer=gold).reasons)


RIGHT = [
    # positive controls
    ("1/2", 0.5), ("0.5", "1/2"), ("\\frac12", "1/2"), ("\\frac12", 0.5), ("\\frac{1}{2}", "0.5"), ("\\dfrac{1}{2}", "0.5"),
    ("1,000", 1000), ("1000", "1,000"), ("\u22125", -5), ("-5", "\u22125"), ("42.", 42), ("x = 5", 5), ("42\r\n", 42),
    ("42\n\nHope this helps!", 42), ("42. I hope this helps!", 42), ("\\boxed{42}\r\n\r\nLet me know if you have questions.", 42),
    ("Answer: 42\nHave a nice day!", 42), ("The answer is 41. Wait, that is wrong. The answer is 42.", 42),
    ("I first got 41, which is wrong. The answer is 42.", 42), ("#### 41\nI made a mistake.\n#### 42", 42),
    ("\\boxed{41}. Wait, I forgot one, so it is \\boxed{42}.", 42),
    # S-MV-01
    ("so \\boxed{57}. Checking again.\n**Final Answer**\n\n\\boxed{57}", 57), ("\\boxed{57} and again \\boxed{57}", 57),
    # S-MV-08
    ("$\\text{17}$", 17), ("\\boxed{\\text{17}}", "$17$"), ("\\boxed{\\mathrm{17}}", "17"), ("17", "\\text{17}"),
    # S-MV-09
    ("... 437 + 2*234 = 905\nFinal Answer: **73**", 73), ("Final Answer: __73__", 73), ("Final Answer: `73`", 73),
    ("Final Answer: **73.**", 73), ("**Answer:** 73", 73), ("**Answer: 73**", 73), ("## Final Answer\n73", 73),
    # S-MV-10
    ("28 %", "28\\%"), ("28 percent", "28\\%"), ("\\boxed{28 pct}", "28\\%"), ("0.28", "28\\%"), ("28%", 0.28), ("\\boxed{28}\\%", "28%"),
    # S-MV-13
    ("\\boxed{$9{,}500}", 9500), ("\\boxed{8,000}", 8000), ("1,000.00", 1000), ("9,\\!500", "9500"), ("1,234,567.5", 1234567.5),
    # S-MV-14
    ("$29.00", 29), ("29.", 29), ("29.0", 29), ("USD 29", 29), ("29 USD", 29), ("-$5", -5), ("$-5", -5), ("\\$29", 29),
    # S-MV-15
    ("2+40=42\n#### 42\n" + "And so the whole of it has been added up here. " * 11, 42),
    # S-MV-18
    ("6", 6), ("6", "6"), ("\\boxed{6}", 6), ("6", 6.0), ("0.1", 0.1), ("0.3", 0.3),
    # S-CC-01 has this one on threads
    ("\\boxed{\\frac{1}{4}}", 0.25), ("\\boxed{\\frac14}", "0.25"), ("2 1/2", 2.5), ("2\\frac{1}{2}", "5/2"), ("-3/4", -0.75),
    (".5", 0.5),
    # places
    ("<answer>42</answer>", 42), ("<answer> \\boxed{42} </answer>", 42), ("The answer is $42$.", 42), ("#### \\boxed{42}", 42),
    ("So the final answer is: $\\boxed{42}$. I hope it is correct.", 42), ("\\[\n\\boxed{42}\n\\]", 42), ("$$\\boxed{42}$$", 42),
    ("So $x = \\boxed{42}$.", 42), ("- \\boxed{42}", 42), ("She sells \\(\\boxed{42}\\) eggs a day.", 42), ("\\boxed{42}!", 42),
    ("#### Step 1\nAdd 40 and 2.\n#### 42", 42), ("Since 3 does not divide it, the answer is \\boxed{42}.", 42),
    ("If she eats 3, she is left with 39, so the answer is 42.", 42), ("\\boxed{90}^\\circ", 90), ("\\implies\\boxed{42}", 42),
    ("$\\text{Answer: }\\boxed{42}$", 42),
    ("The answer is therefore 42.", 42), ("$\\boxed{42}$ is the final answer.", 42), ("\\boxed{42}\\text{ dollars}", 42),
    ("<think>Is it 41? Or 43? \\boxed{41}</think>\n42", 42), ("maybe 41</think>The answer is 42.", 42),
    ("It is one of 40, 41, 42, 43. The answer is 42.", 42), ("The answer to the question of 6 times 7 is 42.", 42),
    ("The number of students not wearing hats is \\boxed{42}.", 42), ("Not counting Tom, there are \\boxed{42}.", 42),
    # ordinary words around an answer, offers of help, headings, reasons, corrections, confirmations, other scripts
    ("Natalia sold 48+24 = \\boxed{72} clips altogether in April and May.", 72), ("So Janet would make $\\boxed{18}$ every day.", 18),
    ("The probability that it does not rain is \\boxed{\\frac25}.", 0.4), ("This can be written as \\boxed{\\frac12}.", 0.5),
    ("She earns \\boxed{34} if she sells everything.", 34), ("42\n\nLet me know if you have any questions!", 42),
    ("42. Would you like me to explain?", 42), ("\\boxed{42} Let me know if you need more", 42),
    ("The answer is 42. Feel free to ask if you have any other questions.", 42), ("\\boxed{42}. If you have questions, please ask.", 42),
    ("42\n\nPlease let me know if anything is not clear.", 42), ("The answer is:\n\n42", 42), ("The final answer is:\n**42**", 42),
    ("Final answer:\n$$\n42\n$$", 42), ("The answer is 42, because 6*7=42.", 42), ("**Final Answer**\n\n\\[\n42\n\\]", 42),
    ("The answer is\n\n42.", 42), ("The answer is 42 since 6*7 = 42.", 42), ("\\boxed{28} percent", "28%"), ("$\\boxed{28}$%", "28%"),
    ("$\\boxed{28}\\%$", "28%"), ("There are \\boxed{5} meters of rope.", 5),
    ("#### 1. Compute the cost\n6*7 = 42\n#### 2. Answer\n\\boxed{42}", 42), ("#### 1) First\nWe add.\n\n#### 2) Then\n\\boxed{42}", 42),
    ("#### 1. Compute the cost\n6*7 = 42\n#### 42", 42), ("The answer is 41. On second thought, the answer is 42.", 42),
    ("The answer is 41. I made an error. The answer is 42.", 42), ("The answer is 41. Let me recalculate. The answer is 42.", 42),
    ("The answer is 41. Let me double-check. The answer is 42.", 42), ("The answer is 41. I miscounted. The answer is 42.", 42),
    ("The answer is 41. I mean, the answer is 42.", 42), ("\\boxed{42}\n\nNo other values work.", 42),
    ("\\boxed{42}. Let me recheck: 40+2=42, correct.", 42), ("The answer is 42. 6*7 is actually 42.", 42),
    ("The answer is 42. The other 3 eggs would not be sold.", 42), ("\\frac{-1}{2}", -0.5), ("\\boxed{\\frac{-1}{2}}", -0.5),
    ("\\frac{1}{-2}", -0.5), ("-\\frac{-1}{2}", 0.5), ("答案是\\boxed{42}", 42), ("\\boxed{42}元", 42), ("所以答案是\\boxed{42}。", 42),
    ("The people who do not swim are 12-7 = \\boxed{5}.", 5), ("There are 20-4 = \\boxed{16} eggs that he won't use.", 16),
    ("Each of them could eat \\boxed{7} in March and in May", 7), ("In lowest terms that is written as $\\boxed{\\frac34}$.", 0.75),
    ("He writes 6*7 = \\boxed{42} letters.", 42), ("They should pay $\\boxed{42}$.", 42), ("42\n\nDon't hesitate to ask.", 42),
    ("42. Do you want another one?", 42), ("So, the final answer is:\n\n$42$", 42), ("My answer:\n\\[ 42 \\]", 42),
    ("Thus the answer is 42, since 42 is 6*7.", 42), ("#### 3. Result\nThe answer is 42.", 42),
    ("The answer is 41. Let me double-check. I misread it. The answer is 42.", 42), ("\\boxed{42}\n\nNo remainder is left.", 42),
    ("The answer is 42. Actually, to check: 84/2 = 42.", 42), ("答えは\\boxed{42}です。", 42), ("\\boxed{90^\\circ}", 90), ("90°", 90),
]  # fmt: skip


@pytest.mark.parametrize(("text", "gold"), RIGHT)
def test_an_asserted_right_number_gets_full_marks(text, gold):
    assert value(text, gold) == 1.0


WRONG = [
    # no work
    ("", 42), (" \n\t ", 42), ("\\boxed{}", 42), ("<answer></answer>", 42), ("####", 42), ("The answer is", 42),
    ("I'm sorry, I can't help", 42),
    ("What is $17*23$?", 391), ("# Answer\n- point\n[1]", 1), ("filler " * 8000, 42), ("<think></think>", 42), ("<think>\\boxed{42}", 42),
    ("<think>a</think>b</think>42", 42),
    # attacks on numbers
    ("40, 41, 42, 43, 44", 42), (", ".join(map(str, range(1, 101))), 42), ("\n".join(map(str, range(1, 101))), 42), ("142", 42),
    ("421", 42),
    ("The answer is definitely not 42", 42), ("The answer is definitely not 42.", 42), ("nan", 42), ("NaN", 0), ("inf", 42), ("44.1", 42),
    ("391 bananas", 391), ("5 feet", 5), ("5 m", 5), ("The answer is 42 apples.", 42),
    # attacks on maths
    ("\\boxed{17\\times 23}", 391), ("\\boxed{17*23}", 391), ("\\boxed{\\sum_{k=1}^{100}k}", 5050), ("17*23", 391), ("782/2", 391),
    ("\\boxed{\\frac{782}{2}}", 391), ("\\boxed{391+0}", 391), ("2/4", 0.5), ("\\frac{391}{1}", 391), ("17*23 = 391", 391),
    ("It is not \\boxed{391}.", 391), ("It isn't \\boxed{391}", 391), ("A user might write \\boxed{391}, but I disagree.", 391),
    ("\\boxed{390}\\boxed{391}", 391), ("\\boxed{391}\\boxed{390}", 391), ("0<x<100", 42), ("\\{41,42\\}", 42), ("\\pm 42", 42),
    ("[0, 100]", 42),
    ("\\boxed{10^{10^{10}}}", 42), ("not 42", 42), ("__import__('os').getpid()", 42), ("(open('x','w').write('x'),[])[1]", 42),
    # S-MV-01
    ("\\boxed{57} ... \\boxed{58}", 57),
    # S-MV-05, S-MV-06
    ("\\pm 7", 7), ("1:00", 1), ("12:00", 12), ("5x + 7y + 4=0", 0),
    # S-MV-10
    ("2800%", "28\\%"), ("28", "28\\%"), ("\\boxed{28}", "28\\%"), ("28%", 28), ("28%%", 0.0028),
    # S-MV-13, S-MV-20
    ("\\boxed{$9{,}500}", 500), ("10,00", 1000), ("1,00,0", 1000), ("1,5", 15), ("1,5", 1.5), ("1.200.000,50", 1200000.5),
    ("31.12.2027", 31122027),
    ("1,0000", 10000), ("01,000", 1000), ("1 000", 1000), ("31/12/2027", 31122027), ("2027-12-31", 20271231), ("1.000", 1000),
    # S-MV-14
    ("$29.50", 29), ("€29", 29), ("$29$30", 29), ("$29 USD", 29),
    # S-MV-19
    ("²", 2), ("5²", 25), ("１２", 12), ("٣", 3), ("Ⅳ", 4), ("½", 0.5), ("①", 1), ("1_000", 1000), ("0x2a", 42), ("4\u200b2", 42),
    ("42\x00", 42),
    ("1e999", 42), ("42e0", 42), ("9" * 5000, 42), ("0." + "0" * 5000, 0), ("--5", 5), ("-−5", 5),
    # what leaves an assertion open
    ("The answer is 42. The answer is 43.", 42), ("The answer is 42. The answer is 43.", 43), ("The answer is 42 or 43.", 42),
    ("The answer is either 42 or 43.", 42), ("The answer is maybe 42.", 42), ("Perhaps the answer is 42.", 42),
    ("I guess the answer is 42.", 42),
    ("I do not think the answer is 42.", 42), ("The answer might be 42.", 42), ("If it rains the answer is 42.", 42),
    ("The answer is 42?", 42),
    ("I am not sure, but the answer is 42.", 42), ("He said the answer is 42.", 42), ('He wrote "the answer is 42" there.', 42),
    ('"The answer is 42."', 42), ("> The answer is 42.", 42), ("The wrong answer is 42.", 42), ("The answer is 42. That is wrong.", 42),
    ("The answer is 42. No, wait.", 42), ("The answer is 42. It could also be 43.", 42), ("The answer is 42. Or 43.", 42),
    ("This is wrong:\n\\boxed{42}", 42), ("\\boxed{42} is not it.", 42), ("\\boxed{42} or \\boxed{42}, I do not know", 42),
    ("Not this: \\boxed{42}. Mine: \\boxed{43}", 42), ("Not this: \\boxed{42}. Mine: \\boxed{43}", 43), ("\\boxed{42}\n#### 43", 42),
    ("<answer>41</answer> <answer>42</answer>", 42), ("<answer>42</answer><answer>42</answer>", 42),
    ("<answer><answer>42</answer></answer>", 42),
    ("</answer>42<answer>", 42), ("<answer>42", 42), ("\\boxed{42", 42), ("\\boxed{\\boxed{42}}", 42), ("\\boxed{42} \\boxed{43", 42),
    # a box that is an operand
    ("-\\boxed{42}", 42), ("x = -\\boxed{42}", 42), ("1\\boxed{42}", 42), ("\\boxed{42}3", 42), ("\\boxed{42} \\times 3", 42),
    ("\\boxed{42}^2", 42),
    ("x \\neq \\boxed{42}", 42), ("x < \\boxed{42}", 42), ("\\frac{\\boxed{42}}{2}", 42), ("\\boxed{42} + 1", 42),
    ("2 \\cdot \\boxed{42}", 42),
    ("\\boxed{42} 000", 42), ("I doubt it is \\boxed{42}.", 42), ("I am not saying \\boxed{42}.", 42), ("It's not being \\boxed{42}.", 42),
    # the same words where they do doubt the answer
    ("It is not \\boxed{42}.", 42), ("A user might write \\boxed{42}, but I disagree.", 42),
    ("I do not think that \\boxed{42} is right", 42), ("I don't believe it is \\boxed{42}.", 42),
    ("The answer would be \\boxed{42} if it rained.", 42), ("It may be \\boxed{42}.", 42), ("It might be \\boxed{42}.", 42),
    ("It could be \\boxed{42}.", 42), ("One would think it is \\boxed{42}.", 42), ("Some would say \\boxed{42}.", 42),
    ("It should not be \\boxed{42}", 42), ("Someone who cannot count would write \\boxed{42}.", 42),
    ("The answer that I do not believe is \\boxed{42}.", 42), ("The value which is not right is \\boxed{42}.", 42),
    ("That it is \\boxed{42} is not true.", 42), ("The claim that it is \\boxed{42} is false.", 42),
    ("It is \\boxed{42} if you guess.", 42), ("\\boxed{42} would be wrong.", 42), ("\\boxed{42} is what a fool would say.", 42),
    ("The wrong answer is written as \\boxed{42}.", 42), ("He has written \\boxed{42}.", 42), ("42. If it rains", 42), ("42. Or not", 42),
    ("42. Please note that this is wrong", 42), ("42. Let me know if this is wrong, it may be 43", 42), ("42. Would you like 43?", 42),
    ("42. Feel free to disagree.", 42), ("42. If you disagree, 43.", 42), ("42. Please ignore that.", 42), ("\\boxed{28} percent", 28),
    ("$\\boxed{28}$%", 28), ("\\boxed{28\\%} percent", 28), ("The answer is 41. The answer is 42.", 42),
    ("The answer is 42. The answer is 41. Wait, hmm.", 42), ("The answer is 42. Let me recheck.", 42),
    ("\\boxed{42}. Actually it is 43.", 42), ("The answer is 42. Actually, 43.", 42), ("\\boxed{42}\n\nNo, that is wrong.", 42),
    ("\\boxed{42}\n\nNo.", 42), ("The answer is 42. It would be 43.", 42), ("The answer is 42. The other answer would be 43.", 42),
    ("The answer is 42, because I guess.", 42), ("The answer is 42, because it is not 43 or maybe it is.", 42), ("x\\boxed{42}", 42),
    ("\\boxed{42}a", 42), ("The answer is:\n\n42 or 43", 42), ("The answer is:\n\n42\n\n43", 43), ("The answer is not:\n\n42", 42),
    ("The wrong answer is:\n\n42", 42), ("The answer is 42. I made an error.", 42), ("\\boxed{42}. On second thought, no.", 42),
    ("\\boxed{42} definitely not", 42), ("\\boxed{42} of course not", 42), ("\\boxed{42} eggs is not right", 42),
    ("\\boxed{42} certainly isn't it", 42), ("\\boxed{42} if you like", 42), ("The answer is 42 as well as 43.", 42), ("42\nor\n43", 42),
    ("The answer is:\n42\nor\n43", 42), ("\\boxed{42}\nor\n43", 42), ("The answer is:\n42\n43", 42),
    ("The answer is 42. Wait, 42. That is wrong.", 42), ("The answer is 42. Wait, it is not 42.", 42),
    ("It could have been \\boxed{42}", 42), ("不是\\boxed{42}", 42), ("\\boxed{42}万", 42), ("The answer is 42. Nope.", 42),
    ("The number that is wrong is \\boxed{42}.", 42), ("I know that it never is \\boxed{42}", 42),
    ("42. Let me know if I made a mistake.", 42),
]  # fmt: skip


@pytest.mark.parametrize(("text", "gold"), WRONG)
def test_everything_else_gets_what_a_wrong_number_gets(text, gold):
    assert value("The answer is 123456.", gold) == 0.0, "an honest wrong answer"
    assert value(text, gold) == 0.0


@pytest.mark.parametrize("place", ["any", "box", "tag", "marker", "sentence", "whole"])
@pytest.mark.parametrize(
    ("form", "own"),
    [("\\boxed{%s}", "box"), ("<answer>%s</answer>", "tag"), ("#### %s", "marker"), ("The answer is %s.", "sentence"), ("%s", "whole")],
)
def test_only_the_declared_place_counts(place, form, own):
    assert value(form % 42, 42, place=place) == float(place in ("any", own))
    assert value(form % 41, 42, place=place) == 0.0


def test_a_declared_place_ignores_the_others():
    assert value("\\boxed{41} is a step.\n#### 42", 42, place="marker") == 1.0
    assert value("\\boxed{41} is a step.\n#### 42", 41, place="marker") == 0.0
    assert value("A: 42", 42, place="marker", marker="A:") == 1.0


def test_the_last_number_counts_only_where_that_is_asked_for():  # S-MV-12
    for text in ("The total is 72 clips, altogether.", "72, in all, so done.", "3 and -4, so 72"):
        assert value(text, 72) == 0.0
        assert value(text, 72, place="last") == 1.0
    assert value("72 becomes 73, done", 72, place="last") == 0.0
    assert value("x72 and 1,2,72a", 72, place="last") == 0.0
    assert value("of 1,000.", 1000, place="last") == 1.0


@pytest.mark.parametrize(
    ("text", "gold", "options", "expected"),
    [
        # units (num.units): any name of the declared unit, nothing else
        ("5 m", 5, {"units": ("m", "metres")}, 1.0), ("5 metres", "5 m", {"units": ("m", "metres")}, 1.0),
        ("5", "5 m", {"units": ("m",)}, 1.0),
        ("5m", 5, {"units": ("m",)}, 1.0), ("5 feet", "5 m", {"units": ("m",)}, 0.0), ("5 mm", 5, {"units": ("m",)}, 0.0),
        ("5", 5, {"units": ("m",), "unit_required": True}, 0.0), ("5 m", 5, {"units": ("m",), "unit_required": True}, 1.0),
        ("\\boxed{5\\text{ m}}", 5, {"units": ("m",)}, 1.0), ("5 \\mathrm{m}", 5, {"units": ("m",)}, 1.0),
        ("m", 5, {"units": ("m",)}, 0.0),
        # currency
        ("€29", 29, {"currency": ("€", "EUR")}, 1.0), ("29 EUR", 29, {"currency": ("€", "EUR")}, 1.0),
        ("29€", 29, {"currency": ("€",)}, 1.0),
        ("$29", 29, {"currency": ("€", "EUR")}, 0.0), ("$29", 29, {"currency": ()}, 0.0), ("€29", 29, {"currency": ()}, 0.0),
        ("$29$", 29, {"currency": ()}, 1.0),
        # percent as the unit (S-MV-10)
        ("28", 28, {"percent": True}, 1.0), ("28%", 28, {"percent": True}, 1.0), ("28 percent", "28%", {"percent": True}, 1.0),
        ("28", "28%", {"percent": True}, 1.0), ("\\boxed{28}", "28%", {"percent": True}, 1.0), ("0.28", "28%", {"percent": True}, 0.0),
        # European form (S-MV-20)
        ("1,5", 1.5, {"decimal": ","}, 1.0), ("1.200.000,50", 1200000.5, {"decimal": ","}, 1.0),
        ("31.12.2027", 31122027, {"decimal": ","}, 0.0),
        ("1,5", 15, {"decimal": ","}, 0.0), ("1.5", 1.5, {"decimal": ","}, 0.0), ("1.5", 15, {"decimal": ","}, 0.0),
        # exponents
        ("1.5e3", 1500, {"scientific": True}, 1.0), ("$1.5 \\times 10^{3}$", 1500, {"scientific": True}, 1.0), ("1.5e3", 1500, {}, 0.0),
        ("15*10^2", 1500, {"scientific": True}, 1.0), ("1e999", 5, {"scientific": True}, 0.0), ("1e-3", 0.001, {"scientific": True}, 1.0),
        ("-2x10^{-2}", -0.02, {"scientific": True}, 1.0),
        # a unit or per cent behind a box is a part of it; "last" takes whole fractions
        ("\\boxed{5} m", 5, {"units": ("m",), "unit_required": True}, 1.0), ("The length is $\\boxed{5}$ m.", 5, {"units": ("m",)}, 1.0),
        ("\\boxed{5}\\text{ m}", 5, {"units": ("m",), "unit_required": True}, 1.0), ("\\boxed{5} m", 5, {"units": ("m",)}, 1.0),
        ("The answer is 3/4.", 0.75, {"place": "last"}, 1.0), ("The answer is \\frac{3}{4}.", 0.75, {"place": "last"}, 1.0),
        ("The length is \\boxed{5} feet.", "5 m", {"units": ("m",)}, 0.0), ("\\boxed{5} feet", 5, {"units": ("m",)}, 0.0),
        ("\\boxed{5}", 5, {"units": ("m",), "unit_required": True}, 0.0), ("\\boxed{5}$ cm", 5, {"units": ("m",)}, 0.0),
        ("\\boxed{5}\\text{ cm}", 5, {"units": ("m",)}, 0.0), ("The answer is 1/72.", 72, {"place": "last"}, 0.0),
        ("72/1", 72, {"place": "last"}, 0.0), ("3/4", 3, {"place": "last"}, 0.0), ("3/4", 4, {"place": "last"}, 0.0),
        ("\\frac{1}{72}", 72, {"place": "last"}, 0.0),
    ],
)  # fmt: skip
def test_what_an_option_declares(text, gold, options, expected):
    assert value(text, gold, **options) == expected


@pytest.mark.parametrize(
    ("text", "gold", "options", "expected"),
    [
        ("0.1", 0.1, {}, 1.0), ("0.1000000001", 0.1, {}, 0.0),
        # num.tolerance: on the scale of the reference
        ("44.1", 42, {"relative": 0.05}, 1.0), ("44.11", 42, {"relative": 0.05}, 0.0), ("39.9", 42, {"relative": 0.05}, 1.0),
        ("1050001", 1000000, {"relative": 0.05}, 0.0), ("1050000", 1000000, {"relative": 0.05}, 1.0),
        ("-42", 42, {"relative": 0.05}, 0.0),
        ("0.001", 0, {"relative": 0.5}, 0.0), ("0.001", 0, {"absolute": 0.001}, 1.0), ("0.0011", 0, {"absolute": 0.001}, 0.0),
        # S-MV-03: what is near zero is not zero
        ("0.000000000002", 1e-12, {}, 0.0), ("0.000000000002", 1e-12, {"relative": 1e-6}, 0.0), ("0", 1e-12, {"relative": 1e-6}, 0.0),
        # S-MV-18
        ("1/3", 0.3333333333, {"relative": 1e-6}, 1.0), ("1/3", 0.3333333333, {}, 0.0), ("nan", 42, {"relative": 1e300}, 0.0),
    ],
)  # fmt: skip
def test_a_tolerance_is_met_or_not(text, gold, options, expected):
    assert value(text, gold, **options) == expected


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), st.sampled_from([0.0, 1e-6, 0.05, 0.5]))
def test_the_tolerance_is_that_of_the_definition_for_integers(gold, answer, relative):
    assert value(str(answer), gold, relative=relative) == float(abs(answer - gold) <= Fraction(relative) * abs(gold))


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=5))
def test_every_way_of_writing_a_number_is_that_number(decimal):
    plain = f"{decimal:f}"
    for written in (plain, f"{decimal:,f}", plain.replace("-", "\u2212"), f"${plain}$", f"\\boxed{{{plain}}}", f"**{plain}**"):
        assert value(written, plain) == 1.0
    assert read_number(plain) == Fraction(plain)
    assert read_number(f"{decimal:,f}".translate(str.maketrans(",.", ".,")), Format(decimal=",")) == Fraction(plain)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_a_fraction_is_read_in_lowest_terms_only(top, bottom):
    sign, size = ("-" if top < 0 else ""), abs(top)
    lowest = bottom > 1 and math.gcd(top, bottom) == 1
    for written in (f"{top}/{bottom}", f"{sign}\\frac{{{size}}}{{{bottom}}}"):
        assert read_number(written) == (Fraction(top, bottom) if lowest else None)
        assert read_number(written, reduced=False) == Fraction(top, bottom)


@pytest.mark.parametrize("gold", ["see appendix", "", "nan", math.nan, math.inf, True, [], {}, "12 or 13", "5 m", "1/0", "#### many"])
@pytest.mark.parametrize("text", ["12", "banana", "", "True", "see appendix"])
def test_a_reference_that_is_no_number_is_an_invalid_task_and_never_a_score(gold, text):  # S-MV-17
    score = number()(text, answer=gold)
    assert (score.value, score.status) == (None, "invalid_task")
    assert "not a number" in score.reasons[0]


def test_a_row_without_the_column_is_an_invalid_task():
    assert number("target")("42", answer=42).status == "invalid_task"


@pytest.mark.parametrize(
    "options",
    [{"relative": -1}, {"relative": math.nan}, {"absolute": math.inf}, {"place": "first"}, {"decimal": "_"}, {"unit_required": True}],
)
def test_an_option_that_means_nothing_is_refused_at_once(options):
    with pytest.raises(UserError):
        number(**options)


def test_reasons_say_what_is_missing():
    assert "differ" in reason("\\boxed{1}\\boxed{2}", 1)
    assert "negated" in reason("It is not \\boxed{1}.", 1)
    assert "take the answer back" in reason("The answer is 1. Sorry, that is wrong.", 1)
    assert "no answer" in reason("hello", 1)
    assert "another number" in reason("2", 1)


PIECES = [
    "42", "-", "−", "\\boxed{", "}", "{", "\\frac", "#### ", "\n", " ", "The answer is ", "<answer>", "</answer>", "<think>", "</think>",
    "$", "%",
    "\\", ".", ",", "not ", "1/2", "e9", "**", "`", "(", ")", "=", "?", "\r", "\x00", "\ud800", "²", "answer", "wait", '"', "\\text{",
    "41", "x = ", "or ",
]  # fmt: skip


@settings(max_examples=600 * FUZZ)
@given(
    st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.sampled_from(["any", "last", "whole", "box", "tag"]),
)
@example("\ud800" * 5, "any")
def test_no_text_raises_and_every_score_is_nought_or_one(text, place):
    score = number(place=place, units=("m",), scientific=True)(text, answer=42)
    assert (score.status, score.value in (0.0, 1.0)) == ("scored", True)
    json.dumps([score.reasons, dict(score.evidence)]).encode()


@settings(max_examples=300 * FUZZ)
@given(st.sampled_from([text for text, _ in RIGHT]), st.randoms(use_true_random=False))
def test_no_mutation_of_a_right_answer_raises(text, random):
    data = bytearray(text.encode())
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data))
        data[at : at + random.randint(0, 2)] = bytes(random.choices(range(256), k=random.randint(0, 3)))
        data = data or bytearray(b"0")
    score = number()(data.decode("utf-8", "replace"), answer=42)
    assert score.value in (0.0, 1.0)


@pytest.mark.parametrize(
    "unit",
    ["answer ", "answer=", " ", "*", "$", "\n", "9", "\\boxed{1}", "\\boxed{", "<answer>", "#### 1\n", "(not ", "1,", "it 1 ", ". ",
    "answer is 1. ", "\\text{",
     "{", "- ", "1/", "\\frac", "wait 42.5\n", "write 1", "that is ", "If you have ", "not doing ", "that it could 1 = ", "because "],
)  # fmt: skip
def test_long_texts_of_one_kind_take_no_longer_than_their_length(unit):
    import time

    begins = ["", "The answer is ", "answer ", "#### ", "\\text{"]
    for text in [begin + unit * ((LONGEST - 100) // len(unit)) + end for begin in begins for end in ("", "\\boxed{42}")]:
        began = time.process_time()
        assert number()(text, answer=42.5).value == 0.0
        assert time.process_time() - began < 2.0


def test_a_text_beyond_all_bounds_is_not_looked_at():
    assert find_asserted("1" * (LONGEST + 1), float).reason == "the text is too long"


def mutants(gold, dice):
    """Numerals that are near the gold answer and not equal to it: digit, sign, one more, one less, a digit more or less."""
    digits = gold.replace(",", "").lstrip("-")
    sign = "-" if gold.startswith("-") else ""
    at = dice.randrange(len(digits))
    other = dice.choice([d for d in "0123456789" if d != digits[at]])
    size = int(sign + digits)
    texts = [
        sign + digits[:at] + other + digits[at + 1 :],
        str(size + 1),
        str(size - 1),
        str(-size),
        sign + digits + "0",
        f"{sign}{digits}.5",
    ]
    return [text for text in [*texts, sign + digits[:-1]] if text.strip("-") and Fraction(text) != size]


@pytest.mark.skipif(not GSM8K.exists(), reason="the shared data are not here")
def test_gold_answers_of_gsm8k_are_right_and_mutated_ones_are_not():
    dice = random.Random(0)
    rows = [json.loads(line) for line in (GSM8K / "test.jsonl").open()]
    with gzip.open(GSM8K / "train.jsonl.gz", "rt") as lines:
        rows += [json.loads(line) for line in lines]
    marked, anywhere = number(place="marker"), number()
    for row in dice.sample(rows, min(len(rows), 400 * FUZZ)):
        work, _, gold = row["answer"].rpartition("#### ")
        assert marked(row["answer"], row).value == 1.0
        for text in (f"{work}\nThe answer is {gold}.", f"{work}\\boxed{{{gold}}}", gold):
            assert anywhere(text, row).value == 1.0, text
        for wrong in mutants(gold, dice):
            assert marked(f"{work}#### {wrong}", row).value == 0.0, wrong
            assert anywhere(f"\\boxed{{{wrong}}}", row).value == 0.0, wrong


@pytest.mark.skipif(not GSM8K.exists(), reason="the shared data are not here")
def test_a_box_in_the_last_sentence_of_real_solutions_is_hardly_ever_doubted():
    refused = total = 0
    for row in map(json.loads, (GSM8K / "test.jsonl").open()):
        work, _, gold = re.sub(r"<<.*?>>", "", row["answer"]).rpartition("#### ")
        numerals = list(re.finditer(r"\d(?:[\d,.]*\d)?", work))
        at = numerals[-1].span() if numerals else (0, 0)
        if work[slice(*at)] == gold and "\n" not in work[at[1] :].strip() and "%" not in work[at[1] : at[1] + 2]:
            total += 1
            refused += value(f"{work[: at[0]]}\\boxed{{{gold}}}{work[at[1] :]}", gold) == 0.0
    assert total > 1000 and refused <= 0.01 * total


def test_the_reward_reads_a_box_without_being_given_a_parser():  # S-RP-14
    assert value("so \\boxed{12}", "12") == 1.0
    assert value("so \\boxed{13}", "12") == 0.0
