"""What only a GPU can show; skipped without one."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
