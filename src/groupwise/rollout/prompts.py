"""Prompts as token ids: an instruction, the history in the prompt, and the current observation."""

from __future__ import annotations

import copy
import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from groupwise.envs.kit.words import vocabulary_of
from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Part, Slot, kind_of
from groupwise.parts.path_settings import make_absolute
from groupwise.system.errors import ConfigError, nearest
from groupwise.system.files import read_text_file
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from groupwise.data.records import Task
    from groupwise.envs.environment import Observation

MAX_NUMBERS = 40
"""Numbers of actions in the vocabulary of a tokenizer made from scratch."""
MAX_NUMBERED_STEPS = 50
"""Numbers of steps in the vocabulary of a tokenizer made from scratch."""
KEPT_TEXTS = 4096
"""Size of the cache of encoded texts; the rollouts of a group have the same observations."""
KEPT_PROMPTS = 256
"""Size of the cache of prompts that are encoded whole; the first prompts of a group are equal."""

PastStep = tuple[str, str]
"""A past step as text: the observation, and the action that was sent."""


class Template(Protocol):
    """Fills the slot `template`: the text of prompts."""

    @property
    def is_one_message(self) -> bool:
        """Whether a prompt is a single message with the past steps, from `write_step`; else it is a dialogue."""

    @property
    def asks_for_tags(self) -> bool:
        """Whether the prompt asks for an action between action tags."""

    def words(self) -> tuple[str, ...]:
        """Its words beside those of the environment, for a tokenizer made from scratch."""

    def write_opening(self, instruction: str, goal: str, hint_text: str = "") -> str:
        """Write the beginning of every prompt of a rollout."""

    def write_observation(self, seen: Observation) -> str:
        """Write the current observation, as a turn of a dialogue."""

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        """Write all of a single message after its opening."""


class PromptTemplate(Part, slot="template"):
    """A dialogue: each observation is a turn, and so is each response.

    A prompt begins with the instruction and the goal. The observations follow as the environment gives them.
    """

    is_one_message: ClassVar[bool] = False
    show_instruction: bool = True
    """Whether prompts begin with the environment's one-line instruction."""
    show_goal: bool = True
    """Whether prompts give the goal after the instruction."""
    show_admissible: Literal["no", "yes", "numbered"] = "no"
    """Whether observations list the possible actions, and whether these are numbered."""
    tell_past: bool = False
    """Whether past steps are shown as the observation without the list of actions, and the action that was sent. If
    not, they stay as they were, with list and response, and each prompt continues the previous one."""
    thoughts: bool = False
    """Whether prompts ask for thoughts between think tags, then for an action between action tags."""

    @property
    def asks_for_tags(self) -> bool:
        return self.thoughts

    def words(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(1, MAX_NUMBERS + 1)) if self.show_admissible == "numbered" else ()

    def write_opening(self, instruction: str, goal: str, hint_text: str = "") -> str:
        parts = [instruction] if self.show_instruction else []
        parts += [hint_text] if hint_text else []
        parts += [f"Goal: {goal}"] if self.show_goal and goal else []
        if self.thoughts:
            parts.append("Think between <think> and </think>, then act between <action> and </action>.")
        return " ".join(parts)

    def write_observation(self, seen: Observation) -> str:
        if self.show_admissible == "no" or not seen.admissible:
            return seen.text
        listed = seen.admissible
        if self.show_admissible == "numbered":
            listed = tuple(f"{number} {action}" for number, action in enumerate(listed, start=1))
        return f"{seen.text} Possible: {', '.join(listed)}."

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        raise NotImplementedError("a dialogue is put together from its turns")


TemplateSlot = Annotated[Template, Slot("template")]
"""A run-file field for a template; a table without a kind is a `prompt_template`."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A past step as token ids."""

    observation_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    """The exact sampled ids, or the action as ids."""
    in_words: PastStep


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The beginning of every prompt of a rollout."""

    ids: tuple[int, ...] = ()
    text: str = ""
    """What the template wrote, with a line break at its end."""
    goal: str = ""


NO_OPENING = Opening()


class Prompt(NamedTuple):
    """A prompt as token ids."""

    ids: tuple[int, ...]
    num_shown: int
    """How many past steps it shows."""
    cut: int
    """How many ids the limit on prompts removed."""


OverLimit = Literal["refuse", "cut_left", "drop_oldest"]
"""What happens to a prompt that is too long."""


class Prompter:
    """Makes the prompts of one run.

    `instruct` gives the instruction of a task's environment, if several are mixed. Prompts longer than `max_tokens` are
    shortened as `over_limit` says; with `refuse` they are not.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        template: Template,
        history: History,
        instruction: str,
        system: str = "",
        instruct: Callable[[Task], str] | None = None,
        max_tokens: int | None = None,
        over_limit: OverLimit = "refuse",
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.history = history
        self.instruction = instruction
        self.system = system
        self.max_tokens = max_tokens
        self.over_limit = over_limit
        self._instruct = instruct
        self.encode = lru_cache(KEPT_TEXTS)(partial(_encode, tokenizer))
        """Ids of a text, without special tokens."""
        self._encode_seen = lru_cache(KEPT_TEXTS)(lambda seen: self.encode(template.write_observation(seen)))
        self._encode_prompt = lru_cache(KEPT_PROMPTS)(partial(_encode, tokenizer))
        self._first_shown: dict[int, int] = {}
        self.frame = DialogueFrame.from_tokenizer(tokenizer, system=system)
        self._tells_past = isinstance(template, PromptTemplate) and template.tell_past
        if not (template.is_one_message or self._tells_past):
            self.frame.check_past_responses(history)

    def copy(self) -> Prompter:
        """A prompter for another thread, because a tokenizer is not thread-safe."""
        return Prompter(
            copy.deepcopy(self.tokenizer),
            template=self.template,
            history=self.history,
            instruction=self.instruction,
            system=self.system,
            instruct=self._instruct,
            max_tokens=self.max_tokens,
            over_limit=self.over_limit,
        )

    def for_task(self, task: Task) -> Prompter:
        """This prompter, with the instruction of the task's environment."""
        if self._instruct is None:
            return self
        twin = copy.copy(self)  # shares the tokenizer and the cache of encoded texts
        twin.instruction = self._instruct(task)
        return twin

    def encode_opening(self, goal: str, hint_text: str = "") -> Opening:
        """Encode the beginning of a rollout's prompts, with the hint if there is one; a line break ends it."""
        opening = self.template.write_opening(self.instruction, goal, hint_text)
        text = f"{opening}\n" if opening else ""
        return Opening(ids=(*self.frame.opening, *self.encode(text)), text=text, goal=goal)

    def encode_observation(self, seen: Observation) -> tuple[int, ...]:
        """Encode an observation as a turn; empty if prompts are single messages."""
        return () if self.template.is_one_message else self._encode_seen(seen)

    def make_exchange(self, seen: Observation, response: Sequence[int], action: str) -> Exchange:
        """A past step as later prompts show it, from observation, response and action."""
        return self.make_exchanges([(seen, response, action)])[0]

    def make_exchanges(self, steps: Iterable[tuple[Observation, Sequence[int], str]]) -> list[Exchange]:
        """Past steps as later prompts show them, from observations, responses and actions."""
        frame, is_one_message, exchanges = self.frame, self.template.is_one_message, []
        for seen, response, action in steps:
            if self._tells_past:
                shown, response = self.encode(seen.text), (*self.encode(action), frame.end_id)
            else:
                shown = () if is_one_message else self._encode_seen(seen)
                if frame.thought and not is_one_message:
                    _, closing, answer = self.text(response).rpartition(frame.thought.replace("<", "</", 1))
                    # All of a response that was cut off within its thought is thought.
                    response = (*self.encode(answer.strip() if closing else ""), frame.end_id)
            in_words = (seen.text, action)
            exchanges.append(Exchange(observation_ids=shown, response_ids=tuple(response), in_words=in_words))
        return exchanges

    def prompt(self, opening: Opening, past: Sequence[Exchange], seen: Observation) -> tuple[int, ...]:
        """Make the prompt for the next response."""
        return self.make_prompts([(opening, past, seen)])[0].ids

    def make_prompts(self, asked: Iterable[tuple[Opening, Sequence[Exchange], Observation]]) -> list[Prompt]:
        """Make prompts, each from its opening, the past steps and the current observation."""
        limit, prompts = self.max_tokens, []
        for opening, past, seen in asked:
            num_past = len(past)
            if num_past not in self._first_shown:
                self._first_shown[num_past] = self.history.first_shown(num_past)
            shown = past[self._first_shown[num_past] :]
            ids = self._join(opening, shown, seen, num_past)
            num_whole = len(ids)
            if limit is not None and num_whole > limit and self.over_limit != "refuse":
                while self.over_limit == "drop_oldest" and shown and len(ids) > limit:
                    shown = shown[1:]
                    ids = self._join(opening, shown, seen, num_past)
                ids = ids[-limit:]
            prompts.append(Prompt(ids, len(shown), num_whole - len(ids)))
        return prompts

    def _join(self, opening: Opening, shown: Sequence[Exchange], seen: Observation, num_past: int) -> tuple[int, ...]:
        """The ids of a prompt that shows these past steps."""
        template, frame = self.template, self.frame
        if template.is_one_message:
            in_words = [exchange.in_words for exchange in shown]
            if isinstance(template, TemplateFile):
                message = template.write_step(in_words, replace(seen, goal=opening.goal), num_past=num_past)
                return frame.start + self._encode_prompt(self.render_message(f"{opening.text}{message}", self.system))
            message = template.write_step(in_words, seen, num_past=num_past)
            return (*opening.ids, *self.encode(message), *frame.before_response)
        ids = list(opening.ids)
        for exchange in shown:
            ids += exchange.observation_ids + frame.before_past_response + exchange.response_ids
            if not exchange.response_ids or exchange.response_ids[-1] != frame.end_id:
                ids.append(frame.end_id)  # also after a response that was cut off
            ids += frame.between
        return (*ids, *self._encode_seen(seen), *frame.before_response)

    def render_message(self, message: str, system: str) -> str:
        """A prompt of one message as the chat template writes it; as plain text if there is none."""
        if not self.tokenizer.chat_template:
            return f"{_write_plain_system(system)}{message}{_PLAIN_ANSWER}"
        return _render(self.tokenizer, system, [("user", message)])

    def text(self, response_ids: Sequence[int]) -> str:
        """The text of a response, without its end token."""
        return self.read_texts([response_ids])[0]

    def read_texts(self, responses: Iterable[Sequence[int]]) -> list[str]:
        """The texts of responses, without their end tokens."""
        end_id, decode, texts = self.frame.end_id, self.tokenizer.decode, []
        for response in responses:
            ids = list(response)
            if ids and ids[-1] == end_id:
                ids.pop()  # nearly always its only place
            if end_id in ids:
                ids = [token for token in ids if token != end_id]
            texts.append(str(decode(ids, skip_special_tokens=False)).strip())
        return texts

    def pieces(self, response_ids: Sequence[int]) -> list[str]:
        """The text of each token, with white space; empty for the end token."""
        return [
            "" if token == self.frame.end_id else str(self.tokenizer.decode([token], skip_special_tokens=False))
            for token in response_ids
        ]


# The history in the prompt: how many past steps of a rollout its next prompt shows.


class History(Protocol):
    """Chooses the past steps that a prompt shows."""

    def first_shown(self, num_past: int) -> int:
        """Index of the first of `num_past` past steps that is shown; all later ones are shown too."""


class Window(Part, slot="history"):
    """Show the last few steps. Prompts of a rollout share little more than their opening."""

    steps: Annotated[int, Field(ge=0)] = 2
    """How many past steps are shown."""

    def first_shown(self, num_past: int) -> int:
        return max(num_past - self.steps, 0)


class Full(Part, slot="history"):
    """Show all past steps. Each prompt continues the previous one, so prefixes are shared as much as possible."""

    def first_shown(self, num_past: int) -> int:
        return 0


class AnchoredWindow(Part, slot="history"):
    """Show between `low` and `high` past steps: the window grows to `high`, then is cut to `low`.

    Between two cuts each prompt continues the previous one. So prefixes are shared, and prompts stay bounded.
    """

    low: Annotated[int, Field(ge=0)] = 2
    """How many past steps are shown right after a cut."""
    high: Annotated[int, Field(ge=1)] = 6
    """How many past steps are shown at most."""

    @model_validator(mode="after")
    def _grows(self) -> AnchoredWindow:
        if self.high <= self.low:
            raise ValueError(f"high is {self.high} but must exceed low, {self.low}; the window has to grow")
        return self

    def first_shown(self, num_past: int) -> int:
        """Whole strides are left out, so the beginning moves rarely."""
        if num_past <= self.high:
            return 0
        stride = self.high - self.low
        return -(-(num_past - self.high) // stride) * stride


HistorySlot = Annotated[History, Slot("history")]


class PublishedTemplate(Part, slot="template"):
    """The prompt that GiGPO and HGPO put ALFWorld and WebShop in (Feng et al. 2025, arXiv:2505.10978, appendix).

    Every prompt is a single message: the task, the number of steps taken, the last steps as pairs of observation and
    action, the current observation, the admissible actions, and the request to think and act between tags. It needs
    the action parser `tagged`. The number of pairs is set by the history in the prompt: `window` with 2 in the papers.

    Choices: order and content are the paper's; the wording is ours. The first prompt states the task as later ones do,
    so all prompts of a rollout begin alike.
    """

    is_one_message: ClassVar[bool] = True
    """Past steps are part of the message, not turns of a dialogue."""
    asks_for_tags: ClassVar[bool] = True
    """The action is between tags."""
    world: str = "a text home"
    """The words for the environment in the prompt."""
    thoughts: bool = True
    """Whether prompts ask for thoughts first, between think tags."""

    def words(self) -> tuple[str, ...]:
        from groupwise.envs.environment import Observation

        empty = self.write_step([("", "")], Observation(text="", admissible=("",)), num_past=1)
        numbers = [str(number) for number in range(1, MAX_NUMBERED_STEPS + 1)]
        return vocabulary_of([self.write_opening("", ""), empty, *numbers])

    def write_opening(self, instruction: str, goal: str, hint_text: str = "") -> str:
        head = f"You act in {self.world}."
        head = f"{head} Your task: {goal}" if goal else head
        return f"{head}\n{hint_text}" if hint_text else head

    def write_observation(self, seen: Observation) -> str:
        return seen.text

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        lines = []
        if past:
            first = num_past - len(past) + 1
            lines.append(f"Steps taken: {num_past}. The last {len(past)}:")
            lines += [f"{n}. Seen: {shown} Done: {sent}" for n, (shown, sent) in enumerate(past, first)]
        lines.append(f"Now, at step {num_past + 1}, you see: {seen.text}")
        if seen.admissible:
            lines.append(f"Possible actions: {', '.join(seen.admissible)}.")
        think = "Think first, between <think> and </think>. Then choose" if self.thoughts else "Choose"
        return "\n".join([*lines, f"{think} one action, and write it between <action> and </action>."])


# A template from a file.

PLACEHOLDERS = ("task", "observation", "admissible", "step", "steps_taken", "num_shown", "history")
"""Placeholders of a prompt's text."""
_OF_FIELD = {"history_line": ("n", "seen", "done"), "admissible_item": ("action",)}
"""Placeholders of the other texts, by field."""


def _read_text(value: object) -> object:
    """The text of a prompt: the value itself, or the content of the file that it names."""
    if not isinstance(value, str):
        return value
    if "$" in value or "\n" in value:
        return _check_placeholders(value, PLACEHOLDERS)
    typed = repr(quote_line(value))
    if not may_run():
        raise ConfigError(f"{typed} is a file, {WITHOUT_TRUST}")
    try:
        text = read_text_file(Path(make_absolute(value)))
    except (OSError, ValueError) as error:
        reason = error.strerror or "" if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{typed} cannot be read ({quote_line(reason)}); give the path of a text file, relative to the run file, "
            "or the text itself with placeholders such as $observation"
        ) from None
    # Editors end a file with a line break.
    return _check_placeholders(text.replace("\r\n", "\n").removesuffix("\n"), PLACEHOLDERS, f"{typed}: ")


def _check_placeholders(text: str, known: Sequence[str], where: str = "") -> str:
    template = string.Template(text)
    if not template.is_valid():
        raise ConfigError(f"{where}a dollar sign begins no placeholder; write `$$` for a dollar")
    found = template.get_identifiers()
    for name in found:
        if name not in known:
            raise ConfigError(f"{where}the placeholder `${name}` is unknown; {nearest(name, known)}")
    if not found:
        raise ConfigError(
            f"{where}the text has no placeholder; put in one of {', '.join(f'${name}' for name in known)}"
        )
    return text


FileText = Annotated[str, BeforeValidator(_read_text)]
"""A field with a prompt's text, or with the path of its file."""


class TemplateFile(Part, slot="template"):
    """Your own text with placeholders, so that a published prompt can be used to the letter.

    Every prompt is one message, and it is encoded whole: its ids are those of the chat template for this message. The
    placeholders are `$task`, `$observation`, `$admissible` (the possible actions), `$step`, `$steps_taken`,
    `$num_shown` (past steps shown) and `$history`. A dollar sign is written `$$`. A hint comes before the text, on
    lines of its own.
    """

    is_one_message: ClassVar[bool] = True
    """Past steps are part of the message, not turns of a dialogue."""
    first: FileText
    """The text of a rollout's first prompt: the path of a file, or the text itself. The run keeps the text. A file's
    last line break does not count."""
    later: FileText | None = None
    """The text of later prompts, in the same way; None = that of the first prompt."""
    history_line: str = "[Observation $n: '$seen', Action $n: '$done']"
    """One past step in `$history`. `$n` counts the steps of the rollout from 1."""
    history_join: str = "\n"
    """The text between past steps."""
    admissible_item: str = "'$action'"
    """One possible action in `$admissible`."""
    admissible_join: str = "\n "
    """The text between possible actions."""
    asks_for_tags: bool = True
    """Whether the text asks for an action between action tags, which the action parser `tagged` reads."""

    @field_validator(*_OF_FIELD)
    @classmethod
    def _check_text(cls, value: str, info: ValidationInfo) -> str:
        return _check_placeholders(value, _OF_FIELD[info.field_name or ""])

    def uses(self, placeholder: str) -> bool:
        return any(placeholder in string.Template(text).get_identifiers() for text in (self.first, self.later or ""))

    @property
    def show_admissible(self) -> Literal["no", "yes"]:
        """Whether prompts list the possible actions."""
        return "yes" if self.uses("admissible") else "no"

    def words(self) -> tuple[str, ...]:
        nothing = dict.fromkeys(chain(PLACEHOLDERS, *_OF_FIELD.values()), "")
        texts = (self.first, self.later or "", self.history_line, self.admissible_item)
        numbers = [str(number) for number in range(1, MAX_NUMBERED_STEPS + 1)]
        said = [string.Template(text).substitute(nothing) for text in texts]
        return vocabulary_of([*said, self.history_join, self.admissible_join, *numbers])

    def write_opening(self, instruction: str, goal: str, hint_text: str = "") -> str:
        return hint_text

    def write_observation(self, seen: Observation) -> str:
        return seen.text

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        line, item = string.Template(self.history_line), string.Template(self.admissible_item)
        numbered = enumerate(past, num_past - len(past) + 1)
        return string.Template((num_past and self.later) or self.first).substitute(
            task=seen.goal,
            observation=seen.text,
            admissible=self.admissible_join.join(item.substitute(action=action) for action in seen.admissible or ()),
            step=num_past + 1,
            steps_taken=num_past,
            num_shown=len(past),
            history=self.history_join.join(
                line.substitute(n=n, seen=shown, done=done) for n, (shown, done) in numbered
            ),
        )


# The frame of a dialogue: the token ids before the first observation, and between the turns.
#
# Prompts are put together from token ids: each observation is encoded once, each response is the sampled ids. Sampled
# tokens are never decoded and encoded again, so the learner sees exactly what the engine saw.

_FIRST, _ANSWER, _SECOND = "\u2402first\u2403", "\u2402answer\u2403", "\u2402second\u2403"
_PLAIN_ANSWER = ">"
"""Before a response, without a chat template."""
_OPENED_TAG = re.compile(r"\s*(<[\w:-]+>)\s*")


@dataclass(frozen=True, kw_only=True)
class DialogueFrame:
    """The token ids around the turns of a dialogue.

    Worked example (ChatML): opening `<|im_start|>user\\n`, before_response `<|im_end|>\\n<|im_start|>assistant\\n`,
    between `\\n<|im_start|>user\\n`; the response itself ends with the sampled `<|im_end|>`.
    """

    opening: tuple[int, ...]
    """Before the first observation."""
    before_response: tuple[int, ...]
    """Between an observation and the response to it."""
    before_past_response: tuple[int, ...]
    """The same before a past response, which some chat templates open differently."""
    between: tuple[int, ...]
    """Between a response, with its end token, and the next observation."""
    end_id: int
    """The token that ends a response."""
    opening_text: str = ""
    """The text of `opening`, without a start token that has no text."""
    start: tuple[int, ...] = ()
    """The start token of plain text, if the tokenizer has one; a chat template writes its own."""
    thought: str = ""
    """The tag that opens a thought before a new response but not before a past one, such as `<think>`. Then a past
    response is shown without its thought."""

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, *, system: str = "") -> DialogueFrame:
        """Read the frame from a tokenizer's chat template; plain text if it has none.

        The system prompt is a system message of the template, or a first line of plain text. Empty = only what the
        template adds itself.
        """
        if not tokenizer.chat_template:
            start = () if tokenizer.bos_token_id is None else (tokenizer.bos_token_id,)
            opening_text, answer = _write_plain_system(system), _encode(tokenizer, _PLAIN_ANSWER)
            return cls(
                opening=(*start, *_encode(tokenizer, opening_text)),
                opening_text=opening_text,
                before_response=answer,
                before_past_response=answer,
                between=(),
                end_id=_find_end_of_sequence(tokenizer),
                start=start,
            )
        opening, before_response, before_past, between = _read_chat_template(tokenizer, system)
        # A template may end turns with a special token that is not the tokenizer's end of sequence (Gemma, Phi). Then
        # the model ends a response with that token.
        ids = _encode(tokenizer, between)
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        ends_turn = bool(ids) and ids[0] in special.union(tokenizer.all_special_ids)
        continued = before_response.startswith(before_past)
        opened = _OPENED_TAG.fullmatch(before_response[len(before_past) :]) if continued else None
        return cls(
            opening=_encode(tokenizer, opening),
            opening_text=opening,
            before_response=_encode(tokenizer, before_response),
            before_past_response=_encode(tokenizer, before_past),
            between=ids[1:] if ends_turn else ids,
            end_id=ids[0] if ends_turn else _find_end_of_sequence(tokenizer),
            thought=opened[1] if opened else "",
        )

    def check_past_responses(self, history: History) -> None:
        """Check that past responses can be shown as they were sampled, or without their thoughts."""
        if self.before_past_response == self.before_response:
            return
        if not self.thought and history.first_shown(1) == 0:
            raise ConfigError(
                "the chat template opens a past answer differently from a new one, so prompts cannot show past "
                'responses as sampled. Set rollout.history = { kind = "window", steps = 0 }, or use a rollout.template '
                "of one message"
            )
        if isinstance(history, Full | AnchoredWindow):
            raise ConfigError(
                f"rollout.history: with {kind_of(type(history))!r} each prompt continues the one before. The chat "
                f"template opens a new answer with {self.thought} and drops the thoughts of past ones, so no prefix "
                'would be shared. Set rollout.history.kind = "window", or use a rollout.template of one message'
            )


def _read_chat_template(tokenizer: Any, system: str) -> tuple[str, str, str, str]:
    """Write a dialogue of two observations with the template, and read the text around them."""
    text = _render(tokenizer, system, [("user", _FIRST), ("assistant", _ANSWER), ("user", _SECOND)])
    opening, first, rest = text.partition(_FIRST)
    before_past, answer, rest = rest.partition(_ANSWER)
    between, second, before_response = rest.partition(_SECOND)
    if not (first and answer and second):
        raise ConfigError("the chat template changes or drops what is said in it; use a template that keeps its turns")
    if system.strip() not in opening:
        raise ConfigError("the chat template drops or changes the system message; leave out rollout.system")
    return opening, before_response, before_past, between


def _render(tokenizer: Any, system: str, turns: Sequence[tuple[str, str]]) -> str:
    """Turns of a dialogue as the chat template writes them, with the beginning of a new response."""
    from jinja2 import TemplateError  # the template engine of transformers

    spoken = [("system", system), *turns] if system else turns
    messages = [{"role": role, "content": content} for role, content in spoken]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except TemplateError as error:
        asked = "a system message" if system else "a dialogue"
        remedy = "leave out rollout.system" if system else "use another template"
        raise ConfigError(f"the chat template refuses {asked} ({quote_line(str(error))}); {remedy}") from None


def _write_plain_system(system: str) -> str:
    return f"{system}\n" if system else ""


def _find_end_of_sequence(tokenizer: Any) -> int:
    end_id = tokenizer.eos_token_id
    if not isinstance(end_id, int):
        raise ConfigError("the tokenizer has no end token; set `eos_token`, which ends every response")
    return end_id


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)
