"""The error tree and the end of its messages."""

from __future__ import annotations

from groupwise.system.errors import ConfigError, FileError, GroupwiseError, RecordError, count_edits, find_near, nearest


def test_every_error_is_a_value_error_of_one_tree() -> None:
    assert issubclass(GroupwiseError, ValueError)
    assert issubclass(ConfigError, GroupwiseError)
    assert issubclass(RecordError, GroupwiseError)
    assert issubclass(FileError, RecordError)


def test_a_record_error_knows_its_row_if_there_is_one() -> None:
    assert RecordError("found nan", row=3).row == 3
    assert RecordError("found nothing").row is None
    assert str(RecordError("found nan", row=3)) == "found nan"


def test_the_nearest_name_comes_first_then_all_in_order() -> None:
    assert nearest("dpth", ["gamma", "depth", "alpha"]) == "did you mean 'depth'? Valid: alpha, depth, gamma"


def test_a_name_like_no_other_gets_no_hint() -> None:
    assert nearest("zzz", ["depth", "alpha"]) == "Valid: alpha, depth"


def test_no_valid_names_are_said_to_be_none() -> None:
    assert nearest("x", []) == "Valid: (none)"


def test_a_long_list_of_names_is_cut_and_counted() -> None:
    names = ["n5", "n4", "n3", "n2", "n1", "n0"]
    assert nearest("??", names) == "Valid: n0, n1, n2, n3, n4, ... (6 in all)"
    assert nearest("??", names, listed_by="`ls`") == "Valid: n0, n1, n2, n3, n4, ... (6 in all; `ls` lists them)"
    assert nearest("??", names[:5]) == "Valid: n1, n2, n3, n4, n5"


def test_of_a_long_list_the_nearest_names_are_told() -> None:
    names = ["grpo", "hgpo", "alpha", "beta", "gamma", "gpo"]
    assert nearest("gpro", names) == "did you mean 'gpo' or 'grpo'? (6 are valid)"
    assert nearest("grpoo", names, listed_by="`ls`") == "did you mean 'grpo'? `ls` lists them all"
    numbered = [f"a{i}" for i in range(9)]
    assert nearest("ab", numbered) == "did you mean 'a0', 'a1', 'a2', 'a3' or 'a4'? (9 are valid)"


def test_two_letters_the_wrong_way_round_are_one_slip() -> None:
    """`difflib` took hgpo for nearer: it shares g, p and o in that order."""
    assert find_near("gpro", ["hgpo", "grpo"]) == ["grpo", "hgpo"]
    assert find_near("gpro", ["alpha", "beta"]) == []


def test_names_are_near_up_to_half_of_their_characters_and_five_at_most() -> None:
    assert find_near("ab", ["ac", "cd", "abcd", "abcde"]) == ["abcd", "ac"]
    assert find_near("a", [f"a{i}" for i in range(9)]) == ["a0", "a1", "a2", "a3", "a4"]


def test_a_name_of_a_megabyte_is_compared_with_nothing() -> None:
    assert find_near("x" * 1_000_000, ["x" * 1_000_001, "y"]) == []


def test_edits_are_counted_as_damerau_does() -> None:
    pairs = {
        ("", ""): 0,
        ("", "abc"): 3,
        ("ca", "ac"): 1,
        ("ca", "abc"): 3,
        ("kitten", "sitting"): 3,
        ("abcd", "acbd"): 1,
    }
    assert {pair: count_edits(*pair) for pair in pairs} == pairs
    assert {pair: count_edits(*pair[::-1]) for pair in pairs} == pairs
