"""The providers, as data, and what can be wrong with a model's name.

Belongs here: one row for each provider: where it is, which variable has its key, what it speaks, how it is special.
Must not know: HTTP, requests, how a row is used. Adding a compatible provider is adding a row.
"""

from __future__ import annotations


class BadModel(ValueError):
    """A model cannot be made from its name. Base of the errors that `make_model` raises, before any network."""


class UnknownModel(BadModel):
    """The name is not of the form provider:model, or the provider is not known."""


class MissingKey(BadModel):
    """The variable that holds the provider's key is not set."""
