"""The routes of a server: those of vLLM 0.32 that a run uses, and three of our own that work in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from groupwise.core.text.safe_text import quote_line
from groupwise.engines.remote.server.messages import (
    RefusedRequest,
    read_ids,
    read_list,
    read_request,
    read_single_request,
    read_temperature,
    read_text,
    read_version,
    write_choice,
    write_generation,
    write_prompt_logprobs,
)
from groupwise.engines.remote.server.served_model import ServedModel

Body = Mapping[str, Any]
Query = Mapping[str, str]
Route = Callable[[Body, Query], dict[str, Any]]


class Routes:
    """Answers by method and path; each answer is an object of JSON."""

    def __init__(self, model: ServedModel, *, takes_batches: bool = True) -> None:
        """Without `takes_batches` there are vLLM's routes alone, and requests come one by one."""
        self._model = model
        self._adapter = ""
        self._table: dict[tuple[str, str], Route] = {
            ("GET", "/health"): lambda body, query: {"status": "healthy"},
            ("GET", "/v1/models"): self._list_models,
            ("GET", "/weight_info"): lambda body, query: {"weight_version": str(model.version)},
            ("POST", "/inference/v1/generate"): self._generate_single,
            ("POST", "/pause"): self._pause,
            ("POST", "/resume"): self._resume,
            ("GET", "/is_paused"): lambda body, query: {"is_paused": model.is_paused},
            ("POST", "/init_weight_transfer_engine"): lambda body, query: {"message": "nothing to prepare"},
            ("POST", "/start_weight_update"): self._start_update,
            ("POST", "/update_weights"): self._update_weights,
            ("POST", "/finish_weight_update"): self._finish_update,
            # `load` has forgotten what old weights computed; a vLLM server has not, and must be told.
            ("POST", "/reset_prefix_cache"): lambda body, query: {"message": "nothing of older weights is kept"},
            ("POST", "/weight_checker"): self._check_weights,
            ("POST", "/v1/load_lora_adapter"): self._load_adapter,
            ("POST", "/v1/unload_lora_adapter"): lambda body, query: {"message": "older adapters are not kept"},
        }
        if takes_batches:
            self._table |= {
                ("GET", "/groupwise/v1/info"): self._describe,
                ("POST", "/groupwise/v1/generate"): self._generate_batch,
                ("POST", "/groupwise/v1/score"): self._score_batch,
            }

    def answer(self, method: str, path: str, query: Query, body: Body) -> dict[str, Any]:
        """Answer a call; RefusedRequest where there is no such route, or the request cannot be meant."""
        route = self._table.get((method, path))
        if route is not None:
            return route(body, query)
        others = [known for known, place in self._table if place == path]
        if others:
            raise RefusedRequest(f"{path} is called with {others[0]}, not {quote_line(method)}", status=405)
        raise RefusedRequest(f"there is no {quote_line(path)} here", status=404)

    def _list_models(self, body: Body, query: Query) -> dict[str, Any]:
        card = self._model.card
        entry = {"id": card.name, "object": "model", "root": card.root, "max_model_len": self._model.context}
        return {"object": "list", "data": [entry]}

    def _describe(self, body: Body, query: Query) -> dict[str, Any]:
        model, card = self._model, self._model.card
        return {
            "model": card.name,
            "root": card.root,
            "gives": sorted(model.gives),
            "precision": card.precision,
            "dtype": card.dtype,
            "vocabulary": card.vocabulary,
            "context": model.context,
            "version": model.version,
        }

    def _generate_batch(self, body: Body, query: Query) -> dict[str, Any]:
        vocabulary = self._model.card.vocabulary
        requests = [read_request(fields, vocabulary=vocabulary) for fields in read_list(body, "requests")]
        return {"generations": [write_generation(answer) for answer in self._model.generate(requests)]}

    def _score_batch(self, body: Body, query: Query) -> dict[str, Any]:
        vocabulary, sequences = self._model.card.vocabulary, []
        for pair in read_list(body, "sequences"):
            if not isinstance(pair, list) or len(pair) != 2:
                raise RefusedRequest("a sequence is no pair; give [prompt_ids, response_ids]")
            prompt = read_ids(pair[0], "prompt_ids", vocabulary=vocabulary, minimum=1)
            sequences.append((prompt, read_ids(pair[1], "response_ids", vocabulary=vocabulary)))
        temperature = read_temperature(body.get("temperature", 1.0))
        if not temperature:
            raise RefusedRequest("temperature is 0; log-probs need a positive one")
        return {"scores": self._model.score(sequences, temperature=temperature)}

    def _generate_single(self, body: Body, query: Query) -> dict[str, Any]:
        name = body.get("model") or self._model.card.name
        if name not in (self._model.card.name, self._adapter):
            raise RefusedRequest(
                f"there is no model {quote_line(str(name))!r} here, only {self._model.card.name!r}", status=404
            )
        single = read_single_request(body, vocabulary=self._model.card.vocabulary)
        ids, temperature = single.request.prompt_ids, single.request.temperature
        [answer] = self._model.generate([single.request])
        named = self._model.score([(ids, (token,)) for token in single.named_ids], temperature=temperature or 1.0)
        logps = {token: logp for token, (logp,) in zip(single.named_ids, named, strict=True)}
        message: dict[str, Any] = {"model": name, "choices": [write_choice(answer, named=logps)]}
        if single.wants_prompt:  # at temperature 1, as vLLM gives them
            [scores] = self._model.score([(ids[:1], ids[1:])], temperature=1.0)
            message["prompt_logprobs"] = write_prompt_logprobs(ids, scores)
        return message

    def _pause(self, body: Body, query: Query) -> dict[str, Any]:
        mode = query.get("mode", "keep")
        if mode not in ("keep", "wait"):
            raise RefusedRequest(f"mode is {quote_line(mode)!r}; give 'keep', since nothing is given up half-way here")
        self._model.pause()
        return {"status": "paused"}

    def _resume(self, body: Body, query: Query) -> dict[str, Any]:
        self._model.resume()
        return {"status": "resumed"}

    def _start_update(self, body: Body, query: Query) -> dict[str, Any]:
        self._model.start_update()
        return {"message": "started"}

    def _update_weights(self, body: Body, query: Query) -> dict[str, Any]:
        update = body.get("update_info")
        if not isinstance(update, dict):
            raise RefusedRequest("update_info is missing; give an object with the path of a safetensors file")
        self._model.stage_file(read_text(update, "path"))
        return {"message": "read"}

    def _finish_update(self, body: Body, query: Query) -> dict[str, Any]:
        self._model.finish_update(read_version(body.get("weight_version")))
        return {"message": "finished"}

    def _check_weights(self, body: Body, query: Query) -> dict[str, Any]:
        if body.get("action") != "checksum":
            raise RefusedRequest("action is not 'checksum', the only one here")
        return {"checksums": self._model.compute_checksums()}

    def _load_adapter(self, body: Body, query: Query) -> dict[str, Any]:
        """Take an adapter over; its name ends with the version of its weights, and requests call it by its name."""
        name = read_text(body, "lora_name")
        version = name.rpartition("-")[2]
        self._model.load_adapter(read_text(body, "lora_path"), read_version(version))
        self._adapter = name
        return {"message": f"adapter {name} is in use"}
