"""R^3 on DeepScaleR: what its paper gives, and what is ours, because the paper gives nothing and no code is public."""

from __future__ import annotations

from tests.published.released import Published

PAPER = "arXiv:2601.19620/"
OURS = "ours/"

R3 = [
    Published("model.path", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", f"{PAPER}experiments: base model"),
    Published("env.kind", "math", f"{PAPER}experiments: DeepScaleR, about 40,000 problems with an answer"),
    Published("env.form", "boxed", f"{OURS}the form that math-verify reads; the paper has Qwen2.5-Math's evaluator"),
    Published("algorithm.method", "r3", f"{PAPER}algorithm 1"),
    Published("algorithm.with_replay", True, f"{PAPER}algorithm 1"),
    Published("algorithm.with_reflection", True, f"{PAPER}algorithm 1"),
    Published("algorithm.with_ranking", True, f"{PAPER}algorithm 1"),
    Published("algorithm.k", 1, f"{OURS}the paper names k and gives no value"),
    Published("algorithm.alpha", 1.0, f"{OURS}the paper names alpha and gives no value"),
    Published("algorithm.tau", 0.25, f"{OURS}the paper names tau and gives no value"),
    Published("algorithm.shapers.0.kind", "entropy_ranking", f"{PAPER}structural entropy ranking reward"),
    Published("algorithm.shapers.0.who", "truncated", f"{PAPER}algorithm 1: truncated responses"),
    Published("algorithm.shapers.0.finished", "zero", f"{PAPER}algorithm 1: others keep their reward"),
    Published("algorithm.shapers.0.p", 0.2, f"{OURS}the paper names p and gives no value"),
    Published("algorithm.shapers.0.best", 0.5, f"{OURS}the paper names R_max and gives no value"),
    Published("algorithm.replay.ratio", "recomputed", f"{PAPER}no log-prob of the past is stored"),
    Published("algorithm.replay.max_log_ratio", 1e9, f"{PAPER}no response is left out"),
    Published("algorithm.loss.surrogate.kind", "clip", f"{PAPER}objective: clipped"),
    Published("algorithm.loss.surrogate.low", 0.2, f"{OURS}the paper gives no value"),
    Published("algorithm.loss.surrogate.high", 0.2, f"{OURS}the paper gives no value"),
    Published("algorithm.loss.penalties.0.kind", "kl", f"{PAPER}objective: KL to the reference"),
    Published("algorithm.loss.penalties.0.weight", 0.001, f"{OURS}the paper gives no value"),
    Published("rewards.0.kind", "outcome", f"{PAPER}reward: right or wrong"),
    Published("rewards.0.solved", 1.0, f"{PAPER}reward: right 1"),
    Published("rewards.0.failed", 0.0, f"{PAPER}reward: wrong 0"),
    Published("rewards.1.kind", "brevity", f"{PAPER}reward: max(0, 1 - l / L_max) for right answers"),
    Published("rewards.1.limit", 32768, f"{PAPER}reward: L_max"),
    Published("rollout.max_tokens", 8192, f"{PAPER}conclusion: 8K tokens in training"),
    Published("rollout.group_size", 8, f"{OURS}the paper names G and gives no value"),
    Published("rollout.temperature", 1.0, f"{OURS}the paper gives no value"),
    Published("training.tasks", 128, f"{OURS}the paper gives no value"),
    Published("training.updates", 1406, f"{OURS}five passes over 36,000 problems; the paper gives no value"),
    Published("training.learner.learning_rate", 1e-6, f"{OURS}the paper gives no value"),
    Published("evaluation.rollouts", 16, f"{PAPER}table 1: mean over 16 answers"),
    Published("evaluation.temperature", 0.6, f"{OURS}the paper gives no value"),
    Published("evaluation.top_p", 0.95, f"{OURS}the paper gives no value"),
    Published("evaluation.max_tokens", 32768, f"{OURS}the paper's L_max; it gives no limit for table 2"),
]
