"""Rewards written for other libraries, called and audited as they are."""

import asyncio
import json
import re
import textwrap
import time
from dataclasses import dataclass
from fractions import Fraction

import pytest

from earnest import Task, UserError
from earnest.cli import run_command
from earnest.evidence import Case
from earnest.redteam import ask
from earnest.redteam.adapters import task_of
from earnest.redteam.ask import Asker
from earnest.redteam.attack import Attack
from earnest.redteam.attacks import crash, nowork, number, words
from earnest.redteam.attacks import right as controls
from earnest.redteam.attacks.numerals import numeral_of
from earnest.redteam.audit import audit
from earnest.redteam.leeway import leeway
from earnest.redteam.shapes import as_trl, gold_of, shape_of
from earnest.redteam.targets import targets_of
from earnest.rows import load_rows
from earnest.score import score

CITIES = ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Quito"]
ROWS = [{"id": f"r{i}", "question": f"Which city is number {i}?", "answer": city} for i, city in enumerate(CITIES)]


def earned(function, text, row, gold=None):
    """What one answer to one row earns, through the same door as in training."""
    ask = [{"role": "user", "content": row.get("question", "?")}]
    return score([as_trl(function, gold)], [1.0], [ask], [[{"role": "assistant", "content": text}]], [row]).total[0]


# verl


def verl_exact(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"#### (.+)", solution_str)
    return {"score": float(bool(found) and found[-1] == ground_truth), "acc": bool(found)}


def test_a_verl_score_reads_the_nested_gold_and_the_score_of_its_dict():
    row = {"data_source": "mine", "reward_model": {"style": "rule", "ground_truth": "42"}, "extra_info": {"index": 0}}
    assert earned(verl_exact, "so #### 42", row) == 1.0
    assert earned(verl_exact, "so #### 41", row) == 0.0


def test_verl_passes_source_and_extra_info():
    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        return {"mine": 1.0}[data_source] * extra_info["index"]

    assert earned(compute_score, "x", {"data_source": "mine", "ground_truth": "x", "extra_info": {"index": 3}}) == 3.0


def test_a_verl_score_of_a_whole_batch():
    def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
        return [float(s == g) for s, g in zip(solution_strs, ground_truths, strict=True)]

    completions = [[{"role": "assistant", "content": t}] for t in ("Rome", "Oslo")]
    assert as_trl(compute_score)(completions=completions, answer=["Rome", "Rome"]) == [1.0, 0.0]


# verifiers


def messages_exact(completion, answer):
    return 1.0 if completion[-1]["content"].strip() == answer else 0.0


async def with_parser(parser, completion, answer, **kwargs):
    return float(parser.parse_answer(completion) == answer)


def of_state(state, info):
    return float(state["completion"][-1]["content"] == state["answer"]) * info["weight"]


def crashing(completion, answer, state):
    return float(json.loads(completion[-1]["content"]) == answer)


def test_a_verifiers_function_gets_messages():
    assert earned(messages_exact, "Rome", {"answer": "Rome"}) == 1.0
    assert earned(messages_exact, "Oslo", {"answer": "Rome"}) == 0.0


def test_a_verifiers_function_may_be_async_and_ask_for_a_parser():
    assert earned(with_parser, "<think>so</think><answer>Rome</answer>", {"answer": "Rome"}) == 1.0
    assert earned(with_parser, "<answer>Oslo</answer>", {"answer": "Rome"}) == 0.0


def test_a_verifiers_function_may_ask_for_state_and_info():
    assert earned(of_state, "Rome", {"answer": "Rome", "info": {"weight": 0.5}}) == 0.5


def test_what_raises_in_verifiers_counts_zero_as_it_does_there():
    assert earned(crashing, "not JSON", {"answer": "Rome"}) == 0.0
    assert earned(crashing, '"Rome"', {"answer": "Rome"}) == 1.0


def test_a_rubric_sums_its_functions_by_their_weights():
    class Rubric:
        funcs, weights = [messages_exact, with_parser], [1.0, 0.25]

    assert earned(Rubric(), "Rome", {"answer": "Rome"}) == 1.25
    assert earned(Rubric(), "<answer>Rome</answer>", {"answer": "Rome"}) == 0.25


def test_a_rubric_hands_its_own_parser_on():
    class Upper:
        def parse_answer(self, completion):
            return completion[-1]["content"].upper()

    class Rubric:
        funcs, weights, parser = [with_parser], [1.0], Upper()

    assert earned(Rubric(), "rome", {"answer": "ROME"}) == 1.0


def test_an_environment_stands_for_its_rubric():
    class Rubric:
        funcs, weights = [messages_exact], [1.0]

    class Environment:
        rubric = Rubric()

    def load_environment():
        return Environment()

    assert earned(load_environment, "Rome", {"answer": "Rome"}) == 1.0


# OpenEnv


class Exact:
    def forward(self, action, observation):
        return float(action.content == observation.answer)

    def __call__(self, action, observation):
        return self.forward(action, observation)


@pytest.mark.parametrize("rubric", [Exact(), Exact], ids=["object", "class"])
def test_an_openenv_rubric_gets_action_and_observation(rubric):
    assert earned(rubric, "Rome", {"answer": "Rome"}) == 1.0
    assert earned(rubric, "Oslo", {"answer": "Rome"}) == 0.0


def test_an_openenv_action_is_a_text_too():
    def rubric(action, observation):
        return float(action.strip() == observation.metadata["answer"] and observation.done)

    assert earned(rubric, " Rome", {"answer": "Rome"}) == 1.0


# Inspect


@dataclass
class Score:
    value: object
    answer: str = ""


async def includes(state, target):
    return Score("C" if target.text in state.output.completion else "I")


def grades():
    async def score(state, target):
        wanted = list(target)
        return Score({wanted[0]: 1, "half": "P", "none": "N", "nan": float("nan")}.get(state.output.completion, 0))

    return score


def test_an_inspect_score_of_letters_is_a_number():
    assert earned(includes, "It is Rome", {"target": "Rome"}) == 1.0
    assert earned(includes, "It is Oslo", {"target": "Rome"}) == 0.0


@pytest.mark.parametrize(("text", "value"), [("Rome", 1.0), ("half", 0.5), ("none", 0.0)])
def test_an_inspect_scorer_that_returns_the_function(text, value):
    assert earned(grades, text, {"target": ["Rome", "Roma"]}) == value


def test_an_unscored_inspect_score_is_no_verdict():
    assert str(earned(grades, "nan", {"target": "Rome"})) == "nan"


def test_an_inspect_state_holds_the_question_and_the_row():
    async def score(state, target):
        return Score(float(state.input == state.messages[0].text == "Where?" and state.metadata["level"] == 3))

    assert earned(score, "x", {"target": "y", "question": "Where?", "level": 3}) == 1.0


# plain


@pytest.mark.parametrize(
    "function",
    [
        lambda completion, answer: float(completion.strip() == answer),
        lambda response, reference: float(response == reference),
        lambda prediction, gold: float(prediction == gold),
        lambda ground_truth, output: float(ground_truth == output),
        lambda answer, expected: float(answer == expected),
        lambda response, row: float(response == row["answer"]),
        lambda question, response, answer: float(response == answer and question == "?"),
        lambda response, answer: (float(response == answer), "why"),
    ],
)
def test_plain_functions_of_two_texts_are_told_apart_by_their_names(function):
    assert earned(function, "Rome", {"answer": "Rome"}) == 1.0
    assert earned(function, "Oslo", {"answer": "Rome"}) == 0.0


def test_an_exception_of_a_plain_function_is_not_hidden():
    def strict(completion: str, answer: str) -> float:
        return float(completion[5] == answer)

    with pytest.raises(UserError, match="raised IndexError"):
        earned(strict, "x", {"answer": "x"})


def test_a_trl_function_is_left_alone():
    def exact(completions, answer, **kwargs):
        return [1.0]

    assert as_trl(exact) is exact


@pytest.mark.parametrize("function", [lambda a, b: 1.0, lambda completion, colour: 1.0, lambda gold: 1.0])
def test_an_unknown_shape_is_refused_with_the_known_ones(function):
    assert shape_of(function) == ""
    with pytest.raises(UserError, match=r"verl: compute_score\(data_source") as error:
        as_trl(function)
    assert "Inspect" in str(error.value) and "verifiers" in str(error.value)


def test_a_dotted_column_leads_into_nested_values():
    assert gold_of({"a": {"b": {"c": 5}}}, "a.b.c") == 5
    assert gold_of({"a": 3}, "a.b") is None


def test_async_marks_come_in_order():
    async def slow(completion, answer, state):
        await asyncio.sleep(0.02 if answer == "a" else 0)
        return {"a": 1.0, "b": 2.0}[answer]

    said = [[{"role": "assistant", "content": "x"}]] * 2
    assert asyncio.run(as_trl(slow)(completions=said, answer=["a", "b"])) == [1.0, 2.0]


# A task from a function and a file of rows


def project(tmp_path, source, rows=ROWS, name="mine.py"):
    (tmp_path / name).write_text(textwrap.dedent(source))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / name), str(tmp_path / "rows.jsonl")


def audited(task):
    return audit(task, load_rows(task), search_calls=0, catalog=nowork.ATTACKS)


@pytest.mark.parametrize(
    ("pays", "oracle"),
    [
        ("response.strip() == answer", "Rome"),
        (r"re.findall(r'\\boxed\{(.*?)\}', response)[-1:] == [answer]", "\\boxed{Rome}"),
        ("re.findall('<answer>(.*?)</answer>', response)[-1:] == [answer]", "<answer>Rome</answer>"),
        (
            "re.fullmatch('<think>.*</think><answer>(.*)</answer>', response or '') and answer in response",
            "<think></think><answer>Rome</answer>",
        ),
        ("response.partition('#### ')[2] == answer", "#### Rome"),
        ("response == f'The answer is {answer}.'", "The answer is Rome."),
        ("response[:1] == '{' and json.loads(response).get('answer') == answer", '{"answer": "Rome"}'),
        ("'```python' in response and answer in response", "```python\nRome\n```"),
    ],
)
def test_the_form_that_earns_the_most_is_found(tmp_path, pays, oracle):
    source = f"import json, re\n\ndef reward(response, answer):\n    return 1.0 if {pays} else 0.0\n"
    where, rows = project(tmp_path, source)
    task = task_of(where, rows)
    row = load_rows(task).split("train")[1]
    assert task.oracle(row) == oracle
    assert task.check(oracle, row).correct
    assert not task.check(oracle.replace("Rome", "Oslo"), row).correct
    assert not task.check("", row).correct


def test_a_gold_that_is_an_object_is_asked_for_as_json(tmp_path):
    rows = [{"question": "?", "label": {"kind": kind, "n": n}} for n, kind in enumerate("abcd")]
    source = "import json\ndef reward(response, label):\n    return float(json.loads(response or 'null') == label)\n"
    task = task_of(*project(tmp_path, source, rows))
    row = load_rows(task).split("train")[2]
    assert json.loads(task.oracle(row)) == {"kind": "c", "n": 2}
    assert task.check('{"n": 2.0, "kind": "c"}', row).correct
    assert not task.check('{"n": 3, "kind": "c"}', row).correct
    assert not task.check('{"n": true, "kind": "c"}', row).correct
    assert task.check('{"n": 2, "kind": "c"} so there', row).well_formed is False


def test_the_answer_behind_the_hashes_of_a_solution_is_the_gold(tmp_path):
    rows = [{"question": f"{n} + 1?", "answer": f"Add one to {n}.\n#### {n + 1}"} for n in range(5)]
    source = "def reward(response, answer):\n    return float(response.strip() == answer.split('#### ')[1])\n"
    task = task_of(*project(tmp_path, source, rows))
    assert task.oracle(load_rows(task).split("train")[3]) == "4"


def test_the_check_evens_out_numbers_and_lets_reasoning_stand_before_a_tag(tmp_path):
    rows = [{"question": "?", "answer": str(n)} for n in (1000, 2, 3)]
    source = "def reward(response, answer):\n    return float(f'<answer>{answer}</answer>' in response)\n"
    task = task_of(*project(tmp_path, source, rows))
    row = load_rows(task).split("train")[0]
    for right in ("<answer>1,000</answer>", "I add. <answer> 1000.0 </answer>\n"):
        assert task.check(right, row).correct, right
    for wrong in ("<answer>1000</answer><answer>7</answer>", "1000", "<answer>1000</answer> or 7", "<answer>not 1000</answer>"):
        assert not task.check(wrong, row).correct, wrong


def test_words_may_stand_around_a_box_and_nothing_before_a_form_that_opens_with_a_tag(tmp_path):
    where, rows = project(
        tmp_path, "def reward(response, answer):\n    return float(answer in response)\n", [{"question": "?", "answer": "1/{2}"}]
    )
    boxed, tagged = task_of(where, rows, form="\\boxed{}"), task_of(where, rows, form="<think>so</think><answer>{}</answer>")
    row = load_rows(boxed).split("train")[0]
    for right in ("\\boxed{1/{2}}", "I add. $\\boxed{ 1/{2}}$.", "\\boxed{1/{2}} is it"):
        assert boxed.check(right, row).correct, right
    for wrong in ("1/{2}", "\\boxed{1/{2}", "\\boxed{1/{2}}^2", "\\boxed{3}\\boxed{1/{2}}", "\\boxed{1}/{2}"):
        assert not boxed.check(wrong, row).correct, wrong
    assert tagged.check("<think>other words</think>\n<answer>1/{2}</answer>", row).correct
    assert not tagged.check("Hello <think>so</think><answer>1/{2}</answer>", row).correct


def test_a_form_that_is_given_is_taken(tmp_path):
    where, rows = project(tmp_path, "def reward(response, answer):\n    return float(answer in response)\n")
    task = task_of(where, rows, form="My \\boxed{}")
    assert task.oracle(load_rows(task).split("train")[0]) == "My \\boxed{Paris}"
    with pytest.raises(UserError, match="where the answer goes"):
        task_of(where, rows, form="no hole")


def test_a_function_that_names_a_nested_column_gets_it_whole(tmp_path):
    rows = [{"question": "?", "gold": {"city": city, "sure": True}} for city in CITIES]
    where, file = project(tmp_path, "def reward(response, gold):\n    return float(response == gold['city'])\n", rows)
    task = task_of(where, file, gold="gold.city")
    assert task.oracle(load_rows(task).split("train")[0]) == CITIES[0]


def test_rows_without_a_right_answer_are_left_aside(tmp_path):
    rows = [{"question": f"{i}?", "answer": city if i % 2 else None} for i, city in enumerate(CITIES * 2)]
    where, file = project(tmp_path, "def reward(response, answer):\n    return float(response == answer)\n", rows)
    task = task_of(where, file)
    assert [task.oracle(row) == (row["answer"] or "") for _, row in load_rows(task).everything()] == [True] * len(rows)
    report = audited(task)
    assert report.rows[1] == len(rows) // 2 and not report.exploitable


@pytest.mark.parametrize("column", ["also", "accepted_names", "aliases"])
@pytest.mark.parametrize("inner", [False, True])
def test_further_golds_are_known_by_the_name_of_their_list(column, inner, tmp_path):
    others = {column: ["the eternal city"]}
    rows = [{"question": f"{i}?", "answer": "Rome", **({"info": others} if inner else others)} for i in range(3)]
    task = task_of(*project(tmp_path, "def reward(response, answer):\n    return float(response == answer)\n", rows))
    cases = [Case("", "train", row, task.prompt(row), None, "Rome", None) for row in rows]
    with Asker(task, cases) as asker:
        assert targets_of(task, cases, [0], asker, tmp_path)[0].accepted == ["the eternal city"]


def test_several_right_answers_are_all_accepted(tmp_path):
    rows = [{"question": "?", "answers": [city, city.upper()]} for city in CITIES]
    source = "def reward(response, answers):\n    return float(response in answers)\n"
    task = task_of(*project(tmp_path, source, rows))
    row = load_rows(task).split("train")[1]
    assert (task.oracle(row), task.check("ROME", row).correct, task.check("Oslo", row).correct) == ("Rome", True, False)


def test_prompts_come_from_messages_text_or_several_columns(tmp_path):
    where, rows = project(tmp_path, "def reward(response, answer):\n    return float(response == answer)\n")
    row = load_rows(task_of(where, rows)).split("train")[0]
    assert task_of(where, rows).prompt(row) == [{"role": "user", "content": "Which city is number 0?"}]
    assert task_of(where, rows, prompt=["question", "id"]).prompt(row)[0]["content"] == "Which city is number 0?\n\nr0"
    told = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    assert task_of(where, rows).prompt({"question": told})[-1]["content"] == "u"


def test_what_cannot_be_guessed_is_asked_for(tmp_path):
    exact = "def reward(response, **row):\n    return 0.0\n\ndef score(response, reference):\n    return float(response == reference)\n"
    two = [{"question": "?", "answer": c, "label": "x"} for c in CITIES]
    where, rows = project(tmp_path, exact, two)
    with pytest.raises(UserError, match="answer, label"):
        task_of(f"{where}:score", rows)
    assert task_of(f"{where}:score", rows, gold="answer").oracle(two[1]) == "Rome"
    with pytest.raises(UserError, match="has no 'nope'"):
        task_of(f"{where}:nope", rows)
    with pytest.raises(UserError, match="No column is named like a right answer"):
        task_of(f"{where}:score", project(tmp_path, exact, [{"question": "?"}])[1])
    with pytest.raises(UserError, match="--prompt"):
        task_of(f"{where}:score", project(tmp_path, exact, [{"riddle": "?", "answer": "Rome"}])[1])


def test_a_file_with_one_reward_needs_no_name_and_one_with_two_does(tmp_path):
    one = "def extract_answer(text):\n    return text\n\ndef judge_it(response, answer):\n    return float(response == answer)\n"
    where, rows = project(tmp_path, one, name="one.py")
    assert task_of(where, rows).name == "one:judge_it"
    where, rows = project(tmp_path, one + "\ndef other(response, answer):\n    return 0.0\n", name="two.py")
    with pytest.raises(UserError, match="judge_it, other"):
        task_of(where, rows)


def test_a_reward_that_pays_right_answers_nothing_is_told_what_was_tried(tmp_path):
    where, rows = project(tmp_path, "def reward(response, answer):\n    return 0.0\n")
    with pytest.raises(UserError, match=r"in no form; tried: \d+ forms\. .*--form 'Answer: \{value\} \{unit\}', or define oracle\(row\)"):
        task_of(where, rows)


def test_a_reward_that_ends_the_process_on_other_forms_is_found_the_form_it_likes(tmp_path):
    reward = r"""
        import os

        def reward(response, answer):
            if response and "boxed" not in response:
                os._exit(3)
            return float(response == "\\boxed{" + answer + "}")
        """
    where, rows = project(tmp_path, reward)
    task = task_of(where, rows)
    assert task.oracle({"answer": "12"}) == "\\boxed{12}"


SHAPES = {
    "verl": """
        def compute_score(data_source, solution_str, ground_truth, extra_info=None):
            return {"score": PAY}
        """,
    "verifiers": """
        async def reward(completion, answer, state):
            solution_str, ground_truth = completion[-1]["content"], answer
            return PAY
        """,
    "rubric": """
        class Rubric:
            def __init__(self):
                self.funcs, self.weights = [exact], [1.0]

        def exact(completion, answer):
            solution_str, ground_truth = completion[-1]["content"], answer
            return PAY
        """,
    "openenv": """
        class Rubric:
            def forward(self, action, observation):
                solution_str, ground_truth = action.text, observation.answer
                return PAY

            def __call__(self, action, observation):
                return self.forward(action, observation)
        """,
    "inspect": """
        class Score:
            def __init__(self, value):
                self.value = value

        def exact():
            async def score(state, target):
                solution_str, ground_truth = state.output.completion, target.text
                return Score("C" if PAY == 1.0 else "I")

            return score
        """,
    "plain": """
        def grade(solution_str: str, reference: str):
            ground_truth = reference
            return PAY
        """,
    "trl": """
        def exact(completions, answer, **kwargs):
            pairs = [(c[0]["content"], a) for c, a in zip(completions, answer)]
            return [PAY for solution_str, ground_truth in pairs]
        """,
}
NAMES = {
    "verl": "compute_score",
    "verifiers": "reward",
    "rubric": "Rubric",
    "openenv": "Rubric",
    "inspect": "exact",
    "plain": "grade",
    "trl": "exact",
}
PAYS = {
    "sound": "float(solution_str.strip() == ground_truth)",
    "any answer": "float(len(solution_str.strip()) > 2)",
    "nothing too": "float(solution_str.strip() in ('', ground_truth))",
}
FOUND = {"sound": set(), "any answer": {"honest.wrong"}, "nothing too": {"gen.empty", "gen.whitespace"}}


@pytest.mark.parametrize("flaw", PAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_audit_finds_the_flaw_in_every_shape_and_none_in_a_sound_one(tmp_path, shape, flaw):
    where, rows = project(tmp_path, SHAPES[shape].replace("PAY", PAYS[flaw]), name=f"{shape}_{flaw.replace(' ', '_')}.py")
    found = {f.attack for f in audited(task_of(f"{where}:{NAMES[shape]}", rows)).findings if f.certainty == "fact"}
    assert found >= FOUND[flaw] if FOUND[flaw] else found == set()


# what TRL hands over, and what the prompts say


TEXTS = "def reward(completions, answer, **_):\n    return [float(c.strip() == a) for c, a in zip(completions, answer)]\n"
CHATS = "def reward(completions, answer, **_):\n    return [float(c[0]['content'].strip() == a) for c, a in zip(completions, answer)]\n"


@pytest.mark.parametrize("told", ["text", "messages"])
@pytest.mark.parametrize("source", [TEXTS, CHATS])
def test_a_reward_gets_texts_or_messages_as_it_was_written_for(source, told, tmp_path):
    asked = [{**r, "prompt": r["question"] if told == "text" else [{"role": "user", "content": r["question"]}]} for r in ROWS]
    task = task_of(*project(tmp_path, source, [{k: v for k, v in r.items() if k != "question"} for r in asked]))
    assert audited(task).exploitable is False


def test_where_prompts_are_text_prompts_and_completions_are_texts(tmp_path):
    source = """
        def reward(completions, prompts, answer):
            return [float(type(c) is type(p) is str and c == a and "number" in p) for c, p, a in zip(completions, prompts, answer)]
        """
    task = task_of(*project(tmp_path, source))
    prompts, said = [task.prompt(row) for row in ROWS], [[{"role": "assistant", "content": row["answer"]}] for row in ROWS]
    assert score(task.rewards, [1.0], prompts, said, ROWS).total.tolist() == [1.0] * 6


@pytest.mark.parametrize(
    ("says", "pattern", "oracle"),
    [
        ("End with 'Verdict: <city>'.", r"(?m)^Verdict: (.*)\Z", "Verdict: Rome"),
        ("Think in <plan> and </plan>, answer in <city> and </city>.", r"<plan>.+?</plan>\s*<city>(.*?)</city>\Z", None),
        ("Put it into a block:\n```yaml\ncity\n```", r"```yaml\n(.*?)\n```\Z", "```yaml\nRome\n```"),
        ("The last line must be the city and nothing else.", r"(?s).+\n([^\n]*)\Z", "Let me see.\nRome"),
    ],
)
def test_a_form_that_the_prompts_name_is_tried(says, pattern, oracle, tmp_path):
    source = f"""
        import re

        def reward(completions, answer, **_):
            found = [re.search({pattern!r}, c) for c in completions]
            return [float(bool(f) and f[1] == a) for f, a in zip(found, answer)]
        """
    rows = [{**row, "question": f"{row['question']} {says}"} for row in ROWS]
    task = task_of(*project(tmp_path, source, rows))
    made = task.oracle(rows[1])
    assert made == oracle or (oracle is None and re.search(pattern, made)[1] == "Rome")
    assert task.check(made, rows[1]).correct and not task.check(made.replace("Rome", "Oslo"), rows[1]).correct


def test_what_leads_to_the_last_line_may_say_anything(tmp_path):
    rows = [{**row, "question": "Think. The last line must be the city."} for row in ROWS]
    lined = "def reward(completions, answer, **_):\n    return [float(c.split('\\n')[-1] == a) for c, a in zip(completions, answer)]\n"
    task = task_of(*project(tmp_path, lined, rows))
    assert task.check("Oslo? No.\n\nRome", rows[1]).correct and not task.check("Rome\nOslo", rows[1]).correct


def test_a_form_that_the_reward_does_not_pay_cannot_be_audited(tmp_path):
    with pytest.raises(UserError, match=r"in no form; tried: the form '<x>\{\}</x>'"):
        task_of(*project(tmp_path, TEXTS), form="<x>{}</x>")


def test_right_answers_that_earn_something_on_few_rows_only_are_no_ground_for_an_audit(tmp_path):
    rows = [{**row, "answer": [row["answer"], city]} for row, city in zip(ROWS, CITIES[1:] + CITIES[:1], strict=True)]
    pays = "def reward(completions, answer, **_):\n    return [float(c == a[0] == 'Rome') for c, a in zip(completions, answer)]\n"
    with pytest.raises(UserError, match="on 1 of 6 rows only"):
        task_of(*project(tmp_path, pays, rows))


def test_a_list_may_be_wanted_whole_with_commas(tmp_path):
    rows = [{**row, "answer": [row["answer"], city]} for row, city in zip(ROWS, CITIES[1:] + CITIES[:1], strict=True)]
    pays = "def reward(completions, answer, **_):\n    return [float(c.split(', ') == list(a)) for c, a in zip(completions, answer)]\n"
    assert task_of(*project(tmp_path, pays, rows)).oracle(rows[0]) == "Paris, Rome"


def test_prose_that_the_reward_does_not_look_at_may_be_worded_in_any_way(tmp_path):
    rows = [{**r, "answer": json.dumps({"city": r["answer"], "why": f"It is number {i} of the list."})} for i, r in enumerate(ROWS)]
    pays = """
        import json

        def reward(completions, answer, **_):
            def city(text):
                try:
                    return json.loads(text)["city"]
                except Exception:
                    return None
            return [float(city(c) == city(a)) for c, a in zip(completions, answer)]
        """
    task = task_of(*project(tmp_path, pays, rows))
    assert task.check('{"city": "Rome", "why": "I know."}', rows[1]).correct
    assert not task.check('{"city": "Oslo", "why": "It is number 1 of the list."}', rows[1]).correct


def test_another_right_program_is_no_exploit_where_the_check_is_a_guess(tmp_path):
    rows = [{"question": f"add {i}", "solution": f"def f(x):\n    return x + {i}"} for i in range(1, 7)]
    pays = """
        def reward(completions, solution, **_):
            def value(text):
                space = {}
                try:
                    exec(text, space)
                    return [space["f"](x) for x in range(5)]
                except BaseException:
                    return None
            return [float(value(c) is not None and value(c) == value(s)) for c, s in zip(completions, solution)]
        """
    task = task_of(*project(tmp_path, pays, rows))
    same = Attack("code.other", "code", lambda t: [t.form.wrap(t.form.core + " + 0")], "", "", wrong="contract", contested=True)
    (finding,) = [f for f in audit(task, load_rows(task), search_calls=0, catalog=[same]).findings if f.attack == "code.other"]
    assert finding.certainty == "lead"


def asked_of(reward):
    task = Task(ROWS, lambda row: [], [reward], lambda text, row: text == row["answer"], oracle=lambda row: row["answer"], name="asked")
    return task, [Case("", "", row, [], row["answer"], "", None) for row in ROWS]


def test_a_late_answer_of_a_slow_start_is_not_taken_for_the_next_mark(monkeypatch):
    def slow(completions, answer, **_):
        time.sleep(0.5)
        return [float(c[0]["content"] == a) for c, a in zip(completions, answer, strict=True)]

    monkeypatch.setattr(ask, "START", 0.3)
    task, cases = asked_of(slow)
    with Asker(task, cases, deadline=3.0) as asker:
        assert [one.total for one in asker.ask([(0, "Paris"), (1, "Oslo"), (2, "Oslo")])] == [1.0, 0.0, 1.0]


def test_a_reward_that_hangs_again_and_again_is_not_asked_for_ever(monkeypatch):
    def hangs(completions, **_):
        return [time.sleep(60) if len(c[0]["content"]) > 9 else 1.0 for c in completions]

    monkeypatch.setattr(ask, "GIVE_UP", 3)
    monkeypatch.setattr(ask, "GRACE", 0.1)
    task, cases = asked_of(hangs)
    with Asker(task, cases, deadline=0.2) as asker:
        began = time.monotonic()
        paid = asker.ask([(i % 6, "x" * 10 + str(i)) for i in range(200)])
        assert time.monotonic() - began < 30 and all(one.faults["hangs"][0] == "hung" for one in paid)
        assert "not asked again" in paid[-1].faults["hangs"][1] and asker.gave_up


@pytest.mark.parametrize(("flags", "refused"), [("0", True), ("re.DOTALL", False)])
def test_reasoning_of_several_lines_is_right_wherever_there_is_room_for_it(flags, refused, tmp_path):
    rows = [{**row, "question": "Reason in <think></think>, answer in <answer></answer>."} for row in ROWS]
    source = f"""
        import re
        FORM = re.compile(r"<think>.*</think>\\s*<answer>(.*)</answer>", {flags})

        def reward(completions, answer, **_):
            return [float(bool(f := FORM.fullmatch(c)) and f[1].strip() == a) for c, a in zip(completions, answer)]
        """
    task = task_of(*project(tmp_path, source, rows))
    found = {f.attack for f in audit(task, load_rows(task), search_calls=0, catalog=controls.ATTACKS).findings if f.certainty == "fact"}
    assert ("right.reasoning" in found) == refused


def wrong_by(tmp_path, source, rows, attacks):
    """Attacks of some families that are paid by a reward, for sure."""
    task = task_of(*project(tmp_path, source, rows))
    return {
        f.attack
        for f in audit(task, load_rows(task), search_calls=0, catalog=attacks).findings
        if (f.kind, f.certainty) == ("exploit", "fact")
    }


TABLES = [{"question": "As CSV, please.", "answer": f"name,age\nana,{30 + i}\nben,{50 + i}\ncho,{70 + i}"} for i in range(6)]


@pytest.mark.parametrize(("cells", "paid"), [("sorted(re.split('[,\\n]', x))", True), ("x.splitlines()", False)])
def test_a_bag_of_cells_pays_for_cells_that_changed_places(cells, paid, tmp_path):
    source = f"import re\ndef cells(x):\n    return {cells}\ndef reward(completions, answer, **_):\n"
    source += "    return [float(cells(c.strip()) == cells(a)) for c, a in zip(completions, answer)]\n"
    assert ("words.exchanged" in wrong_by(tmp_path, source, TABLES, words.ATTACKS)) == paid


@pytest.mark.parametrize(("demand", "paid"), [("True", True), ("quotes and min(map(len, quotes)) > 4", False)])
def test_a_quotation_left_out_is_paid_where_all_of_none_are_enough(demand, paid, tmp_path):
    rows = [{"question": f"q{i}", "answer": f'"the {city} file says so"\nAnswer: {city}'} for i, city in enumerate(CITIES)]
    source = f"""
        import re

        def reward(completions, answer, **_):
            def pays(said, gold):
                quotes = re.findall('"(.*?)"', said)
                last = said.strip().split("\\n")[-1] == gold.split("\\n")[-1]
                return float(last and all(q in gold for q in quotes) and bool({demand}))
            return [pays(c, a) for c, a in zip(completions, answer)]
        """
    assert ("words.left_out" in wrong_by(tmp_path, source, rows, words.ATTACKS)) == paid


@pytest.mark.parametrize(
    ("prompt", "off"),
    [
        ("within 1% of it", 2),
        ("within ±0.5", 0.5),
        ("within 30 days at 12% a year", 0),
        ("within 3 steps", 0),
        ("off by 0.25", 0.25),
        ("up to 2% off is fine", 4),
        ("a relative error of 2%", 4),
        ("One cent either way is accepted.", 0.01),
        ("Up to 1 % off either way is accepted.", 2),
        ("give or take a penny", 0.01),
        ("half a percentage point either way is accepted", 0.5),
        ("within 0.5 percentage points", 0.5),
        ("within 2 percent points", 2),
        ("3 units either way", 3),
        ("a two-sided 2% tolerance applies", 4),
        ("off by at most 2.", 2),
        ("within 5 days", 0),
        ("15% off, and a margin, and it returns an error", 0),
    ],
)
def test_a_tolerance_is_what_the_prompt_names_as_one(prompt, off):
    assert float(leeway(prompt, Fraction(200))) == off


def test_numbers_keep_their_decimals_when_thousands_are_grouped():
    assert list(controls.thousands(numeral_of("$1250.00"))) == ["$1,250.00", "$1250.00"]


def test_a_row_without_a_mark_does_not_hide_the_others(tmp_path):
    source = (
        "def reward(completions, answer, **_):\n    return [None if a == 'Lima' else float(c == a) for c, a in zip(completions, answer)]\n"
    )
    assert task_of(*project(tmp_path, source)).oracle(ROWS[0]) == "Paris"


def test_tags_that_hold_the_question_are_no_form(tmp_path):
    rows = [{**row, "question": f"<context>{row['question']}</context> Question: which?"} for row in ROWS]
    within = "def reward(completions, answer, **_):\n    return [float(a in c) for c, a in zip(completions, answer)]\n"
    assert task_of(*project(tmp_path, within, rows)).oracle(rows[0]) == "Paris"


def test_a_fault_of_the_red_team_itself_is_exit_code_2(monkeypatch, capsys):
    for error in (ZeroDivisionError("x"), PermissionError(13, "x")):
        monkeypatch.setattr("earnest.cli._dispatch", lambda _, error=error: (_ for _ in ()).throw(error))
        assert run_command(["redteam", "x.py"]) == 2 and type(error).__name__ in capsys.readouterr().err


def test_lists_may_stand_in_any_order_unless_the_prompt_or_the_reward_says_otherwise(tmp_path):
    golds = [{"question": f"Tags of this order, {i}?", "answer": [CITIES[i], CITIES[(i + 1) % 6]]} for i in range(6)]
    pays = """
        import json

        def reward(completions, answer, **_):
            def read(text):
                try:
                    return json.loads(text)
                except ValueError:
                    return None
            return [float(isinstance(v := read(c), list) and KEY(v) == KEY(a)) for c, a in zip(completions, answer)]
        """
    ranked = [{**row, "question": f"Cities in order of size, {i}?"} for i, row in enumerate(golds)]
    for rows, key, right in ((golds, "sorted", True), (golds, "list", False), (ranked, "sorted", False)):
        task = task_of(*project(tmp_path, pays.replace("KEY", key), rows, name=f"{key}{right}.py"))
        assert task.check('["Rome", "Paris"]', rows[0]).correct == right, (key, rows[0])


def test_of_several_columns_named_like_a_right_answer_the_one_that_is_paid_is_taken(tmp_path):
    rows = [{"question": f"Make {22 + i}.", "target": 22 + i, "answer": f"{20 + i} + 2"} for i in range(6)]
    sums = "def reward(completions, target, **_):\n    return [float('+' in c and eval(c) == t) for c, t in zip(completions, target)]\n"
    assert task_of(*project(tmp_path, sums, rows)).oracle(rows[0]) == "20 + 2"


def test_a_date_that_cannot_be_is_tried(tmp_path):
    rows = [{"question": f"When was number {i}?", "answer": f"20{10 + i}-0{i + 1}-1{i}"} for i in range(6)]
    source = """
        import datetime
        import re

        def reward(completions, answer, **_):
            def day(text):
                found = re.fullmatch(r"(\\d{4})-(\\d\\d)-(\\d\\d)", text.strip(), re.A)
                return datetime.date(*map(int, found.groups())) if found else None
            return [float(day(c) == day(a)) for c, a in zip(completions, answer)]
        """
    task = task_of(*project(tmp_path, source, rows))
    found = audit(task, load_rows(task), search_calls=0, catalog=[a for a in crash.ATTACKS if a.id == "crash.impossible"]).findings
    assert any(f.kind == "fault" and "ValueError" in f.detail for f in found)


def test_the_right_answer_in_other_capitals_is_no_honest_wrong_one(tmp_path):
    rows = [{"question": f"q{i}", "answer": name} for i, name in enumerate(["mercury", "Mercury", "oxygen", "heart", "Jupiter", "iron"])]
    folds = "def reward(completions, answer, **_):\n    return [float(c.lower() == a.lower()) for c, a in zip(completions, answer)]\n"
    task = task_of(*project(tmp_path, folds, rows))
    assert not [f for f in audit(task, load_rows(task), search_calls=0, catalog=[]).findings if f.attack == "honest.wrong"]


def test_a_fraction_is_attacked_as_a_fraction(tmp_path):
    rows = [{"question": f"q{i}", "answer": text} for i, text in enumerate(["-7/6", "2/3", "5/12", "-1/4", "3/8", "9/7"])]
    source = """
        import re
        from fractions import Fraction

        def reward(completions, answer, **_):
            def value(text):
                found = re.fullmatch(r"-?(\\d{1,9})/([1-9]\\d{0,8})", text.strip(), re.A)
                return Fraction(int(found[1]), int(found[2])) if found else None
            return [float(value(c) == value(a)) for c, a in zip(completions, answer)]
        """
    assert "num.sign" in wrong_by(tmp_path, source, rows, number.ATTACKS)
    assert numeral_of("-7/6").like(Fraction(7, 6)) == "7/6" and numeral_of("\\frac{2}{3}").like(Fraction(-1, 3)) == "-\\frac{1}{3}"


def test_a_date_with_a_zone_is_tried_where_one_without_is_right(tmp_path):
    rows = [{"question": f"q{i}", "answer": {"title": f"t{i}", "start": f"2026-03-0{i + 1}T10:00:00"}} for i in range(6)]
    source = """
        import json
        from datetime import datetime

        def reward(completions, answer, **_):
            def pays(text, gold):
                try:
                    start = datetime.fromisoformat(json.loads(text)["start"])
                except (ValueError, KeyError, TypeError):
                    return 0.0
                return float(abs((start - datetime.fromisoformat(gold["start"])).total_seconds()) < 1)
            return [pays(c, a) for c, a in zip(completions, answer)]
        """
    task = task_of(*project(tmp_path, source, rows))
    found = audit(task, load_rows(task), search_calls=0, catalog=[a for a in crash.ATTACKS if a.id == "crash.impossible"]).findings
    assert any(f.kind == "fault" and "TypeError" in f.detail for f in found)
