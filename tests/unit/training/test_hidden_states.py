"""Hidden states that measures read: whose they are, where they stand, and what a learner may answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from groupwise import Algorithm, ConfigError, RecordError, Step, Task, Trajectory, methods
from groupwise.engines.open_engine import open_engine
from groupwise.learner.protocol import hash_weights, read_hidden_states
from groupwise.rollout.scorers import ResponseEmbedding, check_learner, read_response_states
from groupwise.system.errors import TrainingError
from groupwise.training.collect.collect import collect_update
from groupwise.training.collect.measuring import add_info
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.end_to_end import runs
from tests.unit.learner.learners import learner, tiny
from tests.unit.training.runs import small_config

PAIRS = [((2, 4), (5, 3, 6)), ((2, 5, 6, 7), (4,))]


def test_a_state_is_that_of_the_model_which_has_read_the_token() -> None:
    """The head makes of it the log-probs of what follows, as an engine with the same weights says them."""
    made = learner()
    engine = open_engine(tiny()[0])
    engine.load(made.weights(), version=1)
    head = made.model.get_output_embeddings()
    for (prompt, response), states in zip(PAIRS, made.hidden_states(PAIRS), strict=True):
        assert states.dtype == np.float64
        ids = torch.tensor([[*prompt, *response]])
        own = made.model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0, len(prompt) :]
        np.testing.assert_allclose(states, own.detach().double().numpy(), atol=1e-6)
        logps = head(torch.tensor(states).float()).log_softmax(-1).detach()
        following = [float(logps[place, token]) for place, token in enumerate(response[1:])]
        assert following == pytest.approx(engine.score([(prompt, response)], temperature=1.0)[0][1:], abs=1e-5)


class Counting:
    """Tools whose state of a token is (token, place): it counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def hidden(self, pairs: Any) -> list[Any]:
        self.asked += pairs
        return [
            np.array([[token, len(prompt) + place] for place, token in enumerate(response)], dtype=np.float64)
            for prompt, response in pairs
        ]


def rollout(number: int, *responses: tuple[int, ...], forced: int = 0) -> Trajectory:
    steps = tuple(
        Step(index=index, prompt_ids=(1, 1), response_ids=ids, forced=forced) for index, ids in enumerate(responses)
    )
    return Trajectory(id=str(number), task=Task(id="q"), rollout=number, steps=steps)


GROUPS = [[rollout(0, (5, 7), ()), rollout(1, (9, 3, 6), forced=1)], [rollout(2, (8,))]]


def test_states_are_those_of_sampled_tokens_one_response_at_a_time() -> None:
    tools = Counting()
    states = read_response_states(GROUPS, tools)  # type: ignore[arg-type]
    assert next(states).tolist() == [[5, 2], [7, 3]]
    assert tools.asked == [((1, 1), (5, 7))], "the next is asked for when it is wanted"
    assert [part.tolist() for part in states] == [[], [[3, 3], [6, 4]], [[8, 2]]]
    assert tools.asked[1] == ((1, 1, 9), (3, 6)), "what was forced is read like the prompt"


def test_an_embedding_is_the_mean_over_sampled_tokens() -> None:
    info = ResponseEmbedding()(GROUPS, Counting(), draw=None)  # type: ignore[arg-type]
    assert info == [
        [[{"embedding": [6.0, 2.5]}, {"embedding": []}], [{"embedding": [4.5, 3.5]}]],
        [[{"embedding": [8.0, 2.0]}]],
    ]
    with pytest.raises(RecordError, match="returned 'embedding', a name that is taken"):
        add_info(ResponseEmbedding(), add_info(ResponseEmbedding(), GROUPS, info), info)


def test_two_embeddings_need_two_names() -> None:
    part = ResponseEmbedding(info_key="point")
    assert part.writes == {"point"}
    assert part([[rollout(0, (5,))]], Counting(), draw=None) == [[[{"point": [5.0, 2.0]}]]]  # type: ignore[arg-type]


def test_the_info_of_a_run_are_means_of_its_learners_states(tmp_path: Path) -> None:
    algorithm = Algorithm(**methods.dr_grpo().config() | {"scorers": (ResponseEmbedding(),)})
    run = open_run(small_config().model_copy(update={"algorithm": algorithm}), tmp_path)
    rollouts = collect_update(run, 1)
    for trajectory in rollouts.chosen:
        for step in trajectory.steps:
            (states,) = run.learner.hidden_states([(step.prompt_ids, step.response_ids)])  # type: ignore[attr-defined]
            assert step.info["embedding"] == states.mean(axis=0).tolist()
    steps = [step for trajectory in rollouts.chosen for step in trajectory.steps]
    assert rollouts.scorer_costs["scorers/read_tokens"] == sum(
        len(step.prompt_ids) + len(step.response_ids) for step in steps
    )


def test_a_learner_that_gives_no_states_is_refused_by_name() -> None:
    algorithm = Algorithm(advantage=methods.grpo().advantage, scorers=(ResponseEmbedding(),))
    check_learner(algorithm, learner())
    with pytest.raises(ConfigError) as raised:
        check_learner(algorithm, object())
    assert str(raised.value) == (
        "algorithm.scorers: ResponseEmbedding reads hidden states, which object does not give; add hidden_states to "
        "the learner, or leave the scorer out"
    )


def rows(*shape: int, value: float = 0.5) -> Any:
    return np.full(shape, value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            None,
            "the learner Mine returned nothing as the hidden states of 2 responses; return a list with one array",
        ),
        (
            [rows(3, 4)],
            "the learner Mine returned a list of 1 as the hidden states of 2 responses; return a list with one",
        ),
        (
            [rows(3, 4), rows(2, 4)],
            "the learner Mine returned an array of 2 x 4 float64 as the hidden states of a response of 1 tokens;",
        ),
        (
            [rows(3, 4), rows(4)],
            "the learner Mine returned an array of 4 float64 as the hidden states of a response of 1",
        ),
        (
            [rows(3, 0), rows(1, 0)],
            "the learner Mine returned an array of 3 x 0 float64 as the hidden states of a response",
        ),
        (
            [rows(3, 4), rows(1, 4, value=np.nan)],
            "the learner Mine returned an array of 1 x 4 float64 with nan in it as the hidden states of a response",
        ),
        (
            [[[0.5]] * 3, rows(1, 4)],
            "the learner Mine returned a list of 3 as the hidden states of a response of 3 tokens;",
        ),
    ],
)
def test_an_answer_that_is_no_states_names_the_learner(answer: Any, said: str) -> None:
    with pytest.raises(TrainingError) as raised:
        read_hidden_states(answer, PAIRS, "the learner Mine")
    assert str(raised.value).startswith(said)


def test_states_of_another_precision_are_read_in_float64() -> None:
    answer: Sequence[Any] = [rows(3, 4).astype(np.float32), rows(1, 4)]
    assert [states.dtype for states in read_hidden_states(answer, PAIRS, "it")] == [np.float64] * 2


def run_ranked(folder: Path, updates: int, *, resume: bool = False) -> Run:
    """Answers of several tokens under the bonus for rank, whose averages are remembered."""
    rollout = RolloutConfig(max_tokens=6, group_size=8)
    settings = runs.config(updates, checkpoint_every=1, rollout=rollout, evaluation=EvaluationConfig(tasks=0))
    return runs.run_to_end(folder, settings.model_copy(update={"algorithm": methods.verl(stride=1)}), resume=resume)


def test_averages_of_ranks_survive_a_resume_to_the_bit(tmp_path: Path) -> None:
    whole = run_ranked(tmp_path / "whole", 4)
    run_ranked(tmp_path / "parted", 2)
    parted = run_ranked(tmp_path / "parted", 4, resume=True)
    for number in (1, 2, 3, 4):
        first, second = (run.journal.states_before(number) for run in (whole, parted))
        assert first == second
        ((_, (level, *_)),) = [(state.path, state.state["levels"]) for state in first]
        assert (level == -1.0) == (number == 1)
        rows, again = (list(run.journal.trajectories(number)) for run in (whole, parted))
        assert [(row["steps"], row["credit"]) for row in rows] == [(row["steps"], row["credit"]) for row in again]
    assert hash_weights(whole.learner.weights()) == hash_weights(parted.learner.weights())
    assert whole.part_states.describe_before([]) == parted.part_states.describe_before([])
