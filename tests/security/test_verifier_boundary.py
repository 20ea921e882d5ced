"""A verifier whose judge runs what an answer says: it can neither write, read, connect, start, signal nor forge."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psutil
import pytest

from groupwise.envs.verifier.judge_process import MAX_BYTES, FramedPipe, ProtocolError, read_answer_to, write_request
from groupwise.envs.verifier.verifier import Verdict, Verifier
from groupwise.system.errors import EnvironmentFault
from groupwise.system.sandbox import find_boundaries

PLACE = "tests.security.hostile_judges"
BROKE_A_RULE = "the verifier was ended: the answer made it try to write, connect, or start or stop a process"
needs_linux = pytest.mark.skipif("system calls" not in find_boundaries(), reason="this kernel has no seccomp")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def apart() -> Iterator[Verifier]:
    verifier = Verifier(f"{PLACE}:execute_answer", apart=True)
    yield verifier
    verifier.close()


@pytest.fixture(scope="module")
def together() -> Iterator[Verifier]:
    verifier = Verifier(f"{PLACE}:execute_answer")
    yield verifier
    verifier.close()


def ask(judged: Verifier, answer: str, seconds: float = 5.0) -> Verdict:
    return judged.judge({"answer": answer}, seconds=seconds)


@needs_linux
class TestRights:
    @pytest.mark.parametrize(
        "rollout",
        [
            "open({there!r}, 'w')",
            "open({there!r}, 'a')",
            "import os; os.open({there!r}, os.O_CREAT | os.O_RDWR)",
            "import os; os.open({folder!r}, os.O_TMPFILE | os.O_WRONLY)",
            "import os; os.system('touch ' + {there!r})",
            "import os; os.posix_spawn('/bin/touch', ['touch', {there!r}], {{}})",
            "import os; os.execv('/bin/touch', ['touch', {there!r}])",
            "import os; os.fork() or open({there!r}, 'w')",
            "import os; os.mkdir({there!r})",
            "import os; os.symlink('/etc/passwd', {there!r})",
            "import os; os.mkfifo({there!r})",
            "import os; os.unlink({kept!r})",
            "import os; os.rename({kept!r}, {there!r})",
            "import os; os.truncate({kept!r}, 0)",
            "import os; os.chmod({kept!r}, 0)",
            "import os; os.utime({kept!r}, (1, 1))",
            "import socket; socket.create_connection(('127.0.0.1', {port}))",
            "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
            "import socket; socket.socketpair()",
            "import os, signal; os.kill(os.getppid(), signal.SIGTERM)",
            "import ctypes; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)",
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))",
        ],
    )
    def test_what_leaves_a_trace_ends_the_process_and_costs_the_answer(
        self, apart: Verifier, tmp_path: Path, rollout: str
    ) -> None:
        kept = tmp_path / "kept"
        kept.write_text("as it was")
        before = kept.stat()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(0.05)
            port = server.getsockname()[1]
            code = rollout.format(there=str(tmp_path / "X"), folder=str(tmp_path), kept=str(kept), port=port)
            assert ask(apart, f"{code}\nscore = 1.0") == Verdict(score=0.0, reason=BROKE_A_RULE)
            with pytest.raises(TimeoutError):
                server.accept()
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
        assert kept.read_text() == "as it was"
        assert (kept.stat().st_mode, kept.stat().st_mtime) == (before.st_mode, before.st_mtime)
        assert ask(apart, "score = 1.0") == Verdict(score=1.0)

    def test_a_verifier_that_broke_a_rule_is_replaced(self, together: Verifier, tmp_path: Path) -> None:
        ask(together, "score = 1.0")
        before = together._popen
        code = f"shared['owned'] = 1\nopen({str(tmp_path / 'X')!r}, 'w')"
        assert ask(together, code) == Verdict(score=0.0, reason=BROKE_A_RULE)
        assert ask(together, "score = float('owned' in shared)") == Verdict(score=0.0)
        assert together._popen is not before
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("place", ["{secret}", "/etc/passwd", "/proc/self/environ", "/proc/1/environ", "{home}"])
    def test_what_is_not_pythons_own_cannot_be_read(self, apart: Verifier, tmp_path: Path, place: str) -> None:
        if "files" not in apart.ask_boundaries():
            pytest.skip("this kernel has no Landlock")
        (tmp_path / "secret").write_text("key")
        path = place.format(secret=tmp_path / "secret", home=Path.home() / ".profile")
        code = f"try:\n    open({path!r}).read()\nexcept OSError:\n    score = 0.5"
        assert ask(apart, code) == Verdict(score=0.5)

    def test_modules_that_are_imported_late_and_threads_that_are_not_started(self, apart: Verifier) -> None:
        late = "import xml.dom.minidom, sqlite3, decimal\nscore = 1.0"
        assert ask(apart, late) == Verdict(score=1.0)
        thread = (
            "import threading\ntry:\n    threading.Thread(target=print).start()\nexcept RuntimeError:\n    score = 0.5"
        )
        assert ask(apart, thread) == Verdict(score=0.5)

    def test_it_says_which_boundaries_hold(self, together: Verifier) -> None:
        assert together.ask_boundaries() == find_boundaries()
        assert "system calls" in find_boundaries()


def test_neither_the_environment_nor_an_open_file_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_TOKEN", "hunter2")
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        fresh = Verifier(f"{PLACE}:execute_answer")
        code = "import os\nscore = float(any('SECRET' in name or 'hunter2' in os.environ[name] for name in os.environ))"
        assert ask(fresh, code) == Verdict(score=0.0)
        assert 0 < ask(fresh, "import os\nscore = len(os.environ) / 100").score <= 0.1
        code = """
import os, stat
def is_foreign(number):
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return False
    return not (stat.S_ISSOCK(mode) or number < 3 and stat.S_ISCHR(mode))
score = sum(is_foreign(number) for number in range(64)) / 100
"""
        assert ask(fresh, code) == Verdict(score=0.0)
        fresh.close()


class TestPoison:
    POISON = "shared['owned'] = True\nimport groupwise.envs.verifier.judge_process as loop\nloop.quote_line = None"

    def test_apart_no_answer_changes_what_judges_the_next(self, apart: Verifier) -> None:
        ask(apart, self.POISON)
        assert ask(apart, "score = float('owned' in shared)") == Verdict(score=0.0)
        assert ask(apart, "raise ValueError('as before')").reason == "the verifier raised ValueError: as before"

    def test_apart_an_answer_that_computes_or_waits_for_too_long_costs_itself(
        self, apart: Verifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask(apart, "score = 1.0")
        monkeypatch.setattr("groupwise.envs.verifier.verifier.PATIENCE", 200.0)
        spun = ask(apart, "while True: pass", seconds=0.2)
        assert spun == Verdict(score=0.0, reason="the verifier gave no verdict within 0.2 s of computing")
        monkeypatch.setattr("groupwise.envs.verifier.verifier.PATIENCE", 4.0)
        slept = ask(apart, "import time; time.sleep(60)", seconds=0.2)
        assert slept == Verdict(score=0.0, reason="the verifier gave no verdict within 0.8 s")
        assert ask(apart, "score = 1.0") == Verdict(score=1.0)


FORGED = """
import os, struct, socket
frame = {frame!r}
for number in range(3, 64):
    try:
        if os.fstat(number).st_mode & 0o140000 == 0o140000:
            os.write(number, frame)
    except OSError:
        pass
{then}
"""


def frame_of(content: bytes) -> bytes:
    return struct.pack("!I", len(content)) + content


class TestWire:
    @pytest.mark.parametrize(
        ("frame", "said"),
        [
            (frame_of(b'[999, "answered", 1.0, false]'), "an answer to another call"),
            (frame_of(b"cos\nsystem\n(S'true'\ntR."), "an answer that is not JSON"),
            (frame_of(b'[1, "answered", NaN, false]'), "an answer that is not JSON"),
            (frame_of(b"[" * 100_000), "an answer that is not JSON"),
            (frame_of(b'[1, "owned", 1.0, false]'), "an answer of another form"),
            (struct.pack("!I", MAX_BYTES + 1), "a message of 16777221 bytes; at most 16777216 are read"),
        ],
        ids=["stale", "pickle", "nan", "deep", "kind", "long"],
    )
    def test_what_is_not_the_answer_breaks_the_protocol_and_the_next_is_judged(
        self, together: Verifier, frame: bytes, said: str
    ) -> None:
        # It waits, so that what it forged is read alone.
        code = FORGED.format(frame=frame, then="import time; time.sleep(0.3)")
        assert ask(together, code).reason == f"the verifier broke its protocol with {said}"
        assert ask(together, "score = 1.0") == Verdict(score=1.0)

    def test_half_an_answer_is_not_waited_for_beyond_the_time(self, together: Verifier) -> None:
        code = FORGED.format(frame=struct.pack("!I", 100) + b"[", then="import time; time.sleep(60)")
        assert ask(together, code, seconds=0.3).reason == "the verifier gave no verdict within 1.2 s"
        assert ask(together, "score = 1.0") == Verdict(score=1.0)

    def test_an_answer_left_behind_is_not_taken_for_the_next(self, together: Verifier) -> None:
        ask(together, "score = 0.0")
        own, next_one = (json.dumps([together._calls + more, "answered", 1.0, False]).encode() for more in (1, 2))
        ask(together, FORGED.format(frame=frame_of(own), then="import time; time.sleep(0.5)"))
        assert ask(together, "score = 0.25") == Verdict(score=0.25), "nor is the late one of the answer before"
        ask(together, FORGED.format(frame=frame_of(own) + frame_of(next_one), then=""))
        assert ask(together, "score = 0.25") == Verdict(score=0.25)

    def test_messages_are_one_short_line_without_controls(self, together: Verifier) -> None:
        code = "raise ValueError('\\x1b]52;c;aGk=\\x07\\ud800 ' + 'x' * 10_000_000 + '\\nmore')"
        reason = ask(together, code).reason
        assert len(reason) <= 500
        assert reason.startswith(r"the verifier raised ValueError: \x1b]52;c;aGk=\x07\ud800 xxx")
        assert len(reason.splitlines()) == 1
        forged = FORGED.format(
            frame=frame_of(json.dumps([together._calls + 1, "failed", "\x1b[2J" + "y" * 10_000, False]).encode()),
            then="import time; time.sleep(1)",
        )
        reason = ask(together, forged).reason
        assert reason.startswith(r"the verifier \x1b[2Jyyy")
        assert len(reason) <= 500

    def test_half_characters_and_ten_megabytes_reach_the_judge(self, together: Verifier) -> None:
        half = {"answer": "score = float(request['more'] == chr(0xD800) + chr(0))", "more": "\ud800\0"}
        assert together.judge(half, seconds=5.0) == Verdict(score=1.0)
        assert ask(together, f"score = 1.0 #{'x' * 10_000_000}") == Verdict(score=1.0)
        assert ask(together, f"#{'x' * MAX_BYTES}").reason.startswith(
            "the verifier broke its protocol with a message of"
        )

    def test_a_fault_that_is_forged_is_one_short_line(self, together: Verifier) -> None:
        ask(together, "score = 0.0")
        said = json.dumps([together._calls + 1, "fault", "z" * 10_000, False]).encode()
        with pytest.raises(EnvironmentFault, match=r"^z{499}…$"):
            ask(together, FORGED.format(frame=frame_of(said), then="import time; time.sleep(1)"))

    def test_answers_are_read_without_objects(self) -> None:
        source = "".join(path.read_text() for path in (ROOT / "src/groupwise/envs/verifier").glob("*.py"))
        for word in ("pickle", ".recv()", "multiprocessing"):
            assert word not in source
        for said in (
            b"\x80\x04.",
            b"\xff\xfe",
            b'{"call": 1}',
            b'[true, "answered", 1.0, false]',
            b'[1, "answered", 1.0, 0]',
            b"",
        ):
            with pytest.raises(ProtocolError):
                read_answer_to(1, said)
        assert json.loads(write_request(1, {"answer": "\ud800"}, 2.0)) == [1, 2.0, {"answer": "\ud800"}]

    def test_one_who_does_not_read_is_not_waited_for(self) -> None:
        ours, theirs = socket.socketpair()
        frames = FramedPipe(ours.detach(), blocks=False)
        with pytest.raises(TimeoutError):
            frames.send(b"x" * 5_000_000, within=0.2)
        frames.close()
        theirs.close()


PARENT = """
import sys, threading, time
sys.path[:] = {path!r}
from groupwise.envs.verifier.verifier import Verifier
judged = Verifier("tests.security.hostile_judges:execute_answer", apart={apart})
def start():
    judged.judge({{"answer": "score = 1.0"}}, seconds=5.0)
    print(judged._popen.pid, flush=True)
thread = threading.Thread(target=start)
thread.start(); thread.join()
time.sleep(1.0)
assert judged.judge({{"answer": "score = 1.0"}}, seconds=5.0).score == 1.0
print(judged._popen.pid, flush=True)
judged.judge({{"answer": "import time; time.sleep(600)"}}, seconds=600.0)
"""


@needs_linux
@pytest.mark.parametrize("apart", [False, True])
def test_it_outlives_the_thread_that_asked_first_and_dies_with_the_process(apart: bool) -> None:
    code = PARENT.format(path=[str(ROOT), *sys.path], apart=apart)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        first, again = int(parent.stdout.readline()), int(parent.stdout.readline())
        assert first == again, "the thread that asked first has ended, the verifier has not"
        time.sleep(0.5)
        family = [psutil.Process(first), *psutil.Process(first).children()]
        assert len(family) == 1 + apart
        os.kill(parent.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_threads_that_come_and_go_share_a_verifier() -> None:
    judged, scores = Verifier(f"{PLACE}:execute_answer"), list[float]()
    for _ in range(3):
        thread = Thread(target=lambda: scores.append(ask(judged, "score = 1.0").score))
        thread.start()
        thread.join()
    assert scores == [1.0, 1.0, 1.0]
    judged.close()
