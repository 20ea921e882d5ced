"""The commands on files that are as they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from groupwise import methods
from groupwise.cli.arguments import build_algorithm
from groupwise.cli.main import make_app
from groupwise.cli.screen import format_share, shorten
from tests.unit.cli.conftest import Run
from tests.unit.cli.files import EXAMPLE, ROWS, row, write
from tests.unit.report.run_folders import write_run


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(make_app(), list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def words(text: str) -> str:
    """The text without the tables' white space."""
    return " ".join(text.split())


# what all share


def test_every_command_that_sets_unsets_too() -> None:
    """`task_set`, `check env` and `check part` take fields of a part, not of a file."""
    root = typer.main.get_command(make_app())
    commands = list_commands(root, "groupwise")
    setting = {name for name, options in commands.items() if "--set" in options}
    assert setting == {name for name, options in commands.items() if "--unset" in options} | {
        "groupwise tasks",
        "groupwise check env",
        "groupwise check part",
    }
    wanted = ("train", "launch", "sweep", "preview", "evaluate", "doctor", "lab", "warmup", "check engine")
    assert {f"groupwise {name}" for name in wanted} <= setting


def list_commands(command: Any, name: str) -> dict[str, list[str]]:
    """The options of every command below one, by its name."""
    if hasattr(command, "commands"):
        inner = [list_commands(below, f"{name} {key}") for key, below in command.commands.items()]
        return {key: options for part in inner for key, options in part.items()}
    return {name: [option for parameter in command.params for option in parameter.opts]}


# methods


def test_methods_lists_every_method_with_its_sentence_and_citation() -> None:
    listed = words(invoke("methods").stdout)
    for name in methods.names():
        summary = methods.summary(name)
        assert name in listed
        # Sentences and citations share their lines with the other columns, so look word by word.
        assert all(word in listed for word in (summary.sentence + " " + summary.citation).split()), name


@pytest.mark.parametrize("name", methods.names())
def test_methods_show_prints_the_docstring_the_options_and_the_parts(name: str) -> None:
    shown = words(invoke("methods", "--show", name).stdout)
    assert words(methods.summary(name).text) in shown
    for option, default in methods.summary(name).options.items():
        assert f"{option}={default!r}" in shown
    assert "parts (as a run file names them)" in shown
    assert f"advantage: {methods.build(name).config()['advantage']['kind']}" in shown


def test_methods_show_names_every_part_down_to_its_numbers() -> None:
    shown = invoke("methods", "--show", "grpo").stdout
    tree = shown.partition("parts (as a run file names them)\n")[2]
    assert tree.splitlines()[:12] == [
        "├── advantage: relative",
        "│   ├── by: by_task",
        "│   ├── of: episode_return",
        "│   ├── baseline: mean",
        "│   ├── scale: deviation",
        "│   │   ├── ddof = 1",
        "│   │   ├── eps = 1e-06",
        "│   │   └── factor = 1.0",
        "│   ├── average = 'rollout'",
        "│   ├── alone = 'zero'",
        "│   ├── virtual = []",
        "│   └── virtual_is_company = True",
    ]


def test_methods_show_numbers_the_terms_of_a_sum() -> None:
    shown = invoke("methods", "--show", "gigpo").stdout
    assert "terms[0]" in shown
    assert "terms[1]" in shown
    assert "weight = 1.0" in shown


# audit


def audit_json(file: str | Path, *arguments: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(invoke("audit", str(file), "--json", *arguments).stdout)
    return data


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "rollouts.jsonl", ROWS)


def test_audit_json_holds_the_census_levels_methods_and_findings(small: Path) -> None:
    audit = audit_json(small, "--method", "dr_grpo", "--method", "rloo", "--depth", "1", "--gamma", "1")
    assert audit["census"] == {
        "tasks": 2,
        "rollouts": 4,
        "steps": 6,
        "rollouts_per_task": {"2": 2},
        "mean_return": 1.25,
        "lone_tasks": 0,
        "equal_tasks": 0,
        "steps_without_state": 0,
        "malformed_steps": None,
        "refused_steps": None,
        "invalid_steps": None,
    }
    assert [level["depth"] for level in audit["levels"]] == [0, 1]
    assert [level["compared_steps"] for level in audit["levels"]] == [6, 2]
    assert [column["name"] for column in audit["methods"]] == ["dr_grpo", "rloo"]
    # Returns 1, 0 and 0, 4: credit a half and two; leave-one-out doubles both.
    assert [column["largest"] for column in audit["methods"]] == [2.0, 4.0]
    assert audit["methods"][0]["flips"] == {"rloo": 0}
    assert [mover["action"] for mover in audit["gains"]] == ["go", "go", "take"]
    assert [mover["rollout"] for mover in audit["losses"]] == ["a", "b", "b"]
    assert audit["findings"][-1] == "From dr_grpo to rloo, 0.0 % of the nonzero advantages change sign."


def test_audit_compares_three_methods_and_four_depths_by_default(small: Path) -> None:
    audit = audit_json(small)
    assert [column["name"] for column in audit["methods"]] == ["grpo", "gigpo", "hgpo"]
    assert [level["depth"] for level in audit["levels"]] == [0, 1, 2, 3, 4]


def test_audit_of_a_run_has_the_runs_own_method_too(tmp_path: Path) -> None:
    write_run(tmp_path / "run", algorithm=methods.hgpo(refused_penalty=0.1), updates=2)
    *others, own = audit_json(tmp_path / "run")["methods"]
    assert [column["name"] for column in (*others, own)] == ["grpo", "gigpo", "hgpo", "this run's own"]
    assert own["mean_size"] != others[-1]["mean_size"]  # the run punished what the environment refused
    assert [column["name"] for column in audit_json(tmp_path / "run", "--method", "rloo")["methods"]] == ["rloo"]


def test_audit_prints_tables_movers_and_findings(small: Path) -> None:
    text = invoke("audit", str(small), "--method", "dr_grpo", "--method", "rloo").stdout
    lines = [words(line) for line in text.splitlines()]
    assert lines[0].startswith("Audit of ")
    assert "2 tasks, 4 rollouts, 6 steps; mean return 1.25; 0 tasks with one rollout, 0 with equal returns; " in text
    headings = "depth groups mean size compared own only alone too early all equal hide histories baseline moves"
    assert f"{headings} sign flips" in lines
    # Depth 0: the state s of t, m of t, s of u, two steps each.
    assert "0 3 2.0 100.0 % 0.0 % 0.0 % 0.0 % 0.0 %" in lines
    # Depth 1: (s, m) of t, two steps; four are too early.
    assert "1 1 2.0 33.3 % 0.0 % 0.0 % 66.7 % 0.0 % 0.0 % 0 (0.00 sd) 0.0 %" in lines
    assert "method compared only exactly 0 mean |A| max |A| dr_grpo rloo" in lines
    # Four steps of a half and two of two: mean 1.
    assert "dr_grpo 100.0 % 0.0 % 0.0 % 1.000 2.000 - 0.0 % / 1.00" in lines
    assert "rloo 100.0 % 0.0 % 0.0 % 2.000 4.000 0.0 % / 1.00 -" in lines
    assert "Steps that gain most from dr_grpo to rloo" in lines
    assert "u c 0 +2.000 +4.000 s go" in lines
    assert "u a 0 -2.000 -4.000 s [bold]go[/]" in lines
    assert lines[-1] == "1. From dr_grpo to rloo, 0.0 % of the nonzero advantages change sign."


def test_audit_shows_no_depth_at_which_nothing_can_be_compared(tmp_path: Path) -> None:
    alike = [row("t", rollout, 0, "s", reward) for rollout, reward in (("a", 0.0), ("b", 1.0))]
    text = invoke("audit", str(write(tmp_path / "first_steps.jsonl", alike))).stdout
    assert "\n1 task, 2 rollouts, 2 steps; " in text
    shown = text[text.index("sign flips") : text.index("Advantages under")].splitlines()[1:]
    assert [words(line).split()[0] for line in shown if line.strip()] == ["0"]
    stateless = [row("t", rollout, 0, None, reward) for rollout, reward in (("a", 0.0), ("b", 1.0))]
    text = invoke("audit", str(write(tmp_path / "stateless.jsonl", stateless))).stdout
    assert "Groups by depth" not in text
    assert "1. 100.0 % of the steps have no state: GiGPO and HGPO cannot compare them." in text


def test_audit_names_the_file_that_lacks_a_column(groupwise: Run, tmp_path: Path) -> None:
    write(tmp_path / "joined.jsonl", [row("t", name, 0, "s", 0.0, valid=True) for name in "ab"])
    refused = groupwise("audit", "joined.jsonl", "--method", "hgpo")
    assert refused.status == 2
    assert refused.err.startswith("error: joined.jsonl: the table has a column 'valid' but no 'well_formed'")


def test_audit_of_one_method_has_no_movers(small: Path) -> None:
    assert "Steps that gain most" not in invoke("audit", str(small), "--method", "grpo").stdout


def test_audit_takes_methods_with_options_and_run_files(small: Path, tmp_path: Path) -> None:
    run = tmp_path / "mine.toml"
    run.write_text('[algorithm]\nmethod = "hgpo"\ndepth = 0\nscale = "none"\ngamma = 1.0\n')
    with_options = "hgpo:depth=0,scale=none,gamma=1.0"
    columns = audit_json(small, "--method", with_options, "--method", str(run))["methods"]
    assert [column["name"] for column in columns] == [with_options, str(run)]
    # States of t: returns 1, 0 at both: a half. s of u: 0, 4: two.
    assert [column["largest"] for column in columns] == [2.0, 2.0]
    assert columns[0]["correlation"] == {str(run): pytest.approx(1.0)}


def test_audit_of_the_shipped_example_counts_what_is_in_the_file() -> None:
    lines = [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()[1:]]
    census = audit_json(EXAMPLE)["census"]
    assert census["steps"] == len(lines)
    assert census["tasks"] == len({line["task"] for line in lines})
    assert census["rollouts"] == len({(line["task"], line["rollout"]) for line in lines})
    assert census["refused_steps"] == sum(not line.get("accepted", True) for line in lines)


def test_audit_of_the_shipped_example_has_something_to_say() -> None:
    text = invoke("audit", str(EXAMPLE)).stdout
    assert "Findings" in text
    assert "with several histories" in words(text)


def test_a_batch_wide_method_audits_a_file_that_fits_into_memory(small: Path) -> None:
    assert audit_json(small, "--method", "reinforce_pp")["methods"][0]["compared_steps"] == 6


# explain


def test_explain_shows_groups_members_and_the_number_derived_again(small: Path) -> None:
    text = invoke("explain", str(small), "--task", "t", "--rollout", "a", "--step", "1", "--method", "dr_grpo").stdout
    assert text.splitlines() == [
        "task 't', rollout 'a', step 1 under dr_grpo",
        "state  m",
        "action take",
        "EpisodeReturn compared ByTask, Mean / NoScale: (1 - 0.5) / 1 = 0.5",
        "├── rollout a, mean of 2 steps: 1 (this rollout)",
        "├── rollout b, mean of 2 steps: 0",
        "└── of EpisodeReturn: 1",
        "advantage +0.500000000; derived again by hand from the members, it agrees (gap 0.0e+00)",
    ]


def test_explain_needs_no_task_where_the_rollout_is_unique(small: Path) -> None:
    text = invoke("explain", str(small), "--rollout", "c", "--step", "0", "--method", "rloo").stdout
    assert text.splitlines()[0] == "task 'u', rollout 'c', step 0 under rloo"
    assert "advantage +4.000000000" in text


def test_explain_is_about_hgpo_by_default_and_shows_its_weights(small: Path) -> None:
    text = invoke("explain", str(small), "--task", "t", "--rollout", "a", "--step", "1").stdout
    assert text.splitlines()[0] == "task 't', rollout 'a', step 1 under hgpo"
    # Levels 0 and 1 compare with weights 1 and 2 of 3; nobody has two steps of history.
    assert "weight 0.3333 x Penalised" in text
    assert "weight 0.6667 x Penalised" in text
    assert "weight 0 x Penalised" in text


def test_explain_json_holds_every_number(small: Path) -> None:
    arguments = ("--task", "t", "--rollout", "b", "--step", "0", "--method", "dr_grpo", "--json")
    data = json.loads(invoke("explain", str(small), *arguments).stdout)
    assert data["value"] == data["by_hand"] == -0.5
    assert data["largest_gap"] == 0
    assert data["compared"] is True
    [[weight, signal]] = data["inner"]
    assert (weight, signal["what"], signal["value"], signal["by_hand"]) == (1, "EpisodeReturn", 0, 0)
    assert [(member["rollout"], member["step"], member["num_steps"]) for member in data["members"]] == [
        ("a", None, 2),
        ("b", None, 2),
    ]
    assert [member["value"] for member in data["members"]] == [1, 0]
    assert [member["is_self"] for member in data["members"]] == [False, True]


def test_explain_leaves_out_of_whitening_what_the_filters_drop(tmp_path: Path) -> None:
    """Right, right, wrong on a token each, beside 100 tokens that were cut off: (1 - 2/3) / sqrt(1/3) = 0.57735."""
    answers = [(1.0, 1, False), (1.0, 1, False), (0.0, 1, False), (0.0, 100, True)]
    rows = [row("t", str(i), 0, "s", reward, tokens=n, cut=cut) for i, (reward, n, cut) in enumerate(answers)]
    config = tmp_path / "masked.toml"
    config.write_text('[algorithm]\nmethod = "reinforce_pp"\nfilters = ["overlong_mask"]\n', encoding="utf-8")
    file = write(tmp_path / "answers.jsonl", rows)
    data = json.loads(
        invoke("explain", str(file), "--rollout", "0", "--step", "0", "--method", str(config), "--json").stdout
    )
    assert data["value"] == pytest.approx(0.57735, abs=1e-4)
    assert data["largest_gap"] <= 1e-12


def write_two_rollouts(folder: Path) -> Path:
    """Rollouts a b b, final score 1, and a c d, final score 0: state b is met twice, by one of them alone."""
    paths = (("0", "abb", 1.0), ("1", "acd", 0.0))
    rows = [
        row("t", rollout, index, state, score * (index == 2), well_formed=True)
        for rollout, path, score in paths
        for index, state in enumerate(path)
    ]
    return write(folder / "two.jsonl", rows)


def test_explain_says_when_a_group_holds_only_steps_of_the_same_rollout(tmp_path: Path) -> None:
    path, at_step = write_two_rollouts(tmp_path), ("--task", "t", "--rollout", "0", "--method", "hgpo", "--step")
    lines = words(invoke("explain", str(path), *at_step, "1").stdout)
    assert "no other rollout is in this group: it holds only steps of this rollout" in lines
    assert "it is compared only with steps of its own rollout: no other rollout is in its groups" in lines
    assert json.loads(invoke("explain", str(path), *at_step, "1", "--json").stdout)["own_rollout_only"] is True
    assert "own rollout" not in invoke("explain", str(path), *at_step, "0").stdout
    assert json.loads(invoke("explain", str(path), *at_step, "0", "--json").stdout)["own_rollout_only"] is False


def test_audit_shows_the_fraction_of_steps_that_are_compared_within_their_own_rollout(tmp_path: Path) -> None:
    """Four of six steps are compared, two of them with each other alone."""
    path, methods = write_two_rollouts(tmp_path), ("--method", "hgpo", "--method", "hgpo:peers=other_rollouts")
    data = audit_json(path, *methods, "--depth", "1")
    assert [(level["compared_steps"], level["own_rollout_steps"]) for level in data["levels"]] == [(4, 2), (0, 0)]
    assert [(line["compared_steps"], line["own_rollout_steps"]) for line in data["methods"]] == [(4, 2), (2, 0)]
    lines = words(invoke("audit", str(path), *methods, "--depth", "1").stdout)
    assert "0 2 2.0 66.7 % 50.0 % 33.3 %" in lines
    assert "hgpo 66.7 % 50.0 % 0.0 %" in lines
    assert (
        "50.0 % of the steps that hgpo compares have no other rollout in their groups: a rollout is compared" in lines
    )


def test_explain_shows_twelve_members_and_counts_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "many.jsonl", [row("t", f"a{i:02d}", 0, "s", float(i)) for i in range(15)])
    text = invoke("explain", str(path), "--rollout", "a00", "--step", "0", "--method", "grpo").stdout
    assert text.count("rollout a") == 12
    assert "… and 3 more members" in text


def test_explain_agrees_on_the_first_step_of_the_shipped_example() -> None:
    first = json.loads(EXAMPLE.read_text(encoding="utf-8").splitlines()[1])
    arguments = ("--task", str(first["task"]), "--rollout", str(first["rollout"]), "--step", str(first["step"]))
    for name in ("grpo", "gigpo", "hgpo", "salt"):
        text = invoke("explain", str(EXAMPLE), *arguments, "--method", name).stdout
        assert "it agrees" in words(text)


# check rollouts


def test_check_passes_a_clean_file_with_status_0(groupwise: Run, rollouts: str) -> None:
    ran = groupwise("check", "rollouts", rollouts)
    assert ran.status == 0
    assert ran.out.splitlines()[0] == "rollouts.jsonl: 6 rows, 11 checks"
    assert [line.split() for line in ran.out.splitlines()[1:]].count(["ok", "duplicated-row"]) == 1


def test_check_fails_a_file_with_a_duplicated_row_with_status_1(groupwise: Run, tmp_path: Path) -> None:
    write(tmp_path / "copies.jsonl", [*ROWS, ROWS[1]])
    ran = groupwise("check", "rollouts", "copies.jsonl")
    assert (ran.status, ran.err) == (1, "")
    assert (
        " error    duplicated-row: 1. A copied row counts twice in every statistic. Drop it, or number the parts of a "
        "step with `segment`.\n          line 3, 8: group 't', rollout 'a', step 1 twice\n"
    ) in ran.out


def test_check_warns_of_a_lone_rollout_with_status_0(groupwise: Run, tmp_path: Path) -> None:
    write(tmp_path / "lone.jsonl", ROWS[:2])
    ran = groupwise("check", "rollouts", "lone.jsonl")
    assert ran.status == 0
    assert " warning  lone-rollout: 1." in ran.out


def test_check_json_tells_every_check(groupwise: Run, tmp_path: Path) -> None:
    write(tmp_path / "copies.jsonl", [*ROWS, ROWS[1]])
    ran = groupwise("check", "rollouts", "copies.jsonl", "--json")
    data = json.loads(ran.out)
    assert ran.status == 1
    assert data["rows"] == 7
    assert data["faults"]["duplicated-row"]["count"] == 1
    assert data["faults"]["duplicated-row"]["severity"] == "error"
    assert data["faults"]["duplicated-row"]["examples"] == [
        {"kind": "duplicated-row", "lines": [3, 8], "found": "group 't', rollout 'a', step 1 twice"}
    ]
    assert data["faults"]["lone-rollout"]["count"] == 0


def test_the_shipped_example_breaks_no_credit() -> None:
    assert "error" not in [line.split()[0] for line in invoke("check", "rollouts", str(EXAMPLE)).stdout.splitlines()]


# names and words


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("hgpo", "hgpo", {}),
        ("hgpo:depth=4,scale=none", "hgpo", {"depth": 4, "scale": "none"}),
        ('hgpo:scale="none",episode=true', "hgpo", {"scale": "none", "episode": True}),
    ],
)
def test_a_method_is_named_with_its_options(text: str, name: str, options: dict[str, Any]) -> None:
    assert build_algorithm(text) == methods.build(name, **options)


def test_shares_and_short_texts() -> None:
    assert format_share(1, 8) == "12.5 %"
    assert format_share(1, 0) == "-"
    assert shorten("one  two\nthree", 13) == "one two three"
    assert shorten("one two three", 12) == "one two thr…"


def test_help_lists_the_commands(groupwise: Run) -> None:
    ran = groupwise("--help")
    assert ran.status == 0
    assert all(command in ran.out for command in ("methods", "audit", "explain", "check"))
