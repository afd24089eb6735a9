"""A model folder without weights: the configuration and tokenizer that Dynamo and a simulated engine read.

`python -m srtctl.sim.model DIR` writes it. One token is one byte, so prompts are as long as they look.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTEXT_LENGTH = 32768
_SPECIAL = ("<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class ModelError(Exception):
    """The model folder is missing or lacks what an engine needs."""


@dataclass(frozen=True)
class Model:
    """What an engine knows about its model. `vocab` maps a token's text (byte-level alphabet) to its id."""

    path: str
    architectures: tuple[str, ...]
    context_length: int
    vocab: dict[str, int]


def byte_alphabet() -> list[str]:
    """The 256 characters by which byte-level BPE writes the bytes (GPT-2's rule), in code-point order."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    return sorted([chr(code) for code in printable] + [chr(0x100 + i) for i in range(256 - len(printable))])


def files() -> dict[str, dict[str, Any]]:
    """The folder's files by name, as data."""
    vocab = {text: index for index, text in enumerate((*_SPECIAL, *byte_alphabet()))}
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    bos, eos = vocab["<s>"], vocab["</s>"]
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "num_hidden_layers": 2,
            "vocab_size": len(vocab),
            "max_position_embeddings": CONTEXT_LENGTH,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "torch_dtype": "float16",
        },
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": eos},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "add_bos_token": False,
            "model_max_length": CONTEXT_LENGTH,
            "chat_template": _CHAT_TEMPLATE,
        },
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": vocab[text], "content": text, **added} for text in _SPECIAL],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": "<unk>",
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": vocab,
                "merges": [],
            },
        },
    }


def write_model(folder: Path) -> None:
    """Write the model folder; the bytes are always the same."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_model(path: str) -> Model:
    """Read a local model folder. Raises ModelError, naming the folder or the file and what is missing."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError(f"{path} is not a local folder; a simulated engine downloads nothing")
    config = _read(folder / "config.json")
    text_config = config.get("text_config", config)
    try:
        return Model(
            path=path,
            architectures=tuple(config.get("architectures") or ()),
            context_length=int(text_config["max_position_embeddings"]),
            vocab=_read(folder / "tokenizer.json")["model"]["vocab"],
        )
    except KeyError as missing:
        raise ModelError(f"{path}: config.json or tokenizer.json has no {missing}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object")
    return content


def main() -> int:
    """Command line: write the folder named by the only argument."""
    if len(sys.argv) != 2:
        print("usage: python -m srtctl.sim.model DIR", file=sys.stderr)
        return 2
    write_model(Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
