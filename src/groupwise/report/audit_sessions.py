"""The audit of recorded sessions under several state rules: what step-level advantages would have to compare.

Axis: S steps. A later step is one that is not the first of its rollout; first steps of a task are always equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from groupwise.agents.recorded_sessions import RecordedCall
from groupwise.agents.state_rules import Messages, ToolRule
from groupwise.data.credit import Credit, spans_rollouts
from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.parts.algorithm import Algorithm
from groupwise.system.errors import RecordError

StateRule = Callable[[Messages], str | None]

BANDS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, None))
"""Step numbers of the table by step, first and last."""
ROLLOUTS = 8
"""Group size that the fraction of steps with peers is fitted for."""

# Limits of the alarms, as fractions of later steps, of compared pairs, and of absolute advantages.
FEW_PEERS, SOME_PEERS = 0.25, 0.50
LARGE_KEY = 0.10
MANY_CALLS = 20
FALSE_PAIRS = 0.10
UNMIXED = 0.10


@dataclass(frozen=True, kw_only=True)
class SessionAudit:
    """The results of an audit of sessions."""

    tasks: int
    rollouts: int
    steps: int
    later_steps: int
    mixed_tasks: int | None
    """Tasks whose rollouts have different final scores; None = scores are not recorded."""
    rules: list[RuleColumn]
    methods: list[MethodShare]
    """Advantages of each method under each rule; empty if scores are not recorded."""
    findings: list[Finding]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RuleColumn:
    """What one rule makes comparable. All fractions are of later steps."""

    name: str
    keys: int
    """Different keys."""
    peers: float
    """Fraction of steps whose key another rollout of the task has."""
    peers_by_step: list[float | None]
    """The same by step number, see `BANDS`; None = there is no such step."""
    comparisons: float
    """Mean number of other rollouts' steps with the same key, over steps that have any."""
    differing: float | None
    """Fraction of steps whose key has rollouts with different final scores; None = scores are not recorded."""
    false_by_writes: float | None
    """Fraction of compared pairs before which other writes succeeded; None = the writes are not known."""
    false_by_state: float | None
    """Fraction of compared pairs in different recorded states of the environment; None = not recorded."""
    largest_key: float
    """Fraction of steps that have the most frequent key."""
    calls_of_key: int
    """The largest number of different last calls before one key."""
    fitted: float | None
    """Fraction with peers in groups of 8 rollouts; None = most tasks have less than three rollouts."""


@dataclass(frozen=True, kw_only=True)
class MethodShare:
    """The advantages of one method under one rule."""

    rule: str
    method: str
    compared: float
    """Fraction of all steps."""
    unmixed: float
    """Fraction of the absolute advantage on tasks whose rollouts all have the same final score."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One alarm in words."""

    level: Literal["red", "amber"]
    rule: str
    text: str


def audit_sessions(
    calls: Iterable[RecordedCall],
    rules: Mapping[str, StateRule],
    algorithms: Mapping[str, Algorithm],
    *,
    writes: StateRule | None = None,
) -> SessionAudit:
    """Audit recorded calls under several rules, with the advantages of each algorithm under each rule.

    The calls of one rollout must be in their order. The keys of `writes` say which writes succeeded. Without it, that
    is not known.
    """
    steps = _Steps()
    for call in calls:
        steps.add(call, rules, writes)
    if not steps.task:
        raise RecordError("the file has no model call: no session has a message of the assistant")
    tables = {name: steps.make_table(name) for name in rules}
    table = next(iter(tables.values()))
    is_scored = len(steps.rewards) == len(table.rollouts)
    is_mixed = ~table.tasks.is_constant(table.episode_return)
    columns = [_describe_rule(name, table, is_scored=is_scored) for name, table in tables.items()]
    methods = [
        _describe_method(rule, method, table, algorithm.credit(table), is_mixed)
        for method, algorithm in (algorithms.items() if is_scored else ())
        for rule, table in tables.items()
    ]
    return SessionAudit(
        tasks=len(table.task_ids),
        rollouts=len(table.rollouts),
        steps=len(table),
        later_steps=int(np.sum(table.step > 0)),
        mixed_tasks=int(is_mixed.sum()) if is_scored else None,
        rules=columns,
        methods=methods,
        findings=[*_find_alarms(columns), *_find_method_alarms(methods)],
    )


_LAST_CALLS = ToolRule(normalise=False)


@dataclass
class _Steps:
    """The columns of all steps. Keys are numbered: their texts would fill the memory."""

    task: list[Hashable] = field(default_factory=list)
    rollout: list[Hashable] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    keys: dict[str, list[int | None]] = field(default_factory=dict)
    """By rule, and `known_...`: what else is known about the steps."""
    rewards: dict[tuple[Hashable, Hashable], float] = field(default_factory=dict)
    lengths: Counter[tuple[Hashable, Hashable]] = field(default_factory=Counter)
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, call: RecordedCall, rules: Mapping[str, StateRule], writes: StateRule | None) -> None:
        place = (call.task, call.rollout)
        self.task.append(call.task)
        self.rollout.append(call.rollout)
        self.step.append(self.lengths[place])
        self.lengths[place] += 1
        if call.reward is not None:
            self.rewards[place] = call.reward
        last_calls = [sorted(map(str, reply)) for reply in _LAST_CALLS.read(call.messages).replies[-1:]]
        found = {
            **{name: rule(call.messages) for name, rule in rules.items()},
            "known_calls": str(last_calls),
            "known_state": call.state,
            "known_writes": None if writes is None else writes(call.messages),
        }
        for name, key in found.items():
            number = None if key is None else self._numbers.setdefault((name, key), len(self._numbers))
            self.keys.setdefault(name, []).append(number)

    def make_table(self, rule: str) -> StepTable:
        """The steps with the keys of a rule. The final score is the reward of the last step."""
        places = zip(self.task, self.rollout, self.step, strict=True)
        return StepTable.from_columns(
            task=self.task,
            rollout=self.rollout,
            step=self.step,
            reward=[
                self.rewards.get((task, rollout), 0.0) if step + 1 == self.lengths[task, rollout] else 0.0
                for task, rollout, step in places
            ],
            state=self.keys[rule],
            well_formed=[True] * len(self.task),
            accepted=[True] * len(self.task),
            **{name: keys for name, keys in self.keys.items() if name.startswith("known_")},
        )


def _describe_rule(name: str, table: StepTable, *, is_scored: bool) -> RuleColumn:
    is_later = table.step > 0
    label = pair_labels(table.task, table.state)
    groups, own = Segments.of(label), Segments.of(pair_labels(label, table.rollout))
    has_peers = spans_rollouts(table, label)
    others = groups.spread(groups.size) - own.spread(own.size)
    differs = np.append(~groups.is_constant(table.episode_return), False)[groups.label]
    keys = Segments.of(np.where(is_later, table.state, -1))
    calls_of_key = Segments.of(pair_labels(keys.label, table.codes("known_calls")))
    return RuleColumn(
        name=name,
        keys=len(table.state_keys),
        peers=_mean(has_peers[is_later]) or 0.0,
        peers_by_step=[
            _mean(has_peers[(table.step >= first) & (table.step <= (last or table.step.max()))])
            for first, last in BANDS
        ],
        comparisons=_mean(others[is_later & has_peers]) or 0.0,
        differing=_mean((differs & has_peers)[is_later]) if is_scored else None,
        false_by_writes=_count_false_pairs(table, label, "known_writes"),
        false_by_state=_count_false_pairs(table, label, "known_state"),
        largest_key=float(keys.size.max(initial=0) / max(is_later.sum(), 1)),
        calls_of_key=int(np.bincount(keys.label[calls_of_key.first]).max(initial=0)),
        fitted=_fit_peers(table, label),
    )


def _mean(values: BoolArray | FloatArray) -> float | None:
    return float(values.mean()) if len(values) else None


def _count_false_pairs(table: StepTable, label: IntArray, truth: str) -> float | None:
    """The fraction of compared pairs of later steps whose true states differ; None = these are not known."""
    known = table.codes(truth)
    if (known < 0).any():
        return None
    later = np.where(table.step > 0, label, -1)
    pairs, true_pairs = (_count_pairs(table, groups) for groups in (later, pair_labels(later, known)))
    return 1.0 - true_pairs / pairs if pairs else None


def _count_pairs(table: StepTable, label: IntArray) -> float:
    """Pairs of steps of different rollouts in one group."""
    groups, own = Segments.of(label), Segments.of(pair_labels(label, table.rollout))
    return float((groups.size.astype(np.float64) ** 2).sum() - (own.size.astype(np.float64) ** 2).sum()) / 2


def _fit_peers(table: StepTable, label: IntArray) -> float | None:
    """The expected fraction of later steps with peers in groups of `ROLLOUTS` rollouts.

    If m of the N other rollouts of its task lack a step's key, k random ones of them all lack it with probability
    C(m, k) / C(N, k). Its mean over the steps, A_k, is exact up to the recorded k. For larger k it is continued.
    A_k / (A_k - A_{k+1}) says how many steps without peers there are per step that finds one in a further rollout.
    It grows on a line if the frequencies of keys have a beta distribution.
    """
    groups, visits = Segments.of(label), Segments.of(pair_labels(label, table.rollout))
    rollouts_of_key = np.append(np.bincount(groups.label[visits.first]), 1)[groups.label]
    rollouts = np.bincount(table.task[table.rollouts.first])[table.task]
    others, lacking = (rollouts - 1)[table.step > 0], (rollouts - rollouts_of_key)[table.step > 0]
    most = min(ROLLOUTS - 1, int(np.median(others))) if len(others) else 0
    if most < 2:
        return None
    others, lacking = others[others >= most], lacking[others >= most]
    chance, alone = np.ones(len(others)), [1.0]
    for k in range(most):
        chance = chance * np.maximum(lacking - k, 0) / (others - k)
        alone.append(float(chance.mean()))
    fraction, found = alone[-1], alone[-2] - alone[-1]
    if found > 0:
        wait = alone[-2] / found
        growth = max(wait - alone[-3] / (alone[-3] - alone[-2]), 0.0)
        for k in range(1, ROLLOUTS - most):
            fraction *= 1 - 1 / (wait + k * growth)
    return 1.0 - fraction


def _describe_method(rule: str, method: str, table: StepTable, credit: Credit, is_mixed: BoolArray) -> MethodShare:
    size = np.abs(credit.trace.values)
    unmixed = size[~is_mixed[table.task]].sum()
    return MethodShare(
        rule=rule,
        method=method,
        compared=float(credit.trace.compared.mean()),
        unmixed=float(unmixed / size.sum()) if size.any() else 0.0,
    )


# Alarms.


def _find_alarms(rules: Sequence[RuleColumn]) -> Iterator[Finding]:
    for rule in rules:
        if rule.peers < SOME_PEERS and rule.keys:
            advice = (
                "Step-level methods promise little here: use grpo, or branch rollouts."
                if rule.peers < FEW_PEERS
                else "Look for text in the key that differs by chance."
            )
            level: Literal["red", "amber"] = "red" if rule.peers < FEW_PEERS else "amber"
            yield Finding(
                level=level, rule=rule.name, text=f"Only {100 * rule.peers:.1f} % of later steps have peers. {advice}"
            )
        if rule.largest_key > LARGE_KEY:
            yield Finding(
                level="amber",
                rule=rule.name,
                text=f"One key has {100 * rule.largest_key:.1f} % of later steps. It says too little about the state.",
            )
        if rule.calls_of_key > MANY_CALLS:
            yield Finding(
                level="amber",
                rule=rule.name,
                text=f"One key follows {rule.calls_of_key} different calls, as an empty result does. Add the calls to "
                "the key: exchange does.",
            )
        false_pairs = max(rule.false_by_writes or 0.0, rule.false_by_state or 0.0)
        if false_pairs > FALSE_PAIRS:
            yield Finding(
                level="amber",
                rule=rule.name,
                text=f"{100 * false_pairs:.1f} % of the compared pairs are in different states of the environment. "
                "Use exchange with writes.",
            )


def _find_method_alarms(methods: Sequence[MethodShare]) -> Iterator[Finding]:
    for name in dict.fromkeys(method.method for method in methods):
        worst = max((method for method in methods if method.method == name), key=lambda method: method.unmixed)
        if worst.unmixed > UNMIXED:
            yield Finding(
                level="amber",
                rule=worst.rule,
                text=f"{100 * worst.unmixed:.1f} % of the absolute advantages of {name} are on tasks whose rollouts "
                "all have the same final score. There the length is the signal; gamma=1 removes it.",
            )
