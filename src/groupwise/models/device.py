"""What a model computes on, by name."""

from __future__ import annotations

import torch

from groupwise.core.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" = a GPU where there is one. One that cannot be used here is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device: {name!r} cannot be used ({reason}); give cpu, cuda, or auto") from None
    return device
