"""The household: its sentences and rules by hand, its expert against a search, its keys against the hidden state."""

from __future__ import annotations

from collections import deque

import pytest

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import Household, RolloutEnded
from groupwise.envs.household import CATEGORIES, HouseholdEnvironment, find_shortest_plan
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.words import split_words

PLAIN = Household(show_carried=False)
KITCHEN = ["cabinet 1", "countertop 1", "fridge 1", "microwave 1", "sinkbasin 1"]


def home(family: str, thing: str, target: str, things: dict[str, str], **more: object) -> Task:
    payload = {"family": family, "thing": thing, "target": target, "places": KITCHEN, "things": things, **more}
    return Task.create(env="household", payload=payload)


def play(environment: HouseholdEnvironment, *actions: str) -> list[str]:
    return [environment.act(action).observation.text for action in actions]


def test_a_whole_rollout_by_hand() -> None:
    task = home("clean", "mug", "cabinet", {"mug 1": "fridge 1", "mug 2": "countertop 1", "pan 1": "countertop 1"})
    environment = PLAIN.open(task)
    first = environment.observe()
    assert first.goal == "put a clean mug in cabinet."
    assert first.text == (
        "In the room, you see a cabinet 1, a countertop 1, a fridge 1, a microwave 1, and a sinkbasin 1."
    )
    assert first.admissible == (*(f"go to {place}" for place in KITCHEN), "look", "inventory")
    assert play(
        environment,
        "go to fridge 1",
        "open fridge 1",
        "take mug 1 from fridge 1",
        "examine mug 1",
        "go to sinkbasin 1",
        "clean mug 1 with sinkbasin 1",
        "inventory",
        "go to cabinet 1",
        "move mug 1 to cabinet 1",
        "open cabinet 1",
    ) == [
        "You arrive at fridge 1. The fridge 1 is closed.",
        "You open the fridge 1. In it, you see a mug 1.",
        "You pick up the mug 1 from the fridge 1.",
        "This is a mug 1.",
        "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.",
        "You clean the mug 1 using the sinkbasin 1.",
        "You carry a clean mug 1.",
        "You arrive at cabinet 1. The cabinet 1 is closed.",
        "Nothing happens.",
        "You open the cabinet 1. In it, you see nothing.",
    ]
    last = environment.act("move mug 1 to cabinet 1")
    assert last.observation.text == "You move the mug 1 to the cabinet 1."
    assert (last.reward, last.terminated, last.truncated, last.accepted, last.success) == (1.0, True, False, True, True)
    with pytest.raises(RolloutEnded) as raised:
        environment.act("look")
    assert str(raised.value) == f"task {task.id}: the rollout ended after 11 steps; open the task again"


def test_what_is_listed_is_what_is_possible() -> None:
    task = home("heat", "egg", "countertop", {"egg 1": "fridge 1", "knife 1": "countertop 1"})
    environment = PLAIN.open(task)
    play(environment, "go to fridge 1", "open fridge 1")
    listed = environment.observe().admissible
    assert listed is not None
    assert set(listed) == {
        *(f"go to {place}" for place in KITCHEN if place != "fridge 1"),
        "close fridge 1",
        "take egg 1 from fridge 1",
        "examine fridge 1",
        "look",
        "inventory",
    }
    play(environment, "take egg 1 from fridge 1", "go to microwave 1")
    listed = environment.observe().admissible
    assert listed is not None
    assert {command for command in listed if not command.startswith("go")} == {
        "open microwave 1",
        "heat egg 1 with microwave 1",
        "examine microwave 1",
        "examine egg 1",
        "look",
        "inventory",
    }


@pytest.mark.parametrize(
    "action",
    [
        "go to countertop 1",  # is there already
        "go to countertop 2",  # there is none
        "take egg 1 from fridge 1",  # is elsewhere
        "take knife 2 from countertop 1",  # there is none
        "move knife 1 to countertop 1",  # carries nothing
        "open countertop 1",  # has no door
        "clean knife 1 with sinkbasin 1",
        "use desklamp 1",  # there is no lamp
        "Look",
        "",
    ],
)
def test_nothing_happens_at_an_impossible_command(action: str) -> None:
    environment = PLAIN.open(home("pick", "egg", "microwave", {"egg 1": "fridge 1", "knife 1": "countertop 1"}))
    environment.act("go to countertop 1")
    key = environment.observe().state_key
    outcome = environment.act(action)
    assert (outcome.observation.text, outcome.accepted, outcome.reward) == ("Nothing happens.", False, 0.0)
    assert outcome.observation.state_key == key


def test_one_thing_is_carried_at_a_time_and_said_once() -> None:
    part = Household()
    environment = part.open(home("pick", "egg", "microwave", {"egg 1": "countertop 1", "pan 1": "countertop 1"}))
    assert play(
        environment,
        "go to countertop 1",
        "take pan 1 from countertop 1",
        "take egg 1 from countertop 1",
        "inventory",
        "go to sinkbasin 1",
        "clean pan 1 with sinkbasin 1",
        "look",
        "move pan 1 to sinkbasin 1",
        "inventory",
    ) == [
        "You arrive at countertop 1. On the countertop 1, you see a egg 1, and a pan 1.",
        "You pick up the pan 1 from the countertop 1.",
        "Nothing happens. You carry a pan 1.",
        "You carry a pan 1.",
        "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing. You carry a pan 1.",
        "You clean the pan 1 using the sinkbasin 1.",
        "You are facing the sinkbasin 1. On the sinkbasin 1, you see nothing. You carry a clean pan 1.",
        "You move the pan 1 to the sinkbasin 1.",
        "You carry nothing.",
    ]


def test_the_goal_can_be_said_in_each_text() -> None:
    environment = Household(goal_in_text=True).open(
        home("two", "egg", "microwave", {"egg 1": "fridge 1", "egg 2": "fridge 1"})
    )
    assert environment.observe().text.startswith("Task: put two egg in microwave. In the room")
    assert environment.act("go to fridge 1").observation.text == (
        "Task: put two egg in microwave. You arrive at fridge 1. The fridge 1 is closed."
    )


def test_heat_undoes_cold_but_not_cleanness() -> None:
    environment = PLAIN.open(home("cool", "egg", "cabinet", {"egg 1": "countertop 1"}))
    play(environment, "go to countertop 1", "take egg 1 from countertop 1")
    play(environment, "go to sinkbasin 1", "clean egg 1 with sinkbasin 1")
    play(environment, "go to fridge 1", "cool egg 1 with fridge 1")
    assert play(environment, "inventory") == ["You carry a clean cool egg 1."]
    play(environment, "go to microwave 1", "heat egg 1 with microwave 1")
    assert play(environment, "inventory") == ["You carry a clean hot egg 1."]
    play(environment, "go to cabinet 1", "open cabinet 1")
    assert environment.act("move egg 1 to cabinet 1").success is None


def test_two_things_must_lie_in_one_receptacle() -> None:
    places = ["desk 1", "drawer 1", "drawer 2"]
    task = home("two", "cd", "drawer", {"cd 1": "desk 1", "cd 2": "desk 1"}, places=places)
    environment = PLAIN.open(task)
    for drawer, cd in (("drawer 1", "cd 1"), ("drawer 2", "cd 2")):
        play(environment, "go to desk 1", f"take {cd} from desk 1", f"go to {drawer}", f"open {drawer}")
        outcome = environment.act(f"move {cd} to {drawer}")
    assert outcome.success is None
    play(environment, "take cd 2 from drawer 2", "go to drawer 1")
    assert environment.act("move cd 2 to drawer 1").success is True


def test_looking_under_the_lamp_in_either_order() -> None:
    places = ["bed 1", "desk 1", "drawer 1"]
    task = home("examine", "cd", "desklamp", {"cd 1": "desk 1", "book 1": "bed 1"}, places=places, lamp="desk 1")
    first = PLAIN.open(task)
    assert first.observe().goal == "look at cd under the desklamp."
    assert play(first, "go to desk 1", "use desklamp 1", "use desklamp 1") == [
        "You arrive at desk 1. On the desk 1, you see a cd 1, and a desklamp 1.",
        "You turn on the desklamp 1.",
        "Nothing happens.",
    ]
    assert first.act("take cd 1 from desk 1").success is True
    second = PLAIN.open(task)
    play(second, "go to desk 1", "take cd 1 from desk 1")
    assert second.act("use desklamp 1").success is True
    wrong = PLAIN.open(task)
    play(wrong, "go to bed 1", "take book 1 from bed 1", "go to desk 1")
    assert wrong.act("use desklamp 1").success is None, "the book was not asked for"


def test_a_lamp_left_behind_lights_nothing() -> None:
    places = ["bed 1", "desk 1", "drawer 1"]
    task = home("examine", "cd", "desklamp", {"cd 1": "bed 1"}, places=places, lamp="desk 1")
    environment = PLAIN.open(task)
    play(environment, "go to desk 1", "use desklamp 1")
    assert environment.observe().state_key == "desk 1 in the light: nothing; carrying nothing"
    play(environment, "go to bed 1")
    assert environment.act("take cd 1 from bed 1").success is None
    assert find_shortest_plan(environment._home, environment._state) == ["go to desk 1"], "the lamp is on already"
    assert environment.act("go to desk 1").success is True


def test_only_some_things_can_be_heated() -> None:
    environment = PLAIN.open(home("pick", "knife", "cabinet", {"knife 1": "countertop 1"}))
    play(environment, "go to countertop 1", "take knife 1 from countertop 1", "go to microwave 1")
    assert environment.act("heat knife 1 with microwave 1").accepted is False
    play(environment, "go to sinkbasin 1")
    assert environment.act("clean knife 1 with sinkbasin 1").accepted is True


def test_a_thing_put_away_untreated_is_fetched_again() -> None:
    environment = PLAIN.open(home("clean", "mug", "countertop", {"mug 1": "fridge 1"}))
    play(environment, "go to fridge 1", "open fridge 1", "take mug 1 from fridge 1", "go to countertop 1")
    assert environment.act("move mug 1 to countertop 1").success is None
    assert find_shortest_plan(environment._home, environment._state) == [
        "take mug 1 from countertop 1",
        "go to sinkbasin 1",
        "clean mug 1 with sinkbasin 1",
        "go to countertop 1",
        "move mug 1 to countertop 1",
    ]


def test_success_reward_and_truncation() -> None:
    task = home("pick", "egg", "sinkbasin", {"egg 1": "countertop 1"})
    part = Household(success_reward=10.0, max_steps=3)
    slow = part.open(task)
    play(slow, "go to countertop 1", "look")
    last = slow.act("look")
    assert (last.terminated, last.truncated, last.success, last.reward) == (False, True, False, 0.0)
    quick = Household(success_reward=10.0, max_steps=4).open(task)
    play(quick, "go to countertop 1", "take egg 1 from countertop 1", "go to sinkbasin 1")
    last = quick.act("move egg 1 to sinkbasin 1")
    assert (last.terminated, last.truncated, last.success, last.reward) == (True, False, True, 10.0)


def test_the_key_is_the_visible_situation_however_one_came_to_it() -> None:
    task = home("pick", "egg", "sinkbasin", {"egg 1": "fridge 1", "pan 1": "countertop 1"})
    opened, returned = PLAIN.open(task), PLAIN.open(task)
    play(opened, "go to fridge 1", "open fridge 1")
    play(returned, "go to fridge 1", "open fridge 1", "go to countertop 1", "go to fridge 1")
    assert opened.observe().state_key == returned.observe().state_key == "fridge 1: egg 1; carrying nothing"
    assert opened.observe().text != returned.observe().text
    play(opened, "take egg 1 from fridge 1", "go to microwave 1", "heat egg 1 with microwave 1")
    assert opened.observe().state_key == "microwave 1: closed; carrying hot egg 1"
    play(opened, "open microwave 1", "move egg 1 to microwave 1")
    assert opened.observe().state_key == "microwave 1: hot egg 1; carrying nothing"


def whole_state(environment: HouseholdEnvironment) -> tuple[object, ...]:
    state = environment._state
    return (state.location, *state.where, *state.opened, *state.conditions, state.lamp_on)


def test_equal_keys_list_equal_commands() -> None:
    part = Household(max_steps=60)
    for task in part.task_set("train")[:60]:
        listed: dict[object, object] = {}
        for rollout in range(3):
            environment, draws = part.open(task), Draws(task.id, rollout)
            while True:
                seen = environment.observe()
                assert listed.setdefault(seen.state_key, seen.admissible) == seen.admissible
                if environment.act(draws.pick(seen.admissible or ())).ended:
                    break


def fewest_steps(start: HouseholdEnvironment) -> int:
    """The length of a shortest solution, by breadth-first search over forks; shares nothing with the expert."""
    queue, seen = deque([(start, 0)]), {whole_state(start)}
    while queue:
        environment, steps = queue.popleft()
        for command in environment.observe().admissible or ():
            if command.split()[0] in ("look", "inventory", "examine"):
                continue
            fork = environment.fork()
            if fork.act(command).success:
                return steps + 1
            if whole_state(fork) not in seen:
                seen.add(whole_state(fork))
                queue.append((fork, steps + 1))
    raise AssertionError("the task cannot be solved")


@pytest.mark.parametrize("family", CATEGORIES)
def test_the_expert_takes_a_shortest_way_from_anywhere(family: str) -> None:
    part = Household(categories=(family,), num_receptacles=4, num_objects=3, max_steps=1000)  # type: ignore[arg-type]
    for task in part.task_set("train")[:6]:
        environment, draws = part.open(task), Draws("wander", task.id)
        for wandering in (0, 6):
            for _ in range(wandering):
                fork = environment.fork()
                if not fork.act(draws.pick(environment.observe().admissible or ())).ended:
                    environment = fork
            assert len(find_shortest_plan(environment._home, environment._state)) == fewest_steps(environment)


def test_a_fork_goes_its_own_way() -> None:
    environment = PLAIN.open(home("pick", "egg", "sinkbasin", {"egg 1": "countertop 1"}))
    play(environment, "go to countertop 1")
    fork = environment.fork()
    play(fork, "take egg 1 from countertop 1", "go to sinkbasin 1", "move egg 1 to sinkbasin 1")
    assert environment.observe().state_key == "countertop 1: egg 1; carrying nothing"
    assert play(environment, "take egg 1 from countertop 1") == ["You pick up the egg 1 from the countertop 1."]


@pytest.mark.parametrize("size", [(3, 2), (6, 5), (12, 12)])
def test_observations_are_short(size: tuple[int, int]) -> None:
    part = Household(num_receptacles=size[0], num_objects=size[1])
    lengths: list[int] = []
    for task in part.task_set("validation"):
        environment = part.open(task)
        while not (outcome := environment.act(environment.expert() or "")).ended:
            lengths.append(len([word for word in split_words(outcome.observation.text) if word.isalnum()]))
    assert sum(lengths) / len(lengths) < 16
    assert sum(length > 25 for length in lengths) <= 0.05 * len(lengths)


def test_wrong_fields_name_themselves() -> None:
    with pytest.raises(ConfigError) as raised:
        Household(num_recepticles=3)
    assert "Household: num_recepticles: unknown setting; did you mean 'num_receptacles'?" in str(raised.value)
    with pytest.raises(ConfigError) as raised:
        Household(categories=("picks",))
    assert "categories.0: expected 'pick', 'two', 'clean'" in str(raised.value)
    assert "at least 1 item" not in str(raised.value)  # what is listed is wrong, not missing
    with pytest.raises(ConfigError) as raised:
        Household(categories=("pick", "heat", "pick"))
    assert "categories: a name is listed twice in pick, heat, pick; list each once" in str(raised.value)


def test_a_payload_that_is_no_home_is_refused() -> None:
    task = Task.create(env="household", payload={"family": "pick"})
    with pytest.raises(RecordError) as raised:
        Household().open(task)
    assert str(raised.value) == (f"task {task.id}: its payload is not a home: 'places'; use tasks of the task set")
