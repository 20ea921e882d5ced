"""Classes of configurations that must agree; without torch and transformers every module is skipped."""

import pytest

torch = pytest.importorskip("torch", reason="the layouts are torch tensors")
pytest.importorskip("transformers", reason="the layouts are compared on Hugging Face models")
torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other
