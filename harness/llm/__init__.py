"""Models: one contract (`model.py`), and a module for each way to fulfil it.

Belongs here: making a model object from a name.
Must not know: any protocol. Nothing that needs the network is imported before a model that needs it is made.
"""

from __future__ import annotations

from typing import Protocol

from harness.llm.model import Model
from harness.llm.providers import BadModel as BadModel
from harness.llm.providers import MissingKey as MissingKey
from harness.llm.providers import UnknownModel as UnknownModel


class NamedModel(Model, Protocol):
    """What `make_model` returns: a Model with the name it was asked for by, and connections to close."""

    name: str

    async def aclose(self) -> None:
        """Close what the model holds open. It can still be used afterwards, and opens anew."""
        ...


def make_model(name: str, *, base_url: str | None = None) -> NamedModel:
    """The model called `name`: `runbook`, `scripted:FILE`, or `provider:model`.

    base_url: where a compatible server is, instead of the provider's own; then its key may be left unset.
    Raises UnknownModel, MissingKey or another BadModel (all ValueError) with one clear line. Nothing is sent.
    """
    # Imports are inside so that a command that needs no network does not pay for an HTTP client.
    if name == "runbook":
        from harness.llm.runbook import Runbook

        return Runbook()
    provider, _, rest = name.partition(":")
    if provider == "scripted" and rest:
        from harness.llm.scripted import Scripted

        return Scripted.from_file(rest)
    from harness.llm.making import from_provider

    return from_provider(name, base_url=base_url)
