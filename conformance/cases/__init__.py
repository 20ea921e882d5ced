"""The cases, grouped by the trap they guard against."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases import (
    constants,
    history,
    identity,
    lone_groups,
    long_rollouts,
    magnitudes,
    malformed_responses,
    missing_states,
    published_agentic,
    published_episode,
    published_group,
    roles_and_edges,
    row_order,
    segments,
    similar_states,
    whitening,
)

CHAPTERS: dict[str, list[Case]] = {
    "Constant groups": constants.CASES,
    "Groups of one": lone_groups.CASES,
    "Row order": row_order.CASES,
    "Identity": identity.CASES,
    "Long rollouts": long_rollouts.CASES,
    "Split rows": segments.CASES,
    "History levels": history.CASES,
    "Malformed responses": malformed_responses.CASES,
    "Missing states": missing_states.CASES,
    "Similar states": similar_states.CASES,
    "Roles and edges": roles_and_edges.CASES,
    "Whitening over the batch": whitening.CASES,
    "Magnitudes": magnitudes.CASES,
    "Published numbers: the common base": published_episode.CASES,
    "Published numbers: baselines": published_group.CASES,
    "Published numbers: step-level methods": published_agentic.CASES,
}
"""Cases by chapter, in the order of the page."""

CASES: tuple[Case, ...] = tuple(case for cases in CHAPTERS.values() for case in cases)
