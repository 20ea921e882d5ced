"""What the servers of an engine did in an update; `N` in a name stands for the number of a server, from 0."""

from __future__ import annotations

import re

from groupwise.training.metrics.metric import Metric

REPLICA_NUMBER = re.compile(r"^replicas/[0-9]+/")
"""How the name of a metric of one replica begins."""

REPLICA_METRICS: dict[str, Metric] = {
    "replicas/alive": Metric(
        "servers that answer requests",
        "servers",
        "Below what was started: the log has a sentence for each that is out; it comes back at a hand-over, after the "
        "current weights and a check of its own.",
    ),
    "replicas/left": Metric(
        "servers that went out since the update before: they died, hung, answered garbage or failed a hand-over",
        "servers",
        "Above 0 in many updates: look into the log of the server; one that is merely slow needs a longer "
        "`engine.request_timeout`.",
    ),
    "replicas/readmitted": Metric(
        "servers that came back since the update before",
        "servers",
        "Rising with `replicas/left`: a server comes and goes; take it away.",
    ),
    "replicas/sent_again": Metric(
        "requests that were sent to another server, with the same seed, because theirs failed",
        "requests",
        "Above 0: nothing is lost but time; see `replicas/left`.",
    ),
    "replicas/N/requests": Metric(
        "requests that server N answered",
        "requests",
        "Far from equal among servers: attempts differ in length, or one was out.",
    ),
    "replicas/N/tokens": Metric(
        "tokens that server N sampled",
        "tokens",
        "As for `replicas/N/requests`.",
    ),
    "replicas/N/seconds": Metric(
        "time that calls to server N took, summed over calls that ran side by side",
        "s",
        "Far above the others' for as many tokens: the server is slow or shares its machine.",
    ),
    "replicas/N/faults": Metric(
        "calls and hand-overs that server N failed at",
        "faults",
        "As for `replicas/left`.",
    ),
    "replicas/N/handover_seconds": Metric(
        "time of the hand-over of weights to server N",
        "s",
        "Far above the others': its disk or network is slow; put `training.weight_transfer.folder` where it is fast.",
    ),
}
"""Metrics of engines that are servers, by name."""
