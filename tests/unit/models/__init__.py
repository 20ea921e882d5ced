"""Tests of groupwise.models; without torch every module of the package is skipped."""

import pytest

torch = pytest.importorskip("torch", reason="models are torch's")
torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other
