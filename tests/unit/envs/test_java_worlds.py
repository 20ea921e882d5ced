"""ScienceWorld and TextWorldExpress: bad input without Java, and rollouts that outlive their virtual machine."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError, RecordError
from groupwise.envs import Household, Scienceworld, TextworldExpress, textworld_express
from groupwise.envs.kit import java_simulator as java_worlds
from groupwise.envs.kit.java_simulator import Simulator, collect_words


@pytest.mark.parametrize(
    ("part", "kind", "package"),
    [
        (Scienceworld(), "scienceworld", "scienceworld"),
        (TextworldExpress(), "textworld_express", "textworld_express"),
    ],
)
class TestWithoutThePackage:
    def test_its_absence_gives_one_sentence_with_the_extra(
        self, part: Any, kind: str, package: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ConfigError) as raised:
            part.vocabulary()
        assert str(raised.value) == (
            f"the environment {kind!r} needs a package that is not installed; pip install 'groupwise[{kind}]'"
        )

    def test_without_java_there_is_one_sentence_too(
        self, part: Any, kind: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(java_worlds, "find_jar", lambda *_: tmp_path / "some.jar")
        monkeypatch.setattr(shutil, "which", lambda _: None)
        with pytest.raises(ConfigError) as raised:
            java_worlds.connect_machine(kind, f"{package} of a test", "some.jar")
        assert str(raised.value) == (
            f"the environment {kind!r} needs Java, and `java` was not found; install a Java runtime"
        )

    def test_a_task_of_another_environment(self, part: Any, kind: str, package: str) -> None:
        with pytest.raises(RecordError, match="belongs to the environment 'household'"):
            part.open(Household().task_set("test")[0])


class Protocol:
    """What simulators take from py4j."""

    Py4JNetworkError = ConnectionResetError


def test_a_simulator_whose_machine_dies_repeats_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_worlds, "import_module", lambda _: Protocol)
    made: list[list[str]] = []

    def make() -> list[str]:
        made.append([])
        return made[-1]

    def step(java: list[str], action: str) -> None:
        if java is made[0] and action == "third":
            raise ConnectionResetError
        java.append(action)

    simulator = Simulator(make, step)
    for action in ("first", "second", "third", "fourth"):
        simulator.act(action)
    assert made == [["first", "second"], ["first", "second", "third", "fourth"]]
    twin = simulator.fork()
    twin.act("fifth")
    assert made[1:] == [["first", "second", "third", "fourth"], ["first", "second", "third", "fourth", "fifth"]]


def test_a_plan_goes_on_only_while_it_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_worlds, "import_module", lambda _: Protocol)
    simulator = Simulator(list, list.append)
    plan = ("open door", "go east", "take coin")
    assert simulator.next_action_of(plan) == "open door"
    assert simulator.next_action_of(()) is None
    simulator.act("open door")
    assert simulator.next_action_of(plan) == "go east"
    strayed = simulator.fork()
    strayed.act("look around")
    assert strayed.next_action_of(plan) is None
    for action in plan[1:]:
        simulator.act(action)
    assert simulator.next_action_of(plan) is None, "it is at its end"


def test_words_come_from_classes_and_data_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "some.jar", "w") as archive:
        # A head of ten bytes, a text whose length is a letter's code, a wide number (two constants), a short text.
        texts = b"\x01\x00\x41" + b"Gather the Doors".ljust(0x41) + b"\x05" + b"12345678" + b"\x01\x00\x05wait1"
        archive.writestr("world/Door.class", b"\xca\xfe\xba\xbe\x00\x00\x00\x34\x00\x05" + texts + b"unread")
        archive.writestr("other/Thing.class", b"unseen")
    (tmp_path / "foods.json").write_text('{"apple": 1}')
    assert collect_words(tmp_path / "some.jar", "world/") == ("1", "apple", "doors", "gather", "the", "wait1")


@pytest.mark.filterwarnings("ignore")
class TestTextworldExpress:
    @pytest.fixture(scope="class", autouse=True)
    def _is_here(self) -> None:
        pytest.importorskip("textworld_express", reason="pip install 'groupwise[textworld_express]' to play its games")
        if shutil.which("java") is None:
            pytest.skip("there is no Java here")

    def test_the_gold_path_earns_one(self) -> None:
        part = TextworldExpress(game="cookingworld", num_test=2)
        for task in part.task_set("test"):
            environment, total = part.open(task), 0.0
            while (action := environment.expert()) is not None:
                outcome = environment.act(action)
                total += outcome.reward
            assert outcome.success is True
            assert total == pytest.approx(1.0)

    def test_a_gold_path_is_made_when_it_is_asked_for(self) -> None:
        part = TextworldExpress(game="twc")
        task = part.task_set("validation")[0]
        environment = part.open(task)
        environment.act("look around")
        assert task.id not in textworld_express._GOLD
        assert part.open(task).expert() == textworld_express._GOLD[task.id][0]

    def test_rollouts_at_one_sorting_task_keep_apart(self) -> None:
        part = TextworldExpress(game="sorting")
        task = part.task_set("train")[0]
        alone = part.open(task)
        actions, outcomes = [], []
        for number in range(8):
            listed = alone.observe().admissible or ()
            actions.append(listed[-1 - number % len(listed)])
            outcomes.append(alone.act(actions[-1]))
        first, second = part.open(task), part.open(task)
        together = [(first.act(action), second.act(action)) for action in actions]
        assert together == [(each, each) for each in outcomes]

    def test_an_rollout_outlives_its_virtual_machine(self) -> None:
        part = TextworldExpress(game="coin", params={"numLocations": 3})
        task = part.task_set("train")[0]
        environment, undisturbed = part.open(task), part.open(task)
        plan = [action for action in ("look around", "inventory") for _ in range(2)]
        for number, action in enumerate(plan):
            if number == 2:
                for gateway in java_worlds._RUNNING.values():
                    gateway.java_process.kill()
                    gateway.java_process.wait()
            assert environment.act(action) == undisturbed.act(action)

    def test_unknown_parameters_are_refused(self) -> None:
        part = TextworldExpress(params={"numberOfRooms": 3})
        with pytest.raises(ConfigError, match="Unrecognized property name"):
            part.open(part.task_set("train")[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scienceworld_is_solved_by_its_gold_path() -> None:
    pytest.importorskip("scienceworld", reason="pip install 'groupwise[scienceworld]' to play ScienceWorld")
    if shutil.which("java") is None:
        pytest.skip("there is no Java here")
    part = Scienceworld(list_actions=False)
    environment, total = part.open(part.task_set("train")[0]), 0.0
    assert environment.fork().act("frobnicate").accepted is False
    while (action := environment.expert()) is not None:
        outcome = environment.act(action)
        total += outcome.reward
    assert (outcome.success, total) == (True, pytest.approx(1.0))
    with pytest.raises(ConfigError, match="there is no task 'boyl'; did you mean 'boil'"):
        Scienceworld(tasks=("boyl",)).task_set("train")
