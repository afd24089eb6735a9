"""The generated model folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from srtctl.sim.model import CONTEXT_LENGTH, ModelError, files, read_model, write_model


def test_the_bytes_are_always_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path / name)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(files())
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_the_tokenizer_is_one_that_the_real_library_reads(model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    text = "<|user|>Grüße, 世界\n<|end|>"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert len(ids) == len("Grüße, 世界\n".encode()) + 2


def test_reading_it(model: Path) -> None:
    read = read_model(str(model))
    assert read.context_length == CONTEXT_LENGTH
    assert read.architectures == ("LlamaForCausalLM",)
    assert len(read.vocab) == json.loads((model / "config.json").read_text())["vocab_size"]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        ("absent", "is not a local folder"),
        ("no config", "config.json: No such file"),
        ("bad config", "config.json: not JSON"),
        ("list", "config.json: not a JSON object"),
        ("no length", "has no 'max_position_embeddings'"),
    ],
)
def test_a_folder_that_is_not_a_model(break_it: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    if break_it != "absent":
        write_model(folder)
    config = folder / "config.json"
    match break_it:
        case "no config":
            config.unlink()
        case "bad config":
            config.write_text("{")
        case "list":
            config.write_text("[]")
        case "no length":
            config.write_text("{}")
    with pytest.raises(ModelError) as error:
        read_model(str(folder))
    assert message in str(error.value)


def test_a_multimodal_config_keeps_the_length_in_its_text_part(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 99}}))
    assert read_model(str(tmp_path)).context_length == 99
