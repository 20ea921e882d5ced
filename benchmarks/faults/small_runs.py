"""Runs of a second or two, each of another method, that the campaign kills, starves of disk and damages."""

from __future__ import annotations

UPDATES = 6
HGPO = f"""
seed = 3
threads = 1

[algorithm]
method = "hgpo"

[env]
kind = "gridworld"
size = 3
num_holes = 1
max_steps = 6

[model]
kind = "tiny"
hidden = 32
layers = 1

[rollout]
max_tokens = 2
history = {{ kind = "anchored_window", low = 1, high = 3 }}
group_size = 8
plan = {{ kind = "top_up", rounds = 2 }}

[training]
updates = {UPDATES}
tasks = 4
checkpoint_every = 2

[training.learner]
minibatches = 2
schedule = {{ kind = "cosine", steps = 16 }}

[evaluation]
tasks = 10
every = 3

[warm_start]
tasks = 60
epochs = 2
learning_rate = 1e-2
"""
TOPPED_UP = 'group_size = 8\nplan = { kind = "top_up", rounds = 2 }'
R3 = (
    HGPO.replace('method = "hgpo"', 'method = "r3_hgpo"\ntau = 0.9\nwith_ranking = true')
    .replace(TOPPED_UP, "group_size = 4")
    .replace("[training.learner]", 'curriculum = { kind = "shuffled", first = 6 }\n\n[training.learner]')
)
"""Tasks that come round at once, few rollouts: it replays, reflects and ranks."""
DAPO = f"""
seed = 4
threads = 1

[algorithm]
method = "dapo"

[env]
kind = "reasoning_gym"
family = "gcd"
options = {{ max_value = 12 }}
num_train = 24
num_validation = 4
num_test = 8
form = "whole"
match_words = true

[model]
kind = "tiny"
hidden = 32
layers = 1

[rollout]
max_tokens = 3
group_size = 8
plan = {{ kind = "top_up", rounds = 2 }}

[training]
updates = {UPDATES}
tasks = 4
checkpoint_every = 2

[evaluation]
tasks = 4
every = 3

[warm_start]
tasks = 16
epochs = 2
"""
"""One answer a rollout, each judged in a verifier's process."""
REMEMBERING = (
    HGPO.replace(TOPPED_UP, "group_size = 4")
    .replace("[training.learner]", 'curriculum = { kind = "shuffled", first = 6 }\n\n[training.learner]')
    .replace(
        'method = "hgpo"',
        """method = "r2vpo"

[algorithm.advantage]
kind = "relative"
by = "by_task"
of = { kind = "above_prior", keep = 0.9 }
scale = "no_scale"

[algorithm.loss]
kind = "policy_loss"
surrogate = "plain"
aggregate = "token_mean"
penalties = [
    { kind = "ratio_variance", max_variance = 1e-4 },
    { kind = "entropy_corridor", weight = 0.01, low = 0.8, high = 1.2, updates = 8 },
]""",
    )
)
"""Three memories in one run: a baseline of each task, the multiplier of R2VPO, the usual entropies of EPO."""
RUNS = {"hgpo": HGPO, "r3_hgpo": R3, "dapo": DAPO}


def with_workers(run: str, workers: int) -> str:
    """The run with so many worker processes."""
    return run.replace("[rollout]", f"[rollout]\nworkers = {workers}")
