"""Look-ups in a small world of people: search fact by fact, then answer; or answer from given facts at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.info import list_named, write_call, write_checks, write_text
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of
from groupwise.parts.part import Part

ENV = "lookup"
SIZES = TaskSetSizes(train=2000, validation=200, test=400)
PEOPLE = ("anna", "ben", "clara", "david", "emma", "felix", "greta", "hugo")
TIES = ("boss", "friend", "neighbour", "teacher")
"""What leads from a person to another."""
TRAITS = {
    "city": ("berlin", "cairo", "lima", "oslo", "paris", "rome"),
    "job": ("baker", "doctor", "farmer", "painter", "pilot", "tailor"),
    "pet": ("cat", "dog", "fish", "horse", "parrot", "rabbit"),
}
"""What a question asks for, and the possible values."""


class Lookup(Part, slot="env", self_contained=True):
    """Questions about people, such as "what is the city of the boss of anna?", with searches and a verifier.

    `search boss of anna` tells "The boss of anna is ben."; `answer paris` ends the rollout. A search is invalid if it
    cannot be read, or if the agent has not seen the person's name. With `hops` 0 the task is single-turn: the text
    contains the facts, and the first action ends the rollout.

    Choices: an answer is right if it names the value, in any case and spacing. `state_key` is the list of facts that
    the agent has found, in alphabetical order.
    """

    writes: ClassVar[frozenset[str]] = frozenset(
        {"answer", "gold_answer", "exact", "calls", "num_calls", "gold_calls", "entities", "gold_entities", "checks"}
    )
    hops: Annotated[int, Field(ge=0, le=4)] = 2
    """Searches that an answer needs; 0 = the facts are given."""
    num_people: Annotated[int, Field(ge=3, le=len(PEOPLE))] = 5
    """People per task."""
    max_steps: Annotated[int, Field(ge=1)] = 8
    """Steps before a rollout is truncated."""
    success_reward: float = 1.0
    """Reward of a right answer."""
    goal_in_text: bool = False
    """Whether each text begins with the task; with 0 hops it always does."""

    @model_validator(mode="after")
    def _solvable_in_time(self) -> Lookup:
        if self.hops + 1 > self.max_steps:
            raise ValueError(
                f"{self.hops} searches and an answer do not fit into max_steps, {self.max_steps}; raise max_steps"
            )
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(draw_task_sets(ENV, _draw, self.hops, self.num_people, sizes=SIZES), split)

    def open(self, task: Task) -> LookupEnvironment:
        check_env(task, ENV)
        return LookupEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        values = [value for trait in TRAITS.values() for value in trait]
        sentences = "Task: what is the of? The of is. Nothing is known. Nothing happens. Right. Wrong. search answer"
        return vocabulary_of((self.instruction(), sentences, *PEOPLE, *TIES, *TRAITS, *values))

    def instruction(self) -> str:
        return "Answer the question: search fact by fact, then answer."


class LookupEnvironment(SteppedEnvironment):
    """One rollout of a question."""

    def __init__(self, task: Task, part: Lookup) -> None:
        super().__init__(task, part.max_steps)
        self._part = part
        self._facts: Mapping[str, str] = task.payload["facts"]
        self._chain: tuple[str, ...] = tuple(task.payload["chain"])
        self._hops = int(task.payload["hops"])
        self._question = f"what is the {' of the '.join(self._chain[:0:-1])} of {self._chain[0]}?"
        self._gold = _list_gold_facts(self._facts, self._chain, has_searches=self._hops > 0)
        self._known_facts: tuple[str, ...] = tuple(self._facts) if self._hops == 0 else ()
        self._progress.observation = self._observe(self._tell_known())

    def act(self, action: str) -> Outcome:
        self._progress.step()
        verb, _, rest = action.partition(" ")
        if verb == "answer" and rest.strip():
            return self._answer(action, rest)
        calls = _read_calls(verb, rest) if self._hops else []
        if self._hops == 0 or verb != "search" or action not in (self.observe().admissible or ()):
            info = self._tell_info(action, calls, write_checks(read=bool(calls), fits=False if calls else None))
            success = None if self._hops else False
            return self._progress.outcome(self._observe(NOTHING_HAPPENS), success=success, accepted=False, info=info)
        self._known_facts = tuple(sorted({*self._known_facts, rest}))
        info = self._tell_info(action, calls, write_checks(read=True, fits=True))
        return self._progress.outcome(self._observe(_tell_fact(rest, self._facts[rest])), info=info)

    def _answer(self, action: str, answer: str) -> Outcome:
        right = is_right_answer(answer, facts=self._facts, chain=self._chain)
        reward = self._part.success_reward if right else 0.0
        info = self._tell_info(action, [], write_checks(read=True, fits=True, right=right))
        info |= {"answer": write_text(normalise_answer(answer)), "exact": right}
        seen = self._observe("Right." if right else "Wrong.")
        return self._progress.outcome(seen, success=right, reward=reward, info=info)

    def _tell_info(self, action: str, calls: list[Any], checks: dict[str, bool]) -> dict[str, Any]:
        entities = list_named(self._gold["gold_entities"], action)
        return {**self._gold, "calls": calls, "num_calls": len(calls), "entities": entities, "checks": checks}

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        for fact in _list_needed_facts(self._facts, self._chain):
            if fact not in self._known_facts:
                return f"search {fact}"
        return f"answer {follow_chain(self._facts, self._chain)}"

    def _tell_known(self) -> str:
        return " ".join(_tell_fact(fact, self._facts[fact]) for fact in self._known_facts) or "Nothing is known."

    def _observe(self, text: str) -> Observation:
        people = {self._chain[0], *(self._facts[fact] for fact in self._known_facts)} if self._hops else set()
        searches = [
            f"search {relation} of {person}" for person in PEOPLE if person in people for relation in (*TIES, *TRAITS)
        ]
        answers = [f"answer {value}" for value in TRAITS[self._chain[-1]]]
        shows_question = self._part.goal_in_text or self._hops == 0
        return Observation(
            text=prepend_goal(self._question, text) if shows_question else text,
            state_key=self._tell_known(),
            admissible=(*searches, *answers),
            goal=self._question,
        )


def follow_chain(facts: Mapping[str, str], chain: Sequence[str]) -> str:
    """The answer to a question: from the person that begins the chain, tie by tie to the trait."""
    person, *relations = chain
    for relation in relations:
        person = facts[f"{relation} of {person}"]
    return person


def is_right_answer(answer: str, *, facts: Mapping[str, str], chain: Sequence[str]) -> bool:
    return normalise_answer(answer) == follow_chain(facts, chain)


def normalise_answer(answer: str) -> str:
    return " ".join(answer.lower().split())


def _read_calls(verb: str, rest: str) -> list[dict[str, Any]]:
    """The search of an action, valid or not; empty = the action is no search."""
    relation, _, person = (part.strip() for part in rest.partition(" of "))
    is_search = verb == "search" and relation and person
    return [write_call("search", {"relation": relation, "person": person})] if is_search else []


def _list_gold_facts(facts: Mapping[str, str], chain: Sequence[str], *, has_searches: bool) -> dict[str, Any]:
    needed = _list_needed_facts(facts, chain) if has_searches else []
    return {
        "gold_answer": follow_chain(facts, chain),
        "gold_calls": [call for fact in needed for call in _read_calls("search", fact)],
        "gold_entities": [follow_chain(facts, chain[:length]) for length in range(2, len(chain) + 1)],
    }


def _list_needed_facts(facts: Mapping[str, str], chain: Sequence[str]) -> list[str]:
    return [f"{relation} of {follow_chain(facts, chain[: 1 + step])}" for step, relation in enumerate(chain[1:])]


def _tell_fact(fact: str, value: str) -> str:
    return f"The {fact} is {value}."


def _draw(hops: int, num_people: int, index: int) -> Proposal | None:
    draws = Draws(ENV, hops, num_people, index)
    people = sorted(draws.sample(PEOPLE, num_people))
    trait = draws.pick(tuple(TRAITS))
    if hops == 0:
        facts = {f"{trait} of {person}": draws.pick(TRAITS[trait]) for person in people}
        chain = [draws.pick(people), trait]
    else:
        facts = {
            f"{relation} of {person}": draws.pick(
                TRAITS[relation] if relation in TRAITS else [p for p in people if p != person]
            )
            for person in people
            for relation in (*TIES, *TRAITS)
        }
        chain = [draws.pick(people), *(draws.pick(TIES) for _ in range(hops - 1)), trait]
    if len({follow_chain(facts, chain[: 1 + step]) for step in range(hops)}) < hops:
        return None  # the chain comes back to a person, and the answer needs fewer searches than it should
    return Proposal(payload={"hops": hops, "facts": facts, "chain": chain})
