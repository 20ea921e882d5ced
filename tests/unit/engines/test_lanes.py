"""Who is in which lane: sessions are found again where they wait, and closing up loses none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupwise.engines.engine import Request
from groupwise.engines.static_cache.cache import LaneTable, Row

IDS = (3, 4, 5, 6, 7, 8)


def ask(session: str | None, prompt: tuple[int, ...] = IDS, max_tokens: int = 4) -> Request:
    return Request(prompt_ids=prompt, seed=0, max_tokens=max_tokens, session=session)


def make_table(*sessions: str | None, num: int = 4) -> LaneTable:
    """A table in whose first lanes sessions wait."""
    table = LaneTable(num)
    for lane, session in enumerate(sessions):
        table.seat(Row(lane, ask(session)), lane)
        table.release(lane, IDS)
    return table


def test_a_session_is_known_by_as_much_of_the_prompt_as_its_lane_holds() -> None:
    table = make_table("a", "b")
    assert table.find_known(ask("b", (*IDS, 9, 9))) == (1, 6)
    assert table.find_known(ask("b", IDS)) == (1, 5)  # the last token is read anew
    assert table.find_known(ask("b", (3, 4, 5, 9, 9, 9))) == (1, 3)
    assert table.find_known(ask("b", (3, 4, 9, 9, 9, 9))) == (-1, 0)  # less than half
    assert table.find_known(ask("c")) == table.find_known(ask(None)) == (-1, 0)


def test_free_lanes_are_those_first_in_which_no_session_waits() -> None:
    table = make_table("a", None, "c")
    table.seat(Row(0, ask("d")), 3)
    assert table.list_free() == [1, 0, 2]
    table.seat(Row(1, ask("e")), 0)
    assert table.find_known(ask("a")) == (-1, 0)


def test_sessions_that_no_request_goes_on_with_are_forgotten() -> None:
    table = make_table("a", "b", "c")
    table.keep_only([ask("c"), ask("a"), ask(None)])
    assert [table.find_known(ask(session))[0] for session in "abc"] == [0, -1, 2]


def test_a_session_waits_in_one_lane_only() -> None:
    table = make_table("a", "a")
    assert table.find_known(ask("a")) == (1, 5)
    assert table.list_free() == [0, 2, 3, 1]


def test_sessions_in_lanes_that_are_gone_are_forgotten() -> None:
    table = make_table("a", "b", "c")
    table.resize(2)
    assert [table.find_known(ask(session))[0] for session in "abc"] == [0, 1, -1]
    assert table.list_free() == [0, 1]


def test_a_row_reaches_no_further_than_its_response() -> None:
    row = Row(0, ask(None, max_tokens=4), num_sampled=1)
    assert (row.tokens_left, row.columns_after(2), row.columns_after(100)) == (3, 8, 9)


@given(data=st.data())
def test_closing_up_moves_what_runs_to_the_front_and_every_session_with_its_lane(data: st.DataObject) -> None:
    num = data.draw(st.integers(1, 12))
    kinds = data.draw(st.lists(st.sampled_from(["runs", "waits", "empty"]), min_size=num, max_size=num))
    table = LaneTable(num)
    content = [f"{kind} {lane}" for lane, kind in enumerate(kinds)]
    for lane, kind in enumerate(kinds):
        if kind != "empty":
            table.seat(Row(lane, ask(content[lane])), lane)
        if kind == "waits":
            table.release(lane, IDS)
    first = data.draw(st.integers(kinds.count("runs"), num))
    moved = [content[source] for source in table.close_up(first)]
    assert sorted(moved) == sorted(content)
    assert all(lane < first for lane in table.running)
    for lane, row in table.running.items():
        assert moved[lane] == row.request.session
        assert row.lane == lane
    for session in content:
        if session.startswith("waits"):
            assert moved[table.find_known(ask(session))[0]] == session
