"""The verifier: a score where there is one, else a zero with the reason, from any thread, and never a crash."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from groupwise.envs.verifier import verifier as module
from groupwise.envs.verifier.judge_process import FramedPipe
from groupwise.envs.verifier.verifier import Verdict, Verifier, find_verifier
from groupwise.system.errors import EnvironmentFault

PLACE = "tests.unit.envs.judges"


@pytest.fixture
def judged() -> Iterator[Verifier]:
    verifier = Verifier(f"{PLACE}:by_behaviour")
    yield verifier
    verifier.close()


def ask(judged: Verifier, behaviour: str, seconds: float = 5.0) -> Verdict:
    return judged.judge({"answer": behaviour}, seconds=seconds)


def process_of(judged: Verifier) -> float:
    kind, content = judged.ask({"answer": "pid"}, seconds=5.0)
    assert kind == "answered"
    return float(content)


def test_scores_come_back_as_they_are_and_what_is_printed_does_not_mix_in(judged: Verifier) -> None:
    assert ask(judged, "right") == Verdict(score=1.0)
    assert ask(judged, "print") == Verdict(score=1.0)
    assert ask(judged, "half") == Verdict(score=0.5)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("raise", "the verifier raised ValueError: not a number"),
        ("spin", "the verifier gave no verdict within 0.2 s of computing"),
        ("compute", "the verifier gave no verdict within 0.2 s of computing"),
        ("die", "the verifier ended with 3"),
        ("crash", "the verifier was killed by SIGABRT"),
        ("nan", "the verifier gave the score nan"),
        ("memory", "the verifier ran out of memory"),
        ("text", "the verifier gave the score much"),
        ("object", "the verifier gave the score object"),
        ("many", "the verifier gave the score 7.0"),
    ],
)
def test_whatever_goes_wrong_is_a_zero_with_a_reason_and_the_next_answer_is_judged(
    judged: Verifier, behaviour: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 200.0)  # a busy machine may give it little time to compute
    assert ask(judged, behaviour, seconds=0.2) == Verdict(score=0.0, reason=reason)
    assert ask(judged, "right") == Verdict(score=1.0)


def test_one_that_waits_instead_of_computing_is_ended_by_the_clock(judged: Verifier) -> None:
    ask(judged, "right")  # so that starting it is not measured
    started = time.monotonic()
    reason = "the verifier gave no verdict within 0.8 s"
    assert ask(judged, "sleep", seconds=0.2) == Verdict(score=0.0, reason=reason)
    assert time.monotonic() - started < 30
    assert ask(judged, "right") == Verdict(score=1.0)


def test_a_hang_costs_one_process_and_a_raise_none(judged: Verifier) -> None:
    first = process_of(judged)
    ask(judged, "raise")
    assert process_of(judged) == first != os.getpid()
    for behaviour in ("spin", "memory"):
        before = process_of(judged)
        ask(judged, behaviour, seconds=0.2)
        assert process_of(judged) != before


def test_threads_may_ask_at_the_same_time(judged: Verifier) -> None:
    behaviours = ["right", "half", "raise", "spin"] * 4
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda each: ask(judged, each, 0.2).score, behaviours))
    assert scores == [1.0, 0.5, 0.0, 0.0] * 4


def test_a_task_that_cannot_be_judged_is_a_fault_and_no_zero(judged: Verifier) -> None:
    with pytest.raises(EnvironmentFault, match=r"^the task belongs to another version; make it again$"):
        ask(judged, "fault")


def test_a_verifier_that_cannot_start_says_why() -> None:
    with pytest.raises(EnvironmentFault) as raised:
        ask(Verifier(f"{PLACE}:import_missing_package"), "right")
    assert str(raised.value) == (
        f"the verifier {PLACE}:import_missing_package did not start: "
        "ModuleNotFoundError: No module named 'no_such_package_as_this'"
    )


def test_a_verdict_that_nobody_waited_for_is_not_taken_for_the_next(
    judged: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(judged, "right")

    def interrupt(self: FramedPipe, *, within: float) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FramedPipe, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(judged, "half")
    assert ask(judged, "right") == Verdict(score=1.0)


def test_one_that_dies_before_it_is_ready_is_told() -> None:
    with pytest.raises(EnvironmentFault, match=r"did not start: it died at once$"):
        ask(Verifier(f"{PLACE}:die_at_once"), "right")


def test_after_a_fork_the_child_starts_its_own(judged: Verifier) -> None:
    ours = process_of(judged)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forking beside threads: somebody may do it all the same
        child = os.fork()
    if child == 0:
        theirs = process_of(judged)
        judged.close()
        os.write(writer, str(theirs).encode())
        os._exit(0)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        os.close(writer)
        assert float(pipe.read()) != ours
    assert process_of(judged) == ours


def test_there_is_one_verifier_for_a_judge() -> None:
    assert find_verifier("a:b") is find_verifier("a:b")
    assert find_verifier("a:b") is not find_verifier("a:c")


def test_a_large_process_keeps_its_verifier() -> None:
    code = (
        "import numpy; held = numpy.ones(3 * 2**26)\n"  # 1.5 GiB, of which Linux counts the peak to what it starts
        "from groupwise.envs.verifier.verifier import Verifier\n"
        f"from {__name__} import process_of\n"
        f"asked = Verifier({f'{PLACE}:by_behaviour'!r})\n"
        "first = process_of(asked)\n"
        "assert process_of(asked) == first\n"
    )
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=here)
