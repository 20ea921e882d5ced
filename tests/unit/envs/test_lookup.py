"""Look-ups: a hop by hand, what may be searched, the verifier, the single-turn variant."""

from __future__ import annotations

import pytest

from groupwise import ConfigError, Task
from groupwise.envs import Lookup
from groupwise.envs.small.lookup import follow_chain, is_right_answer

INFO = {"boss of anna": "ben", "friend of anna": "clara", "city of ben": "oslo", "city of anna": "rome"}
INFO |= {f"{ask} of ben": "anna" for ask in ("boss", "friend", "neighbour", "teacher")}


def question(hops: int = 2, chain: tuple[str, ...] = ("anna", "boss", "city")) -> Task:
    return Task.create(env="lookup", payload={"hops": hops, "facts": INFO, "chain": list(chain)})


def test_two_hops_by_hand() -> None:
    environment = Lookup().open(question())
    first = environment.observe()
    assert (first.goal, first.text) == ("what is the city of the boss of anna?", "Nothing is known.")
    assert first.admissible is not None
    assert "search boss of anna" in first.admissible
    assert "search city of ben" not in first.admissible, "nobody has spoken of ben yet"
    assert not environment.act("search city of ben").accepted
    assert environment.act("search boss of anna").observation.text == "The boss of anna is ben."
    assert environment.act("search city of ben").observation.text == "The city of ben is oslo."
    last = environment.act("answer  Oslo ")
    assert (last.observation.text, last.reward, last.success, last.terminated) == ("Right.", 1.0, True, True)


def test_a_wrong_answer_ends_the_rollout_and_talk_does_not() -> None:
    environment = Lookup().open(question())
    talk = environment.act("I would search for the boss")
    assert (talk.accepted, talk.ended) == (False, False)
    wrong = environment.act("answer rome")
    assert (wrong.terminated, wrong.success, wrong.reward, wrong.accepted) == (True, False, 0.0, True)


def test_the_key_is_what_is_known_in_any_order() -> None:
    one, other = Lookup().open(question()), Lookup().open(question())
    for search in ("search boss of anna", "search friend of anna"):
        one.act(search)
    for search in ("search friend of anna", "search boss of anna", "search boss of anna"):
        other.act(search)
    assert (
        one.observe().state_key == other.observe().state_key == "The boss of anna is ben. The friend of anna is clara."
    )


def test_with_no_hops_the_facts_are_given_and_one_action_ends_it() -> None:
    part = Lookup(hops=0)
    task = Task.create(env="lookup", payload={"hops": 0, "facts": {"pet of anna": "cat"}, "chain": ["anna", "pet"]})
    environment = part.open(task)
    assert environment.observe().text == "Task: what is the pet of anna? The pet of anna is cat."
    assert environment.expert() == "answer cat"
    assert environment.act("answer cat").success is True
    talk = part.open(task).act("search pet of anna")
    assert (talk.terminated, talk.success, talk.accepted) == (True, False, False)


@pytest.mark.parametrize("hops", [0, 1, 2, 3, 4])
def test_the_expert_needs_a_search_for_each_hop_and_an_answer(hops: int) -> None:
    part = Lookup(hops=hops)
    for task in part.task_set("test")[:50]:
        environment, steps = part.open(task), 1
        while not (outcome := environment.act(environment.expert() or "")).ended:
            steps += 1
        assert (outcome.success, steps) == (True, hops + 1)


def test_following_and_verifying() -> None:
    assert follow_chain(INFO, ["anna", "boss", "boss", "city"]) == "rome"
    assert is_right_answer("ROME", facts=INFO, chain=["anna", "city"])
    assert not is_right_answer("rome oslo", facts=INFO, chain=["anna", "city"])


def test_too_few_steps_for_the_hops_are_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        Lookup(hops=3, max_steps=3)
    assert "3 searches and an answer do not fit into max_steps, 3; raise max_steps" in str(raised.value)


def test_the_facts_of_two_hops_by_hand() -> None:
    environment = Lookup().open(question())
    gold = {
        "gold_answer": "oslo",
        "gold_calls": [
            {"name": "search", "arguments": {"relation": "boss", "person": "anna"}},
            {"name": "search", "arguments": {"relation": "city", "person": "ben"}},
        ],
        "gold_entities": ["ben", "oslo"],
    }
    early = environment.act("search city of ben")
    call = {"name": "search", "arguments": {"relation": "city", "person": "ben"}}
    assert early.info == gold | {
        "calls": [call],
        "num_calls": 1,
        "entities": ["ben"],
        "checks": {"read": True, "fits": False},
    }, "a call that was read and refused is a call"
    carried_out = environment.act("search boss of anna")
    assert carried_out.info == gold | {
        "calls": gold["gold_calls"][:1],
        "num_calls": 1,
        "entities": [],
        "checks": {"read": True, "fits": True},
    }, "what is told in return was not named by the action"
    talk = environment.act("I would search for the boss")
    assert talk.info == gold | {"calls": [], "num_calls": 0, "entities": [], "checks": {"read": False}}
    last = environment.act("answer  Oslo ")
    assert last.info == gold | {
        "answer": "oslo",
        "exact": True,
        "calls": [],
        "num_calls": 0,
        "entities": ["oslo"],
        "checks": {"read": True, "fits": True, "right": True},
    }


def test_where_nothing_can_be_searched_no_call_is_read_and_none_is_needed() -> None:
    task = Task.create(env="lookup", payload={"hops": 0, "facts": {"pet of anna": "cat"}, "chain": ["anna", "pet"]})
    info = Lookup(hops=0).open(task).act("search pet of anna").info
    assert info == {
        "gold_answer": "cat",
        "gold_calls": [],
        "gold_entities": ["cat"],
        "calls": [],
        "num_calls": 0,
        "entities": [],
        "checks": {"read": False},
    }


def test_a_fork_tells_the_same_info() -> None:
    environment = Lookup().open(question())
    environment.act("search boss of anna")
    assert environment.fork().act("answer rome").info == environment.act("answer rome").info
