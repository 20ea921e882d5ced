"""Audit recorded rollouts: groups, histories, and what several recipes would make of them."""

from groupwise.reports.audit.audit import Audit, audit_tables

__all__ = ["Audit", "audit_tables"]
