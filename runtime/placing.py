"""The model that an engine's settings ask for, on its device and in its precision."""

from __future__ import annotations

from pathlib import Path

import torch

from treille.runtime.errors import InvalidRequest
from treille.runtime.models.load import LoadedModel, load_model

DEVICES = ("cpu", "cuda")
# Of activations and cache, and the bits of the linear layers' weights where those are rounded.
DTYPES = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "int8": (torch.bfloat16, 8),
    "int4": (torch.bfloat16, 4),
}


def placed(
    model: str | Path | LoadedModel,
    *,
    device: str | None,
    dtype: str | None,
    max_seq_len: int | None,
    deterministic: bool,
) -> LoadedModel:
    """The model, loaded now if it is not. Raises `InvalidRequest` for settings that do not go together or do
    not fit a loaded model, `ModelError` and its kind for the model."""
    where, (precision, bits) = _device(device), _dtype(dtype)
    if bits is not None and where.type != "cpu":
        raise InvalidRequest(
            f"dtype {dtype} runs on the CPU alone: take bfloat16 on {where.type}, or device cpu",
            field="dtype",
        )
    if deterministic and where.type != "cpu":
        raise InvalidRequest("deterministic runs on the CPU alone: take device cpu", field="deterministic")
    if not isinstance(model, LoadedModel):
        return load_model(
            model,
            dtype=precision,
            device=where,
            max_seq_len=max_seq_len,
            bits=bits,
            deterministic=deterministic,
        )
    if device is not None and where != model.model.device:
        raise InvalidRequest(f"the loaded model is on {model.model.device}", field="device")
    if dtype is not None and (precision, bits) != (model.model.dtype, model.bits):
        stored = "" if model.bits is None else f" with weights of {model.bits} bits"
        raise InvalidRequest(f"the loaded model is {model.model.dtype}{stored}", field="dtype")
    if deterministic and not model.deterministic:
        raise InvalidRequest(
            "the model was not loaded with deterministic=True: load it so", field="deterministic"
        )
    return model


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device: torch.device | None = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in DEVICES:
        raise InvalidRequest(f"device {name!r} is not supported: use cpu or cuda", field="device")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidRequest("device is cuda and this machine has none that PyTorch can use", field="device")
    return device


def _dtype(name: str | None) -> tuple[torch.dtype | None, int | None]:
    if name is None:
        return None, None
    if name not in DTYPES:
        raise InvalidRequest(f"dtype must be one of {', '.join(DTYPES)}, not {name!r}", field="dtype")
    return DTYPES[name]
