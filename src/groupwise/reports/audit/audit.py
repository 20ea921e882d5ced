"""The whole audit: every table of the file passes once, and each tally counts its part of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from groupwise.advantages import NoScale, Relative, ReturnToGo
from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Comparison, Credit
from groupwise.core.errors import ConfigError
from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable
from groupwise.groups import ByHistory
from groupwise.reports.audit.census import Census, CensusTally
from groupwise.reports.audit.findings import write_findings, write_token_findings
from groupwise.reports.audit.levels import HistoryLevel, LevelTally
from groupwise.reports.audit.memories import MemoryCosts, count_memory_costs
from groupwise.reports.audit.movers import Mover, MoverTally
from groupwise.reports.audit.recipe_comparison import RecipeColumn, RecipeTally
from groupwise.reports.audit.recorded_tokens import RecordedTokens
from groupwise.reports.audit.token_comparison import TokenColumn, TokenTally, value_tokens
from groupwise.reports.audit.token_movers import TokenMover, TokenMoverTally
from groupwise.rollout.prompts.memory import Memory

NUM_MOVERS = 5


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found."""

    census: Census
    """What is in the file."""
    levels: list[HistoryLevel]
    """Groups at each depth of history."""
    recipes: list[RecipeColumn]
    """Credit under each recipe."""
    gains: list[Mover]
    """Steps that gain most from the first recipe to the last."""
    losses: list[Mover]
    """Steps that lose most."""
    memories: MemoryCosts | None
    """Tokens under each memory; None where nobody asked."""
    findings: list[str]
    """What it means, in sentences."""
    token_recipes: list[TokenColumn] | None = None
    """Credit of tokens under each recipe; None where no recipe gives tokens credit of their own."""
    token_movers: list[TokenMover] | None = None
    """Tokens whose credit changes most from the first recipe to the last, among those that both train; or None."""

    def as_json(self) -> dict[str, Any]:
        """The audit as plain data; nothing of tokens where nothing was compared of them."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "memories"}


def audit_tables(
    tables: Iterable[StepTable],
    algorithms: Mapping[str, Algorithm],
    *,
    depth: int = 4,
    gamma: float = 0.95,
    tokens: RecordedTokens | None = None,
    memories: Mapping[str, Memory] | None = None,
    read_tokens: Callable[[StepTable], TokenTable] | None = None,
) -> Audit:
    """Audit tables that each hold whole tasks.

    Args:
        tables: the parts of the file; one at a time is held in memory.
        algorithms: the recipes to compare, by name, in order; the first and the last are compared step by step.
        depth: how many earlier states to look at.
        gamma: discount of the return that the depths are compared by.
        tokens: what is shown the rows while the tables are read; None = tokens are not counted.
        memories: the memories to count tokens under, by name.
        read_tokens: gives the sampled tokens of the last table, for recipes that credit them; None = not compared.
    """
    names = list(algorithms)
    if not names:
        raise ConfigError("an audit needs at least one recipe; name one, such as hgpo")
    levels = _make_levels(depth, ReturnToGo(gamma=gamma))
    census, level_tally = CensusTally(), LevelTally(len(levels))
    recipe_tally, movers = RecipeTally(names), MoverTally(NUM_MOVERS)
    of_tokens = _TokenTallies(algorithms, read_tokens)
    for number, table in enumerate(tables):
        if number:
            _refuse_batchwide(algorithms)
        credits = {name: algorithm.credit(table) for name, algorithm in algorithms.items()}
        census.add(table)
        level_tally.add(table, [_compare(level, table) for level in levels])
        recipe_tally.add(table, credits)
        movers.add(table, credits[names[0]], credits[names[-1]])
        of_tokens.add(table, credits)
    (gains, losses), (token_recipes, token_movers) = movers.result(), of_tokens.result()
    result = census.result(), level_tally.result(), recipe_tally.result()
    return Audit(
        census=result[0],
        levels=result[1],
        recipes=result[2],
        gains=gains,
        losses=losses,
        memories=None if tokens is None else count_memory_costs(tokens, memories or {}),
        findings=[*write_findings(*result), *write_token_findings(token_recipes or ())],
        token_recipes=token_recipes,
        token_movers=token_movers,
    )


class _TokenTallies:
    """Counts what recipes give the sampled tokens of each table; nothing where none gives them credit of their own."""

    def __init__(
        self, algorithms: Mapping[str, Algorithm], read_tokens: Callable[[StepTable], TokenTable] | None
    ) -> None:
        self._columns, self._movers = TokenTally(algorithms), TokenMoverTally(NUM_MOVERS)
        self._algorithms = algorithms
        self._read_tokens = read_tokens if gives_token_credit(algorithms) else None

    def add(self, table: StepTable, credits: Mapping[str, Credit]) -> None:
        """Count the tokens of a table, given the credit of its steps under each recipe."""
        if self._read_tokens is None:
            return
        tokens = self._read_tokens(table)
        valued = [
            value_tokens(name, algorithm, table, credits[name], tokens) for name, algorithm in self._algorithms.items()
        ]
        self._columns.add(tokens, valued)
        self._movers.add(table, tokens, valued[0], valued[-1])

    def result(self) -> tuple[list[TokenColumn] | None, list[TokenMover] | None]:
        """A column a recipe and the tokens that change most; None where nothing was compared."""
        return (None, None) if self._read_tokens is None else (self._columns.result(), self._movers.result())


def gives_token_credit(algorithms: Mapping[str, Algorithm]) -> bool:
    """Whether any of the recipes gives tokens credit of their own."""
    return any(algorithm.token_credit is not None for algorithm in algorithms.values())


def _make_levels(depth: int, of: ReturnToGo) -> list[Relative]:
    return [Relative(by=ByHistory(depth=k), of=of, scale=NoScale(), average="step") for k in range(depth + 1)]


def _compare(level: Relative, table: StepTable) -> Comparison:
    trace = level(table).trace
    assert isinstance(trace, Comparison), "a level is a plain comparison"
    return trace


def _refuse_batchwide(algorithms: Mapping[str, Algorithm]) -> None:
    for name, algorithm in algorithms.items():
        if any(part.mixes_tasks for part in algorithm.parts()):
            raise ConfigError(
                f"recipe {name!r} compares across tasks and needs the whole file in memory, which is too large for "
                "that; leave it out, or audit a smaller file"
            )
