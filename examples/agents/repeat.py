"""An agent in a few lines: it asks for a word, and asks once more if the answer is wrong.

It calls the model with Python's own HTTP client. Any client of the OpenAI API does the same with `session.url` and
`session.key`; with the package `openai`, `session.client()` is such a client.
"""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

import groupwise as gw


def ask(session, messages):
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {session.key}", "Content-Type": "application/json"}
    with urlopen(Request(f"{session.url}/chat/completions", body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]


@gw.agent
def repeat(task, session):
    messages = [{"role": "user", "content": f"say {task['word']}"}]
    for tries in range(2):
        session.state(f"asked {tries + 1} times")  # calls of one task with equal states are compared
        reply = ask(session, messages)
        if reply["content"] == task["word"]:
            return {"reward": 1.0 - 0.5 * tries, "success": True, "tries": tries + 1}
        messages += [reply, {"role": "user", "content": f"no , say {task['word']}"}]
    return {"reward": 0.0, "success": False, "tries": 2}
