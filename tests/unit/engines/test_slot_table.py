"""Who is in which slot: sessions are found again where they wait, and closing up loses none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupwise.engines.engine import Request
from groupwise.engines.static_cache.lanes import Row, SlotTable

IDS = (3, 4, 5, 6, 7, 8)


def ask(session: str | None, prompt: tuple[int, ...] = IDS, max_tokens: int = 4) -> Request:
    return Request(prompt_ids=prompt, seed=0, max_tokens=max_tokens, session=session)


def holding(*sessions: str | None, num: int = 4) -> SlotTable:
    """A table in whose first slots sessions wait."""
    table = SlotTable(num)
    for slot, session in enumerate(sessions):
        table.seat(Row(slot, ask(session)), slot)
        table.leave(slot, IDS)
    return table


def test_a_session_is_known_by_as_much_of_the_prompt_as_its_slot_holds() -> None:
    table = holding("a", "b")
    assert table.known(ask("b", (*IDS, 9, 9))) == (1, 6)
    assert table.known(ask("b", IDS)) == (1, 5)  # the last token is read anew
    assert table.known(ask("b", (3, 4, 5, 9, 9, 9))) == (1, 3)
    assert table.known(ask("b", (3, 4, 9, 9, 9, 9))) == (-1, 0)  # less than half
    assert table.known(ask("c")) == table.known(ask(None)) == (-1, 0)


def test_free_slots_are_those_first_in_which_no_session_waits() -> None:
    table = holding("a", None, "c")
    table.seat(Row(0, ask("d")), 3)
    assert table.free() == [1, 0, 2]
    table.seat(Row(1, ask("e")), 0)
    assert table.known(ask("a")) == (-1, 0)


def test_sessions_that_no_request_goes_on_with_are_forgotten() -> None:
    table = holding("a", "b", "c")
    table.keep_only([ask("c"), ask("a"), ask(None)])
    assert [table.known(ask(session))[0] for session in "abc"] == [0, -1, 2]


def test_a_session_waits_in_one_slot_only() -> None:
    table = holding("a", "a")
    assert table.known(ask("a")) == (1, 5)
    assert table.free() == [0, 2, 3, 1]


def test_sessions_in_slots_that_are_gone_are_forgotten() -> None:
    table = holding("a", "b", "c")
    table.shrink(2)
    assert [table.known(ask(session))[0] for session in "abc"] == [0, 1, -1]
    assert table.free() == [0, 1]


def test_a_row_reaches_no_further_than_its_response() -> None:
    row = Row(0, ask(None, max_tokens=4), sampled=1)
    assert (row.left, row.reach(2), row.reach(100)) == (3, 8, 9)


@given(data=st.data())
def test_closing_up_moves_what_runs_to_the_front_and_every_session_with_its_slot(data: st.DataObject) -> None:
    num = data.draw(st.integers(1, 12))
    kinds = data.draw(st.lists(st.sampled_from(["runs", "waits", "empty"]), min_size=num, max_size=num))
    table = SlotTable(num)
    content = [f"{kind} {slot}" for slot, kind in enumerate(kinds)]
    for slot, kind in enumerate(kinds):
        if kind != "empty":
            table.seat(Row(slot, ask(content[slot])), slot)
        if kind == "waits":
            table.leave(slot, IDS)
    first = data.draw(st.integers(kinds.count("runs"), num))
    moved = [content[source] for source in table.closed_up(first)]
    assert sorted(moved) == sorted(content)
    assert all(slot < first for slot in table.running)
    for slot, row in table.running.items():
        assert moved[slot] == row.request.session
        assert row.slot == slot
    for session in content:
        if session.startswith("waits"):
            assert moved[table.known(ask(session))[0]] == session
