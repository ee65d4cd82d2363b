"""From names and variables to models, and what is said when that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.llm import BadModel, MissingKey, UnknownModel, make_model
from harness.llm.making import from_provider, ollama_url
from harness.llm.providers import PROVIDERS, Protocol

KEYS = {row.key_variable: "k" for row in PROVIDERS.values() if row.key_variable}


def test_the_providers_of_the_contract_are_all_there() -> None:
    chat = {"openai-chat", "mistral", "openrouter", "fireworks", "greenpt", "ollama", "vllm"}
    assert {name for name, row in PROVIDERS.items() if row.protocol is Protocol.CHAT} == chat
    assert set(PROVIDERS) - chat == {"openai", "anthropic"}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_row_makes_a_model(provider: str) -> None:
    model = from_provider(f"{provider}:some/model:7b", environ={**KEYS, "VLLM_BASE_URL": "http://h:8000/v1"})
    assert (model.name, model.model) == (f"{provider}:some/model:7b", "some/model:7b")
    assert model.url.startswith(("https://", "http://"))
    assert model.url.endswith(model.path)


@pytest.mark.parametrize(
    ("provider", "url"),
    [
        ("openai", "https://api.openai.com/v1/responses"),
        ("openai-chat", "https://api.openai.com/v1/chat/completions"),
        ("anthropic", "https://api.anthropic.com/v1/messages"),
        ("greenpt", "https://api.greenpt.ai/v1/chat/completions"),
        ("ollama", "http://127.0.0.1:11434/v1/chat/completions"),
    ],
)
def test_where_requests_go(provider: str, url: str) -> None:
    assert from_provider(f"{provider}:m", environ=KEYS).url == url


@pytest.mark.parametrize(
    ("name", "environ", "kind", "match"),
    [
        ("", {}, UnknownModel, "no model ''"),
        ("gpt", {}, UnknownModel, "no model 'gpt'.*openai, "),
        ("openai", {}, UnknownModel, "no model 'openai'"),
        ("openai:", KEYS, UnknownModel, "no model 'openai:'"),
        ("openai: ", KEYS, UnknownModel, "no model"),
        ("acme:m", {}, UnknownModel, "no provider 'acme'"),
        ("OpenAI:m", KEYS, UnknownModel, "no provider 'OpenAI'"),
        ("scripted:", {}, UnknownModel, "no provider 'scripted'"),
        ("openai:m", {}, MissingKey, "OPENAI_API_KEY"),
        ("openai:m", {"OPENAI_API_KEY": "  "}, MissingKey, "OPENAI_API_KEY"),
        ("anthropic:m", {}, MissingKey, "ANTHROPIC_API_KEY"),
        ("mistral:m", {}, MissingKey, "MISTRAL_API_KEY"),
        ("openrouter:m", {}, MissingKey, "OPENROUTER_API_KEY"),
        ("fireworks:m", {}, MissingKey, "FIREWORKS_API_KEY"),
        ("greenpt:m", {}, MissingKey, "GREENPT_API_KEY"),
        ("vllm:m", {}, BadModel, "no address. Set VLLM_BASE_URL"),
        ("vllm:m", {"VLLM_BASE_URL": "localhost:8000"}, BadModel, "not an http"),
        ("vllm:m", {"VLLM_BASE_URL": "http://"}, BadModel, "not an http"),
        ("vllm:m", {"VLLM_BASE_URL": "http://h:x/"}, BadModel, "not an http"),
        ("openai:m", {"OPENAI_API_KEY": "sk-sécret"}, BadModel, "OPENAI_API_KEY has characters"),
        ("openai:m", {"OPENAI_API_KEY": "sk-se cret"}, BadModel, "OPENAI_API_KEY has characters"),
    ],
)
def test_what_is_wrong_is_said_at_once_in_one_line(
    name: str, environ: dict[str, str], kind: type[BadModel], match: str
) -> None:
    with pytest.raises(kind, match=match) as caught:
        from_provider(name, environ=environ)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    assert "cret" not in str(caught.value)


def test_a_server_of_ones_own_needs_no_key() -> None:
    assert from_provider("openai-chat:m", base_url="http://h/v1/", environ={}).url == "http://h/v1/chat/completions"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:11434", "http://127.0.0.1:11434/v1"),
        ("box:8080", "http://box:8080/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("http://box", "http://box:11434/v1"),
        ("https://box.example", "https://box.example/v1"),
        ("https://box.example:1/ollama/", "https://box.example:1/ollama/v1"),
        ("http://box:1/v1", "http://box:1/v1"),
        ("[::1]:11434", "http://[::1]:11434/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
    ],
)
def test_ollamas_variable_in_every_form(host: str, url: str) -> None:
    assert ollama_url(host) == url
    assert from_provider("ollama:m", environ={"OLLAMA_HOST": host}).url == url + "/chat/completions"


@pytest.mark.parametrize("idle_s", [-1.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_time_is_refused(idle_s: float) -> None:
    with pytest.raises(ValueError, match="idle_s"):
        from_provider("openai:m", environ=KEYS, idle_s=idle_s)


def test_the_two_models_without_a_network(tmp_path: Path) -> None:
    assert make_model("runbook").name == "runbook"
    path = tmp_path / "a:b.json"
    path.write_text('{"replies": []}')
    assert make_model(f"scripted:{path}").name == f"scripted:{path}"


def test_make_model_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(MissingKey):
        make_model("openai:m")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert make_model("openai:m").name == "openai:m"


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import harness.llm", "httpx markdown_it harness.llm.http"),
        ("import harness.llm; harness.llm.make_model('runbook')", "httpx harness.llm.http"),
        ("import harness.llm.chat_response, harness.llm.messages_wire, harness.llm.stream", "httpx trio"),
    ],
)
def test_what_is_not_needed_is_not_imported(code: str, absent: str) -> None:
    check = f"{code}\nimport sys; print(*(name for name in {absent.split()!r} if name in sys.modules))"
    done: Any = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
