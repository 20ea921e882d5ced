"""Records of a GPU name a commit, the history has it, and pages that quote a record name the same one."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import build_results
import pytest
from record_commits import (
    NOT_IN_HISTORY,
    commit_cell,
    commit_sentence,
    find_commits,
    list_gpu_records,
    shorten_commits,
)
from table_text import RESULTS, result

from benchmarks.result_file import read_commit, write_json, write_result

ROOT = Path(__file__).parents[2]
OLDER = {
    "alfworld",
    "alfworld_imitation",
    "alfworld_with_refused_penalty",
    "engine",
    "engine_profile",
    "engine_vllm",
    "gpu_update",
    "learning_llm",
    "long_context",
    "memory",
    "prefix_gpu",
    "seven_b_update",
    "sharded_update",
    "vllm_update",
}
"""Records that were made before benchmarks wrote down their commit; no newer one may do without."""
IN_README = ("sharded_update", "seven_b_update", "alfworld_pooled")
"""Records of a GPU whose numbers the README quotes."""
QUOTE_NOTHING = {"benchmarks/pages/r3.md": "the pooled result's `coverage`, which is calculated"}
"""Pages that name a record of a GPU and quote no number that was measured."""


def ask_git(*words: str) -> str:
    """What git says of this repository; the test is skipped if the whole history is not there."""
    try:
        shallow = subprocess.run(
            ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True
        )
    except OSError:
        pytest.skip("there is no git")
    if shallow.stdout.strip() != "false":
        pytest.skip("this is no git checkout with its whole history")
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_every_record_of_a_gpu_names_the_commit_that_was_measured_or_brought_it() -> None:
    records = list_gpu_records()
    assert {"alfworld_pooled", "alfworld_seeds/observation_seed_0", *OLDER} <= set(records)
    without = {name for name in records if not find_commits(result(name))}
    assert without == OLDER
    assert [name for name in sorted(without) if not result(name)["came_with_commits"]] == []


def test_the_commits_that_records_name_are_in_the_history() -> None:
    records = [path.relative_to(RESULTS).with_suffix("").as_posix() for path in RESULTS.rglob("*.json")]
    named = {commit for name in records for commit in find_commits(result(name))}
    named |= {commit for name in OLDER for commit in result(name)["came_with_commits"]}
    history = ask_git("rev-list", "HEAD").split()
    assert len(named) > 10
    missing = {
        commit for commit in named if not any(known.startswith(commit.removesuffix("-changed")) for known in history)
    }
    assert missing == set(NOT_IN_HISTORY)


@pytest.mark.parametrize("name", sorted(OLDER))
def test_the_commits_that_brought_a_record_changed_its_file(name: str) -> None:
    # The records of ALFWorld were one file once.
    file = f"benchmarks/results/{'alfworld' if name.startswith('alfworld') else name}.json"
    for commit in result(name)["came_with_commits"]:
        assert file in ask_git("show", "--name-only", "--format=", commit).split()


@pytest.mark.parametrize(
    "path", [*build_results.PAGES, *build_results.PAGES_WITHOUT_TABLES], ids=lambda path: path.stem
)
def test_commits_on_a_page_are_what_the_script_would_write(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert build_results.write_commits(text) == text, "run `python docs/build_results.py`"


def test_pages_that_name_a_record_of_a_gpu_name_its_commits() -> None:
    """Performance in the same section, the other pages anywhere."""
    missing, num_named = [], 0
    for path in [*build_results.PAGES, *build_results.PAGES_WITHOUT_TABLES, *(ROOT / "docs" / "methods").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        for part in re.split(r"^## ", text, flags=re.MULTILINE) if path.stem == "performance" else [text]:
            for name in list_gpu_records():
                if not re.search(rf"\b(?<!/){name}\.json", part.replace("benchmarks/results/", "")):
                    continue
                num_named += 1
                if path.relative_to(ROOT).as_posix() not in QUOTE_NOTHING:
                    missing += [
                        (path.name, name, commit) for commit in shorten_commits(result(name)) if commit not in part
                    ]
    assert num_named > 25
    assert missing == []


def test_the_readme_names_the_commits_of_the_records_that_it_quotes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commits = [commit for name in IN_README for commit in shorten_commits(result(name))]
    assert len(commits) == 5
    assert [commit for commit in commits if f"`{commit}`" not in text] == []


def test_words_for_a_commit_that_was_measured_and_one_that_brought_the_numbers() -> None:
    assert (
        commit_sentence("alfworld_pooled") == "Commits of `alfworld_pooled.json`: `05ee7bfe`, `7406a5d9`, `a3bb3bfd`.\n"
    )
    assert commit_sentence("engine") == (
        "Commit of `engine.json`: not recorded; its numbers came into the repository with `54e95dfb`.\n"
    )
    assert commit_sentence("alfworld_scratch_pooled").endswith(
        "`89e195b5`, `14184c24` (not in the history of this repository).\n"
    )
    assert commit_cell(result("engine")) == "(`54e95dfb`)"
    assert commit_cell({"runs": [{"commit": "0123456789"}, {"commit": "9876543210"}, {"commit": "0123456789"}]}) == (
        "`01234567`, `98765432`"
    )


def test_a_result_is_written_with_the_commit_of_the_code(tmp_path: Path) -> None:
    write_result({"seconds": 1.5}, tmp_path / "new.json")
    write_result({"seconds": 1.5, "commit": "c0ffee"}, tmp_path / "named.json")
    write_json({"seconds": 1.5}, tmp_path / "plain.json")
    made = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()}
    assert made == {
        "new": {"commit": read_commit(), "seconds": 1.5},
        "named": {"commit": "c0ffee", "seconds": 1.5},
        "plain": {"seconds": 1.5},
    }


class TestReadCommit:
    @pytest.fixture(autouse=True)
    def forget(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        read_commit.cache_clear()
        monkeypatch.delenv("GROUPWISE_COMMIT", raising=False)
        yield
        read_commit.cache_clear()

    @pytest.mark.parametrize(
        ("answers", "commit"),
        [
            ({"rev-parse": "0123", "status": ""}, "0123"),
            ({"rev-parse": "0123", "status": "M src/groupwise/losses/kl.py"}, "0123-changed"),
            ({"rev-parse": "", "status": ""}, ""),
        ],
    )
    def test_changed_files_are_told(
        self, answers: dict[str, str], commit: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("benchmarks.result_file._ask_git", lambda first, *words: answers[first])
        assert read_commit() == commit

    def test_it_is_what_git_says(self) -> None:
        head = ask_git("rev-parse", "HEAD").strip()
        assert read_commit().removesuffix("-changed") == head

    def test_without_a_checkout_a_variable_says_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("benchmarks.result_file._ask_git", lambda *words: "")
        monkeypatch.setenv("GROUPWISE_COMMIT", "c0ffee")
        assert read_commit() == "c0ffee"

    def test_without_git_nothing_is_said(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert read_commit() == ""
