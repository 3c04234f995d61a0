"""GGUF files: written here with every type that can be, read back against the weights they were made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Q
from tokenizers.pre_tokenizers import ByteLevel

from treille.runtime.errors import ModelError, UnsupportedModel
from treille.runtime.models.cache import convert_gguf
from treille.runtime.models.config import ModelConfig, RopeConfig
from treille.runtime.models.gguf import GGUFSource
from treille.runtime.models.hf_config import config_from_hf, config_to_hf
from treille.runtime.models.load import load_model
from treille.runtime.models.rope import inverse_frequencies

CPU = torch.device("cpu")
ALPHABET = sorted(ByteLevel.alphabet())
TOKENS = [*ALPHABET, "<|end|>", "<|start|>", "th"]
IDS = torch.randint(0, 256, (21,), generator=torch.Generator().manual_seed(8)).tolist()

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ARCHITECTURES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def make_config(arch: str, **changes: Any) -> ModelConfig:
    data = {
        "architectures": [f"{ARCHITECTURES[arch]}ForCausalLM"],
        "vocab_size": len(TOKENS),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
        "eos_token_id": 256,
        "bos_token_id": 257,
    }
    return config_from_hf(data | changes)


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, index, inner = stem.split(".", 3)
        return f"blk.{index}.{NAMES[inner]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k of a llama: dimension i and i + D/2 become neighbours."""
    out = np.empty_like(rows)
    size = rows.shape[0] // heads
    for head in range(heads):
        for i in range(size // 2):
            out[head * size + 2 * i] = rows[head * size + i]
            out[head * size + 2 * i + 1] = rows[head * size + size // 2 + i]
    return out


def write_gguf(
    path: Path,
    arch: str,
    config: ModelConfig,
    tensors: dict[str, torch.Tensor],
    kind: Q = Q.F32,
    metadata: dict[str, Any] | None = None,
    extra: dict[str, np.ndarray] | None = None,
) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * 256 + [3, 3, 1])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(256)
    writer.add_bos_token_id(257)
    for key, value in (metadata or {}).items():
        add = {
            str: writer.add_string,
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
        }
        add[type(value)](key, value)
    for name, tensor in tensors.items():
        values = tensor.numpy()
        if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
            values = interleave(values, config.num_heads if ".q_proj." in name else config.num_kv_heads)
        own = kind if values.ndim == 2 else Q.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, own), raw_dtype=own)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def dequantised(tensors: dict[str, torch.Tensor], kind: Q) -> dict[str, torch.Tensor]:
    """Row order does not matter to blocks that lie within a row."""
    result = {}
    for name, tensor in tensors.items():
        own = kind if tensor.ndim == 2 else Q.F32
        values = gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), own), own)
        result[name] = torch.from_numpy(np.array(values, dtype=np.float32))
    return result


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q5_1, Q.Q5_0, Q.Q4_1, Q.Q4_0])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_tensors_are_the_dequantised_ones(arch: str, kind: Q, tmp_path: Path, make_tensors: Any) -> None:
    config = make_config(arch)
    tensors = make_tensors(config)
    path = write_gguf(tmp_path / "m.gguf", arch, config, tensors, kind)
    with GGUFSource(path) as source:
        assert source.config == config
        assert source.names() == tensors.keys()
        for name, expected in dequantised(tensors, kind).items():
            assert source.shape(name) == tuple(expected.shape)
            torch.testing.assert_close(source.read(name), expected, rtol=0, atol=0)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_logits_equal_transformers_with_the_dequantised_tensors(
    arch: str, tmp_path: Path, make_tensors: Any, paged_run: Any
) -> None:
    transformers = pytest.importorskip("transformers")
    config = make_config(arch)
    tensors = make_tensors(config)
    path = write_gguf(tmp_path / "m.gguf", arch, config, tensors, Q.Q8_0)
    settings = transformers.AutoConfig.for_model(**config_to_hf(config))
    reference = transformers.AutoModelForCausalLM.from_config(settings).eval()
    reference.load_state_dict(dequantised(tensors, Q.Q8_0))
    with torch.no_grad():
        expected = reference(torch.tensor([IDS])).logits[0]
    loaded = load_model(path, dtype=torch.float32, device=CPU)
    found = paged_run(loaded.model).extend({0: IDS})
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    assert loaded.name == "m" and loaded.folder is None
    assert loaded.config.eos_token_ids == (256,) and loaded.config.bos_token_id == 257
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("naïve")) == "naïve"


def test_tied_and_biased(tmp_path: Path, make_tensors: Any) -> None:
    config = make_config("llama", tie_word_embeddings=True, attention_bias=True, mlp_bias=True)
    tensors = make_tensors(config)
    path = write_gguf(tmp_path / "m.gguf", "llama", config, tensors)
    with GGUFSource(path) as source:
        assert source.config == config
        for name, expected in tensors.items():
            assert torch.equal(source.read(name), expected)


def test_conversion_makes_a_folder_that_transformers_reads(
    tmp_path: Path, make_tensors: Any, paged_run: Any
) -> None:
    transformers = pytest.importorskip("transformers")
    config = make_config("llama", tie_word_embeddings=True)
    path = write_gguf(
        tmp_path / "m.gguf",
        "llama",
        config,
        make_tensors(config),
        Q.Q4_1,
        metadata={"tokenizer.chat_template": "{{ messages[0]['content'] }}"},
    )
    folder = tmp_path / "converted"
    folder.mkdir()
    convert_gguf(path, folder)
    loaded = load_model(folder, dtype=torch.float32, device=CPU)
    assert loaded.config == config
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "Vines, trained. <|end|>"
    assert tokenizer.encode(text) == loaded.tokenizer.encode(text, parse_special=True)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "x"
    with torch.no_grad():
        expected = reference(torch.tensor([IDS])).logits[0]
    found = paged_run(loaded.model).extend({0: IDS})
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    stamp = json.loads((folder / "treille.json").read_text())
    assert (
        stamp["format"] == 1 and stamp["source"]["file"] == "m.gguf" and len(stamp["source"]["sha256"]) == 64
    )


def test_rope_settings(tmp_path: Path, make_tensors: Any) -> None:
    config = make_config("qwen2")
    tensors = make_tensors(config)

    def read(**metadata: Any) -> RopeConfig:
        keys = {f"qwen2.rope.scaling.{key}": value for key, value in metadata.items()}
        path = write_gguf(
            tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf", "qwen2", config, tensors, metadata=keys
        )
        with GGUFSource(path) as source:
            return source.config.rope

    assert read(type="none") == RopeConfig(theta=10000.0)
    assert read(type="linear", factor=4.0) == RopeConfig(type="linear", factor=4.0)
    yarn = read(type="yarn", factor=4.0, original_context_length=16)
    same = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    assert yarn == make_config("qwen2", rope_parameters=same).rope
    with pytest.raises(UnsupportedModel, match="longrope"):
        read(type="longrope", factor=4.0)
    with pytest.raises(ModelError, match=r"scaling\.factor"):
        read(type="yarn")


def test_llama3_divisors(tmp_path: Path, make_tensors: Any) -> None:
    """llama.cpp's converter stores by what each frequency of a llama3 model is divided."""
    settings = {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "rope_theta": 500.0,
    }
    scaled = make_config("llama", rope_parameters=settings)
    plain = make_config("llama", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    wanted = inverse_frequencies(scaled.rope, 16)
    divisors = (inverse_frequencies(plain.rope, 16) / wanted).numpy()
    path = write_gguf(
        tmp_path / "m.gguf", "llama", plain, make_tensors(plain), extra={"rope_freqs.weight": divisors}
    )
    with GGUFSource(path) as source:
        assert source.config.rope.divisors == pytest.approx(divisors.tolist())
        torch.testing.assert_close(inverse_frequencies(source.config.rope, 16), wanted)
    folder = tmp_path / "converted"
    folder.mkdir()
    with pytest.raises(UnsupportedModel, match="divisors"):
        convert_gguf(path, folder)


REFUSED = [
    ({"llama.expert_count": 8}, "expert_count"),
    ({"llama.attention.sliding_window": 32}, "sliding_window"),
    ({"split.count": 3}, "merge"),
    ({"llama.rope.dimension_count": 8}, "rope.dimension_count"),
    ({"llama.attention.value_length": 8}, "value_length"),
]


@pytest.mark.parametrize(("metadata", "message"), REFUSED)
@pytest.mark.filterwarnings("ignore:Duplicated key")
def test_refused_settings(metadata: dict[str, int], message: str, tmp_path: Path, make_tensors: Any) -> None:
    config = make_config("llama")
    path = tmp_path / "m.gguf"
    write_gguf(path, "llama", config, make_tensors(config), metadata=metadata)
    with pytest.raises(UnsupportedModel, match=message):
        GGUFSource(path)


def test_refused_files(tmp_path: Path, make_tensors: Any) -> None:
    config = make_config("llama")
    tensors = make_tensors(config)
    path = write_gguf(tmp_path / "m.gguf", "llama", config, tensors)
    data = path.read_bytes()
    cut = tmp_path / "cut.gguf"
    for keep in (0, 3, 20, 200, len(data) // 2):
        cut.write_bytes(data[:keep])
        with pytest.raises(ModelError, match="download it again"):
            GGUFSource(cut)
    cut.write_bytes(b"not a model at all" * 20)
    with pytest.raises(ModelError, match="download it again"):
        GGUFSource(cut)
    other = write_gguf(tmp_path / "gemma.gguf", "gemma", config, tensors)
    with pytest.raises(UnsupportedModel, match=r"'gemma'.*llama, qwen2, qwen3"):
        GGUFSource(other)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    missing = write_gguf(tmp_path / "missing.gguf", "llama", config, tensors)
    with pytest.raises(ModelError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(missing, device=CPU)


def test_a_type_without_dequantisation(tmp_path: Path, make_tensors: Any) -> None:
    config = make_config("llama")
    tensors = make_tensors(config)
    del tensors["model.norm.weight"]
    extra = {"output_norm.weight": np.ones(64, dtype=np.int32)}
    path = write_gguf(tmp_path / "m.gguf", "llama", config, tensors, extra=extra)
    with pytest.raises(UnsupportedModel, match=r"output_norm\.weight has type I32"):
        load_model(path, device=CPU)
