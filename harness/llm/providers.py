"""The providers, as data, and what can be wrong with a model's name.  Pure.

Belongs here: one row for each provider: where it is, which variable has its key, what it speaks, how it is special.
Must not know: HTTP, requests, how a row is used. Adding a compatible provider is adding a row.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class BadModel(ValueError):
    """A model cannot be made from its name. Base of the errors that `make_model` raises, before any network."""


class UnknownModel(BadModel):
    """The name is not of the form provider:model, or the provider is not known."""


class MissingKey(BadModel):
    """The variable that holds the provider's key is not set."""

    def __init__(self, provider: str, variable: str) -> None:
        self.provider, self.variable = provider, variable
        super().__init__(f"the provider {provider!r} needs a key. Set the variable {variable}.")


class Protocol(enum.Enum):
    """What a provider speaks."""

    CHAT = "Chat Completions"
    RESPONSES = "Responses"
    MESSAGES = "Messages"


class Provider(msgspec.Struct, frozen=True):
    """One row. The rest after `base_variable` is about how its Chat Completions differ from OpenAI's.

    key_variable: empty when there is no key. key_required: whether it has to be set. base_url: empty when the user has
    to say it. base_variable: overrides base_url. idle_s: the idle limit where the default is too short.
    max_tokens_field: how the bound on the output is called. stream_usage: whether `stream_options` may be sent.
    tool_choice: whether `tool_choice` is obeyed; where not, forbidding calls means not declaring tools.
    effort_field: `reasoning_effort`, `reasoning` (an object), or nothing. cache_key: whether `prompt_cache_key` may be
    sent. reasoning_back: fields of an assistant message that are to be sent back as they came.
    user_after_tool: whether a user's message may follow a tool's directly.
    """

    name: str
    protocol: Protocol
    base_url: str
    key_variable: str = ""
    key_required: bool = True
    base_variable: str = ""
    idle_s: float | None = None
    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    tool_choice: bool = True
    effort_field: str = "reasoning_effort"
    cache_key: bool = False
    reasoning_back: tuple[str, ...] = ()
    user_after_tool: bool = True


_ROWS: Final = (
    Provider(
        "openai", Protocol.RESPONSES, "https://api.openai.com/v1", "OPENAI_API_KEY", base_variable="OPENAI_BASE_URL"
    ),
    Provider(
        "openai-chat",
        Protocol.CHAT,
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        base_variable="OPENAI_BASE_URL",
        max_tokens_field="max_completion_tokens",
        cache_key=True,
    ),
    Provider(
        "mistral",
        Protocol.CHAT,
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        stream_usage=False,  # refused as an extra field; the last chunk has the usage unasked
        reasoning_back=("content",),
        user_after_tool=False,
    ),
    Provider(
        "openrouter",
        Protocol.CHAT,
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        effort_field="reasoning",
        reasoning_back=("reasoning_details",),
    ),
    Provider(
        "fireworks",
        Protocol.CHAT,
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        reasoning_back=("reasoning_content",),
    ),
    Provider("greenpt", Protocol.CHAT, "https://api.greenpt.ai/v1", "GREENPT_API_KEY"),
    Provider(
        "ollama",
        Protocol.CHAT,
        "http://127.0.0.1:11434/v1",
        base_variable="OLLAMA_HOST",
        idle_s=600.0,  # it sends nothing while it loads a model from disk
        tool_choice=False,
    ),
    Provider(
        "vllm",
        Protocol.CHAT,
        "",
        "VLLM_API_KEY",
        key_required=False,
        base_variable="VLLM_BASE_URL",
        reasoning_back=("reasoning_content", "reasoning"),
    ),
    Provider(
        "anthropic",
        Protocol.MESSAGES,
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        base_variable="ANTHROPIC_BASE_URL",
    ),
)

PROVIDERS: Final = {row.name: row for row in _ROWS}
"""Every provider by the name that goes before the colon."""
