"""What a run imports while it opens its model and learns: imported at once, so that forked processes need not do so."""

import importlib

for name in (
    "numpy.ma",
    "tokenizers.trainers",
    "torch.profiler",
    "torch.utils.checkpoint",
    "transformers.models.llama.modeling_llama",
    "transformers.tokenization_utils_tokenizers",
    "groupwise.training.loop",
    "groupwise.engines.open_engine",
    "groupwise.models.tiny",
    "groupwise.learner.local",
):
    importlib.import_module(name)
