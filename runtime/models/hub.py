"""Models from the Hugging Face hub: safetensors and JSON only, never pickles or code."""

from __future__ import annotations

from pathlib import Path

import httpx
import huggingface_hub
from huggingface_hub import errors

from treille.runtime.errors import ModelError, ModelNotFound

_WANTED = ["*.safetensors", "*.json", "chat_template.jinja"]
# Sub-folders hold other formats; "consolidated" files repeat the weights in Mistral's own layout.
_UNWANTED = ["*/*", "consolidated*"]
_OFFLINE = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, httpx.TransportError)


def download(repo_id: str) -> Path:
    """The folder of the newest snapshot, from the hub's local cache where it is complete.

    Raises `ModelNotFound` or `ModelError` with what to do about it.
    """
    try:
        folder = huggingface_hub.snapshot_download(repo_id, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{repo_id} is gated: accept its terms at https://huggingface.co/{repo_id}, then run "
            "`hf auth login` or set HF_TOKEN"
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ModelNotFound(
            f"the hub has no model {repo_id} that you may read: check the name, "
            "or set HF_TOKEN if it is private"
        ) from error
    except (*_OFFLINE, ConnectionError) as error:
        raise ModelNotFound(
            f"{repo_id} is not in the local cache and the hub cannot be reached: connect (and unset "
            "HF_HUB_OFFLINE), or give the path of a folder or .gguf file"
        ) from error
    except OSError as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ModelError(f"{repo_id} could not be downloaded: {first_line}; try again") from error
    path = Path(folder)
    if not any(path.glob("*.safetensors")):
        raise ModelNotFound(
            f"{repo_id} holds no safetensors weights; other formats are not downloaded: convert them, "
            "or give the path of a .gguf file"
        )
    return path
