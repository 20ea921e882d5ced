"""The error tree and the end of its messages."""

from __future__ import annotations

from groupwise.core.errors import ConfigError, FileError, GroupwiseError, RecordError, nearest


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
    names = [f"n{i:02d}" for i in range(33)]
    assert nearest("??", names) == f"Valid: {', '.join(names[:32])}, ... (33 in all)"
    assert nearest("??", names[:32]) == f"Valid: {', '.join(names[:32])}"
