"""Laws of what holds a policy to something beside its credit: a memory cut anywhere goes on, and knows no order."""

from __future__ import annotations

import dataclasses
import json
import random

from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.records import Task
from groupwise.methods.epo import EntropyCorridor
from tests.unit.losses.entropies import Rollout, make_update, start_share

entropies = st.lists(st.floats(0, 3), max_size=3)
rollouts = st.lists(entropies, max_size=4).map(lambda steps: [*enumerate(steps)])
pasts = st.lists(st.lists(rollouts, max_size=3), max_size=5)


@given(past=pasts, cut=st.integers(0, 5))
def test_a_memory_that_was_written_and_read_goes_on_to_the_bit(past: list[list[Rollout]], cut: int) -> None:
    part, tasks = EntropyCorridor(updates=5), [Task(id="t")]
    whole, rest = part.start(seed=0), part.start(seed=1)
    updates = [make_update(number, played) for number, played in enumerate(past, start=1)]
    for update in updates[:cut]:
        whole.observe(update)
    rest.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for update in updates[cut:]:
        whole.observe(update)
        rest.observe(update)
    assert rest.state_dict() == whole.state_dict()
    for name, column in whole.columns(tasks).items():
        assert rest.columns(tasks)[name].tolist() == column.tolist()


@given(past=pasts, seed=st.integers(0, 99))
def test_the_order_of_rollouts_changes_no_bit_of_a_memory(past: list[list[Rollout]], seed: int) -> None:
    shuffle, part = random.Random(seed).sample, EntropyCorridor()
    one_way, other_way = part.start(seed=0), part.start(seed=0)
    for number, played in enumerate(past, start=1):
        one_way.observe(make_update(number, played))
        other_way.observe(make_update(number, shuffle(played, len(played))))
    assert one_way.state_dict() == other_way.state_dict()


@given(means=st.lists(st.floats(0, 1), max_size=40), cut=st.integers(0, 40))
def test_a_share_that_was_written_and_read_goes_on_to_the_bit(means: list[float], cut: int) -> None:
    updates = [dataclasses.replace(make_update(n, [[(0, [1.0])]]), credit=[(0.0,)]) for n in range(1, len(means) + 1)]
    whole, rest = start_share(iter(means)), start_share(iter(means[cut:]))
    for update in updates[:cut]:
        whole.observe(update)
    rest.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for update in updates[cut:]:
        whole.observe(update)
        rest.observe(update)
    assert rest.state_dict() == whole.state_dict()
    assert 0.02 <= whole.state_dict()["share"] <= 0.2
