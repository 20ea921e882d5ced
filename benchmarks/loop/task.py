"""The task of both trainers: a question about people with the info given, after worked examples or none."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.envs import Lookup


class ShownLookup(Lookup, slot="env"):
    """`lookup` with the info given, and a few questions with their answers before the one to answer."""

    hops: Annotated[int, Field(ge=0, le=0)] = 0
    examples: Annotated[int, Field(ge=0)] = 0
    """Questions of the validation task set that are shown with their answers."""

    def instruction(self) -> str:
        shown = [self.open(task) for task in self.task_set("validation")[: self.examples]]
        answered = [f"{one.observe().text} > {one.expert()}." for one in shown]
        return " ".join([super().instruction(), *answered])
