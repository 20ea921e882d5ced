"""Calls of an OpenAI-compatible server: one question, asked until an answer has a score or the retries are spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Event
from typing import Any

from groupwise.core.errors import EngineFault
from groupwise.core.text.safe_text import quote_line
from groupwise.engines.remote.http_client import RequestRefusedFault, ServerClient, ServerFault
from groupwise.rollout.judges.protocol import JudgeCall, Judgement

ROUTE = "/chat/completions"
MAX_WAIT_SECONDS = 30.0
CHECK_SECONDS = 10.0
"""How long a server may take to say which models it has, before a run begins."""
WRONG_SETTINGS = {
    401: "it wants a key; set the environment variable that algorithm.judge.api_key names",
    403: "the key may not use this model; give another key or another algorithm.judge.model",
    404: "it has no such route or model; correct algorithm.judge.url, which ends with the version as in /v1, and "
    "algorithm.judge.model",
}
"""Statuses that no retry mends and no fallback should hide, and what to do."""
UNREADABLE = "an answer without a score"
"""What the fault of a call begins with whose answer came and could not be read."""


@dataclass(frozen=True, kw_only=True)
class EndpointCalls:
    """How one server is asked."""

    client: ServerClient
    """Who speaks to it."""
    read_score: Callable[[str], float | str]
    """The score in an answer, or why there is none."""
    timeout: float
    """Seconds for one answer."""
    retries: int
    """How often a question is asked again."""
    retry_seconds: float
    """How long to wait after a failure; twice as long each time."""
    seeds: int
    """How far the seeds of two tries are apart, so that those of samples never meet."""
    fallback: float | None
    """The score where no answer has one; None = none."""

    def check_server(self) -> None:
        """Raise where nobody listens, or the key is not taken; which models there are is the server's own affair."""
        try:
            self.client.get("/models", what="say which models it has", timeout=CHECK_SECONDS)
        except ServerFault as fault:
            if fault.status is None:
                raise EngineFault(f"algorithm.judge: {fault}") from None
            if fault.status in (401, 403):
                raise EngineFault(f"algorithm.judge: {fault}: {WRONG_SETTINGS[fault.status]}") from None
        except RequestRefusedFault:
            pass

    def settle_all(self, requests: Sequence[Mapping[str, Any]], *, concurrency: int) -> Iterator[tuple[int, Judgement]]:
        """Ask several at a time; after one without a score, nothing is begun that is not under way."""
        stop = Event()
        with ThreadPoolExecutor(min(concurrency, len(requests))) as pool:
            futures = {pool.submit(self.settle, request, stop): place for place, request in enumerate(requests)}
            try:
                for future in as_completed(futures):
                    if future.cancelled():
                        continue
                    judgement = future.result()
                    if judgement.score is None and not stop.is_set():
                        stop.set()
                        for waiting in futures:
                            waiting.cancel()
                    yield futures[future], judgement
            except BaseException:  # nobody reads the rest: break off what is under way, or the pool would wait for it
                stop.set()
                for waiting in futures:
                    waiting.cancel()
                self.client.abort()
                raise

    def settle(self, request: Mapping[str, Any], stop: Event) -> Judgement:
        """Ask until an answer has a score; once `stop` is set, nothing is asked any more."""
        calls: list[JudgeCall] = []
        for _ in range(1 + self.retries):
            if stop.is_set() or (calls and self._wait(calls, stop)):
                return Judgement(score=None, calls=tuple(calls))
            # Another seed for another answer; where none came, the same is asked: luck with a network moves no score.
            num_answers = sum(call.answered is not None for call in calls)
            seed = {"seed": request["seed"] + num_answers * self.seeds} if isinstance(request.get("seed"), int) else {}
            call, score, is_final = self._call({**request, **seed})
            calls.append(call)
            if score is not None:
                return Judgement(score=score, calls=tuple(calls))
            if is_final:
                break
        is_setting_wrong = _find_wrong_setting(calls[-1].fault) is not None
        score = None if is_setting_wrong else self.fallback
        return Judgement(score=score, calls=tuple(calls), is_fallback=score is not None)

    def _wait(self, calls: list[JudgeCall], stop: Event) -> bool:
        """Wait before a server is asked again that failed; whether it shall not be asked any more."""
        if calls[-1].answered is not None:
            return False
        return stop.wait(min(self.retry_seconds * 2 ** (len(calls) - 1), MAX_WAIT_SECONDS))

    def _call(self, request: Mapping[str, Any]) -> tuple[JudgeCall, float | None, bool]:
        """One call: what came of it, the score, and whether another one would come to the same."""
        began = time.monotonic()

        def end(answered: str | None, fault: str) -> JudgeCall:
            return JudgeCall(answered=answered, fault=fault, seconds=round(time.monotonic() - began, 4))

        try:
            answer = self.client.post(ROUTE, request, what="judge an answer", timeout=self.timeout)
        except RequestRefusedFault as fault:
            return end(None, str(fault)), None, True
        except ServerFault as fault:
            if fault.status in WRONG_SETTINGS:
                return end(None, f"{fault}: {WRONG_SETTINGS[fault.status]}"), None, True
            return end(None, str(fault)), None, False
        text = _find_text(answer)
        if text is None:
            return end(None, "the server answered with no message of a model"), None, False
        score = self.read_score(text)
        if isinstance(score, str):
            return end(text, f"{UNREADABLE}: {score}"), None, False
        return end(text, ""), score, False


def explain_failure(judgement: Judgement, url: str) -> str:
    """One sentence about a judgement without a score."""
    last, num = judgement.calls[-1], len(judgement.calls)
    times = "once" if num == 1 else f"{num} times"
    if last.answered is not None:
        said = quote_line(last.answered, limit=120)
        return (
            f"the model at {url} was asked {times} and gave {last.fault} (it said: {said!r}); have the prompt ask for "
            "what is read, read what it says with `pattern` or `choices`, or declare a `fallback`"
        )
    if _find_wrong_setting(last.fault) is not None:
        return last.fault
    return f"{last.fault} (asked {times}), then go on with --resume, or declare a `fallback`"


def _find_wrong_setting(fault: str) -> str | None:
    return next((advice for advice in WRONG_SETTINGS.values() if fault.endswith(advice)), None)


def _find_text(answer: Any) -> str | None:
    """The text of the first choice of a completion; None where there is none."""
    try:
        text = answer["choices"][0]["message"]["content"]
    except (TypeError, KeyError, IndexError):
        return None
    return text if isinstance(text, str) else None
