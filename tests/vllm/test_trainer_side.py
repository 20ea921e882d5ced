"""VLLM's own trainer side of NCCL, with the wire taken out: what our transfer makes of it. GPUs are not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.vllm.environment import run_with_vllm

ROUND = ["/start_weight_update", "/update_weights", "/finish_weight_update"]


def test_servers_join_one_group_and_receive_what_is_sent() -> None:
    answer = run_with_vllm(Path(__file__).with_name("ask_trainer_side.py"))
    assert answer["sent"] == 3 * [["model.embed_tokens.weight", [4, 3]], ["model.norm.weight", [3]]]
    paths = {name: [path for server, path, _ in answer["asked"] if server == name] for name in ("a", "b")}
    assert paths["a"] == ["/init_weight_transfer_engine", *ROUND, *ROUND]
    assert paths["b"] == [*paths["a"], "/shutdown_weight_transfer_engine", "/init_weight_transfer_engine", *ROUND]
    joined = [
        (server, question["init_info"]["rank_offset"], question["init_info"]["world_size"])
        for server, path, question in answer["asked"]
        if path == "/init_weight_transfer_engine"
    ]
    assert sorted(joined[:2]) == [("a", 1, 5), ("b", 3, 5)]
    assert joined[2:] == [("b", 1, 3)]
    assert find_labels(answer, "b") == ["first", "second", "third"]
    [info] = [
        question["update_info"] for server, path, question in answer["asked"] if (server, path) == ("a", ROUND[1])
    ][:1]
    assert info["names"] == ["model.embed_tokens.weight", "model.norm.weight"]
    assert info["shapes"] == [[4, 3], [3]]


def find_labels(answer: Any, name: str) -> list[str]:
    return [
        question["weight_version"]
        for server, path, question in answer["asked"]
        if (server, path) == (name, "/finish_weight_update")
    ]
