"""From a name and the environment to a model behind HTTP.

Belongs here: which variables are read, and what is wrong with a name, before anything is sent.
Must not know: protocols beyond which class speaks which.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from harness.llm.client import HttpModel
from harness.llm.providers import PROVIDERS, BadModel, MissingKey, Protocol, Provider, UnknownModel

MESSAGES_VERSION: Final = "2026-10-21"
"""The version of Anthropic's API that messages_wire.py writes for. From it on no request may set a temperature."""

_KEY: Final = re.compile(r"[\x21-\x7e]+")


def from_provider(
    name: str, *, base_url: str | None = None, environ: Mapping[str, str] = os.environ, **options: Any
) -> HttpModel:
    """The model `provider:model`. options: those of HttpModel (stream, idle_s, retry, ...).

    Raises UnknownModel or MissingKey, or BadModel for a base URL or key that cannot be used.
    """
    provider, colon, model = name.partition(":")
    row = PROVIDERS.get(provider)
    if row is None or not colon or not model.strip():
        names = ", ".join(PROVIDERS)
        wanted = f"provider {provider!r}" if colon and row is None else f"model {name!r}"
        raise UnknownModel(f"there is no {wanted}. Use runbook, scripted:FILE, or provider:model with one of {names}.")
    url = _base_url(row, base_url, environ)
    secret = _key(row, environ, own_server=base_url is not None)
    return _class_of(row)(
        name, row, model.strip(), base_url=url, headers=_headers(row, secret), secret=secret, **options
    )


def _class_of(row: Provider) -> type[HttpModel]:
    # Only the protocol that is used is loaded.
    match row.protocol:
        case Protocol.CHAT:
            from harness.llm.chat import ChatModel

            return ChatModel
        case Protocol.RESPONSES:
            from harness.llm.responses import ResponsesModel

            return ResponsesModel
        case Protocol.MESSAGES:
            from harness.llm.messages import MessagesModel

            return MessagesModel


def _base_url(row: Provider, given: str | None, environ: Mapping[str, str]) -> str:
    variable = environ.get(row.base_variable, "").strip() if row.base_variable else ""
    url = given or variable or row.base_url
    if not url:
        raise BadModel(f"the provider {row.name!r} has no address. Set {row.base_variable}, or give base_url.")
    if row.name == "ollama" and not given and variable:
        url = ollama_url(variable)
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise BadModel(f"the address {url!r} of {row.name!r} is not an http or https URL.")
    return url


def ollama_url(host: str) -> str:
    """Ollama's variable holds a host, host:port or URL, and is also the server's own: 0.0.0.0 means everywhere."""
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    name, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        name, port = place, "11434" if scheme == "http" else ""
    name = "127.0.0.1" if name in ("", "0.0.0.0") else name  # read, not bound
    url = f"{scheme}://{name}" + (f":{port}" if port else "") + slash + path
    return url if url.rstrip("/").endswith("/v1") else url.rstrip("/") + "/v1"


def _key(row: Provider, environ: Mapping[str, str], *, own_server: bool) -> str:
    secret = environ.get(row.key_variable, "").strip() if row.key_variable else ""
    if row.key_variable and not secret and row.key_required and not own_server:
        raise MissingKey(row.name, row.key_variable)
    if secret and not _KEY.fullmatch(secret):
        raise BadModel(f"the variable {row.key_variable} has characters that no key has. Set it again.")
    return secret


def _headers(row: Provider, secret: str) -> dict[str, str]:
    if row.protocol is Protocol.MESSAGES:
        return {"anthropic-version": MESSAGES_VERSION, **({"x-api-key": secret} if secret else {})}
    return {"authorization": f"Bearer {secret}"} if secret else {}
