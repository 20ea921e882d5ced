"""An agent that plays the household by plain HTTP, with no package at all: it sends what the built-in loop shows."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import groupwise
from groupwise.agents import Ended, Session
from groupwise.data.records import Task
from groupwise.envs import Household

HOUSE = Household(rooms=("bedroom",), categories=("pick", "examine"), num_receptacles=3, num_objects=2, max_steps=8)
DELAY = "HOUSEHOLD_AGENT_DELAY"
"""Environment variable: mean seconds of a tool, drawn anew at each call and never the same twice."""


class Client:
    """Chat completions over one connection."""

    def __init__(self, url: str, key: str) -> None:
        place = urlsplit(url)
        self._path = f"{place.path}/chat/completions"
        self._line = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}

    def ask(self, body: Mapping[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
        self._line.request("POST", self._path, json.dumps(body), self._headers | headers)
        answer = self._line.getresponse()
        return answer.status, json.loads(answer.read())

    def close(self) -> None:
        self._line.close()


@groupwise.agent
def play(row: Mapping[str, Any], session: Session) -> Ended:
    task = Task(id=row["id"], env="household", split=row["split"], seed=row["seed"], payload=row["payload"])
    house, delay = HOUSE.open(task), float(os.environ.get(DELAY, "0"))
    seen, accepted = house.observe(), {}
    messages = [{"role": "user", "content": f"{HOUSE.instruction()} Goal: {seen.goal}\n{seen.text}"}]
    client = Client(session.url, session.key)
    try:
        while True:
            headers = {"X-Groupwise-State": str(seen.state_key), **accepted}
            status, answer = client.ask({"model": "policy", "messages": messages}, **headers)
            if status != 200:
                raise ConnectionError(answer["error"]["message"])
            reply = answer["choices"][0]["message"]
            if delay:
                time.sleep(random.SystemRandom().expovariate(1 / delay))
            outcome = house.act(reply["content"])
            accepted = {} if outcome.accepted else {"X-Groupwise-Accepted": "false"}
            if outcome.ended:
                session.accepted(outcome.accepted)
                return Ended(reward=outcome.reward, success=bool(outcome.success), truncated=outcome.truncated)
            seen = outcome.observation
            messages += [reply, {"role": "user", "content": seen.text}]
    finally:
        client.close()


def write_tasks(file: Path, *, num: int) -> None:
    """The first tasks of the household's train and test sets, with the ids that they have there."""
    rows = [
        {"id": task.id, "split": split, "seed": task.seed, "payload": dict(task.payload), "tag": task.tags[0]}
        for split in ("train", "test")
        for task in HOUSE.task_set(split)[:num]
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
