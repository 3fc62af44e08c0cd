"""Options: where a value comes from, what is refused, and what every command offers."""

import contextlib
import dataclasses
import io
import re
import subprocess
import sys

import pytest

from earnest import UserError, cli
from earnest import session as sessions
from earnest.config import Config, EvalConfig, SftConfig, TrainConfig, apply, flatten, read_toml

NAMES = [name for name, _ in flatten(dataclasses.asdict(Config()))]

# One valid value other than the default for every option there is; an option that is added must be added here.
OTHER = {
    "model": "some/folder", "adapter": "a/b", "data": "rows.jsonl", "skip_bad_rows": True, "seed": 7, "device": "cpu", "thinking": True,
    "lora_rank": 4, "report_to": "wandb",
    "difficulty.samples": 4, "difficulty.rows": 9, "difficulty.temperature": 0.5, "difficulty.drop_all_right": 0.25,
    "difficulty.drop_all_wrong": 0.75, "difficulty.keep_from": 0.1, "difficulty.keep_to": 0.9,
    "difficulty.max_completion_length": 14,
    "sft.steps": 3, "sft.batch_size": 5, "sft.rows": 11, "sft.learning_rate": 1e-5, "sft.lr_scheduler_type": "cosine",
    "sft.warmup_ratio": 0.5, "sft.max_grad_norm": 0.3, "sft.token_budget": 99,
    "train.steps": 3, "train.num_prompts": 7, "train.num_generations": 5, "train.max_completion_length": 12, "train.temperature": 0.7,
    "train.top_p": 0.9, "train.top_k": 20, "train.min_p": 0.05, "train.learning_rate": 2e-5, "train.lr_scheduler_type": "linear",
    "train.warmup_ratio": 0.1, "train.max_grad_norm": 0.2, "train.loss_type": "cispo", "train.importance_sampling_level": "sequence",
    "train.scale_rewards": "none", "train.epsilon": 0.1, "train.epsilon_high": 0.28, "train.delta": 2.0, "train.beta": 0.04,
    "train.use_bias_correction_kl": True, "train.num_iterations": 2, "train.mask_truncated_completions": True,
    "train.dynamic_sampling": 3, "train.overlong_cache": 4, "train.max_dead_steps": 5, "train.token_budget": 100, "train.save_steps": 6,
    "train.canary_rate": 0.25,
    "train.credit": "turn",
    "train.turn_discount": 0.9,
    "train.keep_spread": 0.5,
    "eval.samples": 3, "eval.temperature": 0.6, "eval.max_completion_length": 13,
}  # fmt: skip


class Resolved(Exception):
    """Carries what a command would have run with."""


@pytest.fixture
def resolved(monkeypatch):
    """A function from arguments to the (config, origins) the session would open with; nothing is loaded."""

    def session(task, config, origins, command, folder, overwrite):
        raise Resolved(config, origins)

    monkeypatch.setattr(sessions, "session", session)

    def resolve(*arguments):
        with pytest.raises(Resolved) as caught:
            cli.run_command([str(a) for a in arguments])
        return caught.value.args

    return resolve


def command(*arguments):
    """Exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.run_command([str(a) for a in arguments])
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), err.getvalue()


def toml(folder, text):
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def leaves(config):
    return dict(flatten(dataclasses.asdict(config)))


def as_flags(values):
    """Values as a user types them."""
    flags = []
    for name, value in values.items():
        head, _, last = name.rpartition(".")
        prefix = f"--{head}." if head else "--"
        flags += [prefix + last.replace("_", "-")] if value is True else [prefix + last.replace("_", "-"), str(value)]
    return flags


# --- where a value comes from


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(tmp_path, resolved):  # S-CL-03
    file = toml(tmp_path, "seed = 5\n[train]\nsteps = 10\nlearning_rate = 3e-5\n")
    config, origins = resolved("run", "triage", "--config", file, "--train.steps", "3")
    assert (config.train.steps, config.train.learning_rate, config.seed, config.train.temperature) == (3, 3e-5, 5, 1.0)
    assert origins["train.steps"] == "command line"
    assert origins["train.learning_rate"] == origins["seed"] == str(file)
    assert origins["train.temperature"] == origins["sft.steps"] == "default"
    assert set(origins) == set(NAMES)


def test_a_stage_of_its_own_reads_its_section_and_keeps_the_others(tmp_path, resolved):
    file = toml(tmp_path, "[train]\nsteps = 10\ntemperature = 0.8\n[eval]\nsamples = 0\n")
    config, origins = resolved("train", "triage", f"--config={file}", "--steps", "3")
    assert (config.train.steps, config.train.temperature, config.eval.samples) == (3, 0.8, 0)
    assert (origins["train.steps"], origins["train.temperature"]) == ("command line", str(file))
    assert (origins["eval.samples"], origins["sft.steps"]) == (str(file), "default")  # --steps was meant for train alone
    config, origins = resolved("sft", "triage", "--steps=4", "--config", file)
    assert (config.sft.steps, config.train.steps) == (4, 10)
    assert (origins["sft.steps"], origins["train.steps"]) == ("command line", str(file))


def test_without_a_file_everything_is_default(resolved):
    config, origins = resolved("eval", "triage")
    assert config == Config() and set(origins.values()) == {"default"}


@pytest.mark.parametrize("flag", ["--no-thinking", "--no_thinking"])
def test_a_switch_turned_off_on_the_command_line_wins_and_is_recorded(flag, tmp_path, resolved):
    file = toml(tmp_path, "thinking = true\n")
    config, origins = resolved("train", "triage", "--config", file, flag)
    assert config.thinking is False and origins["thinking"] == "command line"


@pytest.mark.parametrize("flag", ["--train.no-use-bias-correction-kl", "--train.no_use_bias_correction_kl"])
def test_a_switch_of_a_section_turned_off_is_recorded(flag, tmp_path, resolved):
    file = toml(tmp_path, "[train]\nuse_bias_correction_kl = true\n")
    config, origins = resolved("run", "triage", "--config", file, flag)
    assert config.train.use_bias_correction_kl is False and origins["train.use_bias_correction_kl"] == "command line"


def test_dashes_and_underscores_are_the_same(resolved):
    wanted, _ = resolved("train", "triage", "--lora-rank", "4", "--skip-bad-rows", "--num-generations", "6", "--max-dead-steps=2")
    got, origins = resolved("train", "triage", "--lora_rank", "4", "--skip_bad_rows", "--num_generations", "6", "--max_dead_steps=2")
    assert got == wanted and (got.lora_rank, got.skip_bad_rows, got.train.num_generations, got.train.max_dead_steps) == (4, True, 6, 2)
    typed = {name for name, origin in origins.items() if origin == "command line"}
    assert typed == {"lora_rank", "skip_bad_rows", "train.num_generations", "train.max_dead_steps"}


# --- every option


def test_the_table_of_this_file_knows_every_option_and_no_default():
    assert set(OTHER) == set(NAMES)
    assert {name for name, value in leaves(Config()).items() if value == OTHER[name]} == set()


def test_every_option_is_reachable_on_the_command_line_of_run(resolved):
    config, origins = resolved("run", "triage", *as_flags(OTHER))
    assert leaves(config) == OTHER
    assert set(origins.values()) == {"command line"}


@pytest.mark.parametrize("name", ["difficulty", "sft", "train", "eval"])
def test_every_option_of_a_stage_is_reachable_without_its_prefix(name, resolved):
    own = {key: value for key, value in OTHER.items() if "." not in key or key.startswith(f"{name}.")}
    config, origins = resolved(name, "triage", *as_flags({key.removeprefix(f"{name}."): value for key, value in own.items()}))
    assert leaves(config) == leaves(Config()) | own
    assert {key for key, origin in origins.items() if origin == "command line"} == set(own)


def test_every_option_is_reachable_in_the_file(tmp_path, resolved):
    sections = {"": [], "difficulty": [], "sft": [], "train": [], "eval": []}
    for name, value in OTHER.items():
        head, _, last = name.rpartition(".")
        written = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else repr(value)
        sections[head].append(f"{last} = {written}")
    text = "\n".join((f"[{head}]\n" if head else "") + "\n".join(lines) for head, lines in sections.items())
    file = toml(tmp_path, text)
    config, origins = resolved("run", "triage", "--config", file)
    assert leaves(config) == OTHER
    assert set(origins.values()) == {str(file)}


def shown(name):
    """The options a command's help lists, in order."""
    code, out, err = command(name, "--help")
    assert code == 0 and err == ""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    listed = plain[plain.index("positional arguments" if "positional arguments" in plain else "options") :]  # after the line of usage
    return re.findall(r"(?:^|[│|])\s*(--[a-z][\w.-]*)", listed, re.MULTILINE), plain


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_the_help_of_a_command_lists_each_of_its_options_once(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    options, text = shown(name)
    bare = ["rows", "gold", "prompt_column", "form"]  # of a reward that is no Task
    attack = ["data", "out", "search_calls", "seed", "deadline", "baseline", "update_baseline", "json", "sarif", "selftest", *bare]
    fixed = {"check": ["data", "skip_bad_rows"], "redteam": attack, "report": [], "sandbox": ["allow_unsafe"]}
    if name in fixed:
        wanted = fixed[name]
    else:
        own = [n for n in NAMES if "." not in n or name == "run" or n.startswith(f"{name}.")]
        wanted = ["out", "config", "overwrite", *(n if name == "run" else n.removeprefix(f"{name}.") for n in own)]
    assert sorted(options) == sorted(f"--{n}".replace("_", "-") for n in wanted)
    assert {"report": "RUN", "sandbox": "sandbox"}.get(name, "TASK") in text


def test_the_help_says_what_each_command_answers(monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    code, out, _ = command("--help")
    assert code == 0 and all(re.search(rf"\b{name}\b", out) for name in cli.COMMANDS)


# --- what is refused


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[train]\nlearning_rat = 1e-5", ["'learning_rat'", "section [train]", "'learning_rate'"]),  # S-CL-01
        ("[train]\nnum-epochs = 3", ["'num-epochs'", "section [train]", "Did you mean 'num_"]),
        ("[train]\nlora_r = 8", ["'lora_r'", "section [train]", "'lora_rank' at the top"]),
        ("[train]\nlora_rank = 8", ["'lora_rank'", "section [train]", "belongs to the top of the file"]),
        ("[train]\nlearning-rate = 1e-5", ["'learning-rate'", "section [train]", "'learning_rate'"]),
        ("[eval]\nnum_generations = 8", ["'num_generations'", "section [eval]", "belongs to section [train]"]),
        ("steps = 3", ["'steps'", "at the top", "section [sft] or section [train]"]),
        ("sed = 1", ["'sed'", "at the top", "Did you mean 'seed'"]),
        ("[trian]\nsteps = 3", ["'trian'", "at the top", "section [train]"]),
        ("[training]\nsteps = 3", ["'training'", "at the top", "section [train]"]),
        ("qqqq = 1", ["'qqqq'", "at the top", "model, adapter, data"]),
        ("[sft]\nqqqq = 1", ["'qqqq'", "section [sft]", "Valid keys here: steps, batch_size"]),
        ("train = 3", ["'train'", "must be a section", "[train]"]),
        ("[train.steps]\na = 1", ["train.steps"]),
        ("[model]\nname = 'x'", ["'model'"]),
        ("[[train]]\nsteps = 3", ["'train'", "must be a section"]),
    ],
)
def test_an_unknown_or_misplaced_key_is_named_with_its_section_and_the_nearest_valid_one(text, says, tmp_path):
    file, out = toml(tmp_path, text), tmp_path / "run"
    code, printed, err = command("run", "triage", "--config", file, "--out", out)
    assert code == 2 and printed == "" and not out.exists()  # nothing was loaded or begun
    assert err.startswith("earnest: ") and err.count("\n") == 1 and str(file) in err
    for words in says:
        assert words in err


@pytest.mark.parametrize(("written", "number"), [("1e-5", 1e-5), ("2.0e-5", 2e-5), ('"3e-4"', 3e-4), ('"1e-5"', 1e-5)])
def test_numbers_written_as_text_are_numbers(written, number, tmp_path, resolved):  # S-CL-02
    file = toml(tmp_path, f'[train]\nlearning_rate = {written}\nsteps = "12"\n')
    config, _ = resolved("run", "triage", "--config", file)
    assert config.train.learning_rate == number and type(config.train.learning_rate) is float
    assert config.train.steps == 12 and type(config.train.steps) is int


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[train]\nlearning_rate = "abc"', "train.learning_rate"),
        ("[train]\nlearning_rate = true", "train.learning_rate"),
        ("[train]\nlearning_rate = nan", "train.learning_rate"),
        ("[train]\nlearning_rate = inf", "train.learning_rate"),
        ("[train]\nlearning_rate = []", "train.learning_rate"),
        ("[train]\nlearning_rate = 2000-01-01", "train.learning_rate"),
        ("[train]\nsteps = 2.5", "train.steps"),
        ("[train]\nsteps = true", "train.steps"),
        ("[train]\nsteps = 0", "train.steps"),
        ("[train]\nepsilon = nan", "train.epsilon"),
        ("[train]\nepsilon = -0.1", "train.epsilon"),
        ("[train]\nepsilon_high = nan", "train.epsilon_high"),
        ("[train]\ndelta = nan", "train.delta"),
        ("[train]\nbeta = nan", "train.beta"),
        ("[train]\nbeta = inf", "train.beta"),
        ("[train]\nmax_grad_norm = 0", "train.max_grad_norm"),
        ("[train]\nmax_grad_norm = nan", "train.max_grad_norm"),
        ("[train]\ntemperature = 0", "train.temperature"),
        ('[train]\nloss_type = "ppo"', "train.loss_type"),
        ("[train]\nnum_generations = 1", "num_generations"),
        ("[train]\noverlong_cache = 65", "train.overlong_cache"),
        ("[sft]\nmax_grad_norm = -1", "sft.max_grad_norm"),
        ("[sft]\nrows = -1", "sft.rows"),
        ('[sft]\nlr_scheduler_type = "step"', "sft.lr_scheduler_type"),
        ("[difficulty]\nrows = -1", "difficulty.rows"),
        ("[difficulty]\nsamples = 1", "difficulty.samples"),
        ("[difficulty]\nkeep_from = 0.8\nkeep_to = 0.2", "difficulty.keep_from"),
        ("[eval]\nsamples = -1", "eval.samples"),
        ("seed = -1", "seed"),
        ("seed = true", "seed"),
        ("model = 3", "model"),
        ('device = "tpu"', "device"),
        ('skip_bad_rows = "perhaps"', "skip_bad_rows"),
    ],
)
def test_a_value_of_another_kind_or_out_of_range_is_an_error_that_names_the_key(text, key, tmp_path):
    code, out, err = command("run", "triage", "--config", toml(tmp_path, text), "--out", tmp_path / "run")
    assert code == 2 and out == "" and not (tmp_path / "run").exists()
    assert err.startswith("earnest: ") and err.count("\n") == 1 and key in err


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        (["--learning-rate", "abc"], "--learning-rate"),
        (["--learning-rate", "nan"], "train.learning_rate"),
        (["--learning-rate", "-1"], "train.learning_rate"),
        (["--steps", "2.5"], "--steps"),
        (["--steps", "0"], "train.steps"),
        (["--loss-type", "ppo"], "--loss-type"),
        (["--learning-rat", "1e-5"], "--learning-rate"),
        (["--lora-r", "4"], "--lora-rank"),
        (["--sft.steps", "4"], "--sft.steps"),
        (["--config"], "--config"),
        (["extra"], "extra"),
    ],
)
def test_a_mistake_on_the_command_line_is_an_error_that_names_the_option(flags, key, tmp_path):
    code, _, err = command("train", "triage", "--out", tmp_path / "run", *flags)
    assert code == 2 and key in err and "Traceback" not in err and not (tmp_path / "run").exists()


def test_no_command_an_unknown_one_and_a_missing_task_are_errors():
    for arguments in ([], ["tran", "triage"], ["train"], ["report"], ["check"]):
        code, _, err = command(*arguments)
        assert code == 2 and err and "Traceback" not in err


def test_a_group_of_one_is_refused_in_plain_words(tmp_path):  # S-CL-04
    for arguments in (["--num-generations", "1"], ["--config", toml(tmp_path, "[train]\nnum_generations = 1")]):
        code, _, err = command("train", "triage", *arguments)
        assert code == 2 and "at least 2" in err and "num_generations is 1" in err and "[]" not in err


def test_seven_prompts_with_groups_of_eight_need_no_divisor(resolved):  # S-CL-04; test_cli.py runs it
    config, _ = resolved("train", "triage", "--num-prompts", "7", "--num-generations", "8")
    assert (config.train.num_prompts, config.train.num_generations) == (7, 8)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"[train\nsteps = 3", "is not TOML"), (b"steps: 3\n", "is not TOML"), (b"\xff\xfe\x00", "cannot be read"), (None, "no config file")],
)
def test_a_file_that_is_none_is_refused_by_name(content, says, tmp_path):
    file = tmp_path / "my.toml"
    if content is not None:
        file.write_bytes(content)
    code, _, err = command("run", "triage", "--config", file)
    assert code == 2 and says in err and str(file) in err and err.count("\n") == 1


def test_a_folder_as_config_is_refused(tmp_path):
    code, _, err = command("run", "triage", "--config", tmp_path)
    assert code == 2 and "cannot be read" in err and str(tmp_path) in err


def test_a_byte_order_mark_and_windows_line_ends_are_no_obstacle(tmp_path, resolved):
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbf[train]\r\nsteps = 10\r\n")
    config, _ = resolved("run", "triage", "--config", file)
    assert config.train.steps == 10


def test_the_presets_that_ship_are_valid():
    from pathlib import Path

    presets = list((Path(__file__).parents[1] / "presets").glob("*.toml"))
    assert presets
    for file in presets:
        assert isinstance(apply(Config(), read_toml(file), str(file)), Config)


def test_values_are_checked_from_python_too():
    for build in (
        lambda: TrainConfig(num_generations=1),
        lambda: SftConfig(steps=0),
        lambda: EvalConfig(samples=-1),
        lambda: TrainConfig(top_p=0),
        lambda: TrainConfig(warmup_ratio=1.5),
    ):
        with pytest.raises(UserError):
            build()


def test_apply_leaves_the_config_it_was_given_alone():
    base = Config()
    changed = apply(base, {"train": {"steps": 1}}, "here")
    assert (base.train.steps, changed.train.steps) == (60, 1) and dataclasses.replace(changed, train=base.train) == base


# --- what stays light


def test_options_and_check_import_no_torch(tmp_path):
    code = """
import sys
import earnest.config
assert not {"torch", "transformers", "pydantic"} & set(sys.modules), "config"
from earnest.cli import run_command
assert run_command(["check", "triage"]) == 0
heavy = {"torch", "transformers", "peft", "matplotlib", "datasets"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
