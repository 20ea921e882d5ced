"""DisCO as somebody outside groupwise would add it: a loss over groups that is no sum over samples."""

from __future__ import annotations

from contrast.disco import Disco

__all__ = ["Disco"]
