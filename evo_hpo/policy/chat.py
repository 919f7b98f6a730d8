"""The token pieces of a conversation, cut once from the tokenizer's chat template and never rendered again.

    head  first observation  tail  <sampled: action, stop>  glue  next observation  tail  <sampled> ...

What a template puts after the stop token (a newline, say) begins `glue` and is fed as an observation. Observations are
encoded without special tokens, so that text which looks like a chat marker stays text.
"""

from __future__ import annotations

from typing import Any

from jinja2 import TemplateSyntaxError

REMEMBERED = 50_000  # texts whose ids are kept
OBSERVATION, ACTION, NEXT, SYSTEM = "OBSERVATIONONE", "ACTIONONE", "OBSERVATIONTWO", "SYSTEMTEXT"


class ChatFormat:
    """Token ids of the template's pieces, and the encoding of observations and actions."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                "the model's tokenizer has no chat template, so turns cannot be told apart; "
                "use an instruction-tuned model, or give one with model.chat_template"
            )
        self.tokenizer = tokenizer
        self._encoded: dict[str, tuple[int, ...]] = {}  # a tokenizer call costs more than a step of most environments
        first = self._render([("user", OBSERVATION)], generate=True)
        head, tail = self._cut(first, OBSERVATION)
        history = [("user", OBSERVATION), ("assistant", ACTION), ("user", NEXT)]
        both = self._render(history, generate=True)
        _, after_action = self._cut(both, ACTION)
        between, tail_again = self._cut(after_action, NEXT)
        if tail_again != tail:
            raise ValueError(
                "the chat template ends a second user turn otherwise than a first one; "
                "give another one with model.chat_template"
            )
        self._head_text = head
        self.tail = self._encode_markers(tail)
        between_ids = self._encode_markers(between)
        self.stop_id = self._stop_of(between_ids)
        self.glue = between_ids[between_ids.index(self.stop_id) + 1 :]
        try:
            rendered = self._render([("system", SYSTEM), ("user", OBSERVATION)], generate=True)
            self._system: tuple[str, str] | None = self._cut(self._cut(rendered, OBSERVATION)[0], SYSTEM)
        except (
            Exception
        ):  # some templates raise on a system message (Gemma); the instructions then lead the observation
            self._system = None

    def first(self, observation: str, instructions: str = "") -> list[int]:
        """Ids fed before the first action."""
        if instructions and self._system is None:
            return self.first(f"{instructions}\n\n{observation}")
        if instructions and self._system is not None:
            before, after = self._system
            head = self._encode_markers(before) + self.encode(instructions) + self._encode_markers(after)
        else:
            head = self._encode_markers(self._head_text)
        return head + self.encode(observation) + self.tail

    def following(self, observation: str) -> list[int]:
        """Ids fed between the stop token of an action and the next action."""
        return self.glue + self.encode(observation) + self.tail

    def action(self, text: str) -> list[int]:
        """Ids that a demonstrated action is made of, the stop token included."""
        return [*self.encode(text), self.stop_id]

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; nothing in it becomes a special token."""
        ids = self._encoded.get(text)
        if ids is None:
            if len(self._encoded) >= REMEMBERED:
                self._encoded.clear()
            ids = tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
            self._encoded[text] = ids
        return list(ids)

    def decode(self, action_ids: list[int]) -> str:
        """Text of an action without its stop token and other special tokens."""
        ids = action_ids[:-1] if action_ids and action_ids[-1] == self.stop_id else action_ids
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _render(self, messages: list[tuple[str, str]], generate: bool) -> str:
        chat = [{"role": role, "content": text} for role, text in messages]
        try:
            return str(self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=generate))
        except TemplateSyntaxError as error:
            raise ValueError(
                f"the chat template cannot be read ({error}); give another one with model.chat_template"
            ) from error

    @staticmethod
    def _cut(text: str, mark: str) -> tuple[str, str]:
        before, found, after = text.partition(mark)
        if not found:
            raise ValueError(
                f"the chat template changes or drops message texts (looked for {mark!r}); "
                "give another one with model.chat_template"
            )
        return before, after

    def _encode_markers(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _stop_of(self, between: list[int]) -> int:
        specials = set(self.tokenizer.all_special_ids) | set(self.tokenizer.get_added_vocab().values())
        for token in between:
            if token in specials:
                return int(token)
        raise ValueError(
            "the chat template has no end-of-turn token after an assistant message, so a sampled action would have no "
            "end; give a template with model.chat_template"
        )


def encodable(text: str) -> str:
    """`text` with lone surrogates (a broken file name, say) replaced: no tokenizer and no file takes them."""
    return text.encode("utf-8", "replace").decode("utf-8")
