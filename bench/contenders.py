"""One run of many turns in one harness, in a process of its own: `python -m bench.contenders NAME URL CALLS FOLDER`.

Prints JSON: import_s and import_mb until everything needed is loaded, at_s (the clock at each call of the tool),
peak_mb. A turn is what passes between two calls of the tool: the result goes into the history, the request is made and
sent, the answer is read, and the call starts. Each is driven as its own documentation does it, with its durable
session or checkpointer on where it has one; pydantic-ai has none.

Belongs here: the contenders.
Must not know: what is done with the figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.loopback import RESULT

STARTED = time.perf_counter()
INSTRUCTIONS = "You call the tool step until you are told that it is enough."
PROMPT = "Begin."

Loaded = Callable[[str, int, Path, Callable[[], str]], None]
"""Work a conversation: base URL, calls, a folder to write in, and what the tool does."""


def bare() -> Loaded:
    """What any of them has to do at least: keep a list of messages, post it, call the tool."""
    import httpx

    parameters = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    tools = [{"type": "function", "function": {"name": "step", "description": "A step.", "parameters": parameters}}]

    def work(url: str, calls: int, folder: Path, step: Callable[[], str]) -> None:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": PROMPT},
        ]
        with httpx.Client(base_url=url) as client:
            while True:
                reply = client.post("/chat/completions", json={"model": "m", "messages": messages, "tools": tools})
                message = reply.json()["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    return
                messages += [
                    {"role": "tool", "tool_call_id": call["id"], "content": step()} for call in message["tool_calls"]
                ]

    return work


def turnlog() -> Loaded:
    """This harness, its log on disk with every append synced."""
    import trio

    import harness

    def work(url: str, calls: int, folder: Path, step: Callable[[], str]) -> None:
        async def run(number: int) -> str:
            """A step."""
            return step()

        async def main() -> None:
            model = harness.make_model("openai-chat:m", base_url=url)
            async with harness.open_session(
                folder / "log.db",
                model=model,
                instructions=INSTRUCTIONS,
                workspace=folder,
                tools=[harness.tool(name="step", description="A step.")(run)],
            ) as session:
                await session.run(PROMPT)
            await model.aclose()

        trio.run(main)

    return work


def openai_agents() -> Loaded:
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)

    def work(url: str, calls: int, folder: Path, step: Callable[[], str]) -> None:
        @agents.function_tool(name_override="step")
        async def run(number: int) -> str:
            """A step."""
            return step()

        async def main() -> None:
            client = AsyncOpenAI(base_url=url, api_key="unused")
            model = agents.OpenAIChatCompletionsModel(model="m", openai_client=client)
            agent = agents.Agent(name="bench", instructions=INSTRUCTIONS, tools=[run], model=model)
            session = agents.SQLiteSession("s", str(folder / "session.db"))
            await agents.Runner.run(agent, PROMPT, session=session, max_turns=calls + 5)

        asyncio.run(main())

    return work


def pydantic_ai() -> Loaded:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    def work(url: str, calls: int, folder: Path, step: Callable[[], str]) -> None:
        provider = OpenAIProvider(base_url=url, api_key="unused")
        agent = Agent(OpenAIChatModel("m", provider=provider), instructions=INSTRUCTIONS)

        @agent.tool_plain(name="step")
        async def run(number: int) -> str:
            """A step."""
            return step()

        asyncio.run(agent.run(PROMPT, usage_limits=UsageLimits(request_limit=None)))

    return work


def langgraph() -> Loaded:
    import warnings

    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    warnings.simplefilter("ignore")
    from langgraph.prebuilt import create_react_agent

    def work(url: str, calls: int, folder: Path, step: Callable[[], str]) -> None:
        @tool("step")
        async def run(number: int) -> str:
            """A step."""
            return step()

        async def main() -> None:
            model = ChatOpenAI(model="m", base_url=url, api_key="unused")
            async with AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
                agent = create_react_agent(model, [run], prompt=INSTRUCTIONS, checkpointer=saver)
                config = {"configurable": {"thread_id": "t"}, "recursion_limit": 2 * calls + 10}
                await agent.ainvoke({"messages": [("user", PROMPT)]}, config)

        asyncio.run(main())

    return work


CONTENDERS: dict[str, Callable[[], Loaded]] = {
    "bare loop": bare,
    "turnlog": turnlog,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "langgraph": langgraph,
}
PEERS = ("openai-agents", "pydantic-ai", "langgraph")


def _mb() -> float:
    """Memory of this process now, in megabytes; the largest so far where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    name, url, calls, folder = sys.argv[1:5]
    work = CONTENDERS[name]()
    import_s, import_mb = time.perf_counter() - STARTED, _mb()
    at_s: list[float] = []

    def step() -> str:
        at_s.append(time.perf_counter())
        return RESULT

    first_s = time.perf_counter()
    if int(calls):
        work(url, int(calls), Path(folder), step)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    figures = {"import_s": import_s, "import_mb": import_mb, "first_s": first_s, "at_s": at_s, "peak_mb": peak_mb}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
