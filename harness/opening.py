"""What `open_session` finds out before anything runs: is every argument usable, and does the log allow it.

Belongs here: checking arguments, creating or resuming, matching tools and models with what the log says.
Must not know: the coordinator, or what a session does once it is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from harness import events as ev
from harness import ids
from harness.errors import BadInput, ToolUnavailable
from harness.history import fold
from harness.journal import Draft, utc_now
from harness.llm import UnknownModel, make_model
from harness.llm.model import Model, ModelSettings
from harness.llm.windows import window_of
from harness.log import timestamp
from harness.skill_files import SkillsRequest, find_skills
from harness.state import SessionState
from harness.tools.bash import Bash
from harness.tools.registry import AbsentTool, Registry, Tool, ToolDefinitionError
from harness.tools.skill import Skill, SkillTool
from harness.tools.view_image import ViewImage
from harness.validation import check_limited_tools, check_limits, check_policy, check_settings, checked, id_of, text_of
from operations import Status
from store import SessionExists, Store, UnknownSession

T = TypeVar("T")

DEFAULT_MODEL = "runbook"

TOOL_MEMBERS = ("name", "functions", "record", "translate", "present")


class Wanted(msgspec.Struct, frozen=True):
    """The arguments of `open_session`, checked. None: not given, so that the log or the default decides."""

    session_id: str | None
    resume: str
    model: Made | None
    tools: tuple[Tool | SkillsRequest, ...] | None
    instructions: str | None
    workspace: str | None
    policy: ev.Policy | None
    limits: ev.Limits | None
    settings: ModelSettings | None
    title: str

    def policy_on(self, current: ev.Policy) -> ev.Policy:
        """The policy that is wanted, where `current` holds otherwise."""
        policy = self.policy or current
        return policy if self.limits is None else msgspec.structs.replace(policy, limits=self.limits)

    @property
    def tools_of_new(self) -> tuple[Tool | SkillsRequest, ...]:
        """The tools that a new session gets."""
        return (Bash(), ViewImage(), SkillsRequest()) if self.tools is None else self.tools

    def check_limited(self, tools: Sequence[Tool | SkillsRequest], of_log: Sequence[str] = ()) -> None:
        """Raises BadInput where the limits that are wanted name no tool. Those of a log are never asked."""
        # Skills that were asked for count, whether there are any or not.
        names = ["skill" if isinstance(tool, SkillsRequest) else tool.name for tool in tools]
        for limits in (self.limits, None if self.policy is None else self.policy.limits):
            if limits is not None:
                check_limited_tools(limits, dict.fromkeys([*of_log, *names]))


def check_arguments(
    *,
    session_id: str | None,
    resume: str,
    model: str | Model | None,
    tools: Sequence[Tool | SkillsRequest] | None,
    instructions: str | None,
    workspace: str | Path | None,
    limits: ev.Limits | None,
    policy: ev.Policy | None,
    settings: ModelSettings | None,
    title: str,
) -> Wanted:
    """The arguments, or BadInput. Touches nothing but the workspace's folder, to see that it is there."""
    if resume not in ("auto", "must", "never"):
        raise BadInput(f"resume has to be auto, must or never, not {resume!r}.")
    if resume == "must" and session_id is None:
        raise BadInput("resume='must' needs the session_id to resume.")
    if session_id is not None and ("/" in id_of("session_id", session_id) or session_id.startswith(".")):
        raise BadInput(f"session_id {session_id!r} is not usable: it may not begin with '.' or hold '/'.")
    wanted = Wanted(
        session_id=session_id,
        resume=resume,
        # Made now, so that a name that is none, or a key that is missing, is found before a file is made.
        model=made_model(model) if model is not None else made_model(DEFAULT_MODEL) if resume == "never" else None,
        tools=None if tools is None else _tools(tools),
        instructions=None if instructions is None else text_of("instructions", instructions),
        workspace=None if workspace is None else _workspace(workspace),
        policy=None if policy is None else checked("policy", policy, ev.Policy, check_policy),
        limits=None if limits is None else checked("limits", limits, ev.Limits, check_limits),
        settings=None if settings is None else checked("settings", settings, ModelSettings, check_settings),
        title=text_of("title", title),
    )
    if session_id is None or resume == "never":
        wanted.check_limited(wanted.tools_of_new)
    return wanted


def _tools(tools: object) -> tuple[Tool | SkillsRequest, ...]:
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise BadInput(f"tools has to be a list of tools, such as [harness.bash()], not {type(tools).__name__}.")
    found = tuple(tools)
    for tool in found:
        if not isinstance(tool, SkillsRequest) and not all(hasattr(tool, name) for name in TOOL_MEMBERS):
            hint = "Decorate the function with @harness.tool." if callable(tool) else "Make it with harness.tool."
            raise BadInput(f"{tool!r} in tools is not a tool. {hint}")
    return found


def _workspace(workspace: str | Path) -> str:
    try:
        path = Path(workspace).expanduser().absolute()
        is_there = path.is_dir()
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"the workspace {workspace!r} is no path: {error}.") from error
    if not is_there:
        raise BadInput(f"the workspace {str(workspace)!r} is not a folder. Make it, or name another.")
    return text_of("the workspace's path", str(path))


class Made(msgspec.Struct, frozen=True):
    """A model to use. name: for the log. made_here: to be closed with the session."""

    object: Model
    name: str
    made_here: bool


class Prepared(msgspec.Struct, frozen=True):
    """A session that may be opened. changes: what the caller wants otherwise than the log has it."""

    model: Made
    registry: Registry
    changes: ev.Settings | None
    warnings: tuple[str, ...]


def made_model(model: str | Model) -> Made:
    """The model of that name, or the object itself. Raises UnknownModel, MissingKey, BadInput."""
    if isinstance(model, str):
        return Made(make_model(model), model, made_here=True)
    if not callable(getattr(model, "respond", None)):
        raise BadInput(f"model has to be a name or an object with an async respond(), not {model!r}.")
    return Made(model, text_of("the model's name", str(getattr(model, "name", type(model).__name__))), made_here=False)


async def create_or_find(store: Store, wanted: Wanted) -> tuple[str, tuple[str, ...]]:
    """(id of the session to open, warnings of its creation)."""
    if wanted.session_id is not None and wanted.resume != "never":
        try:
            await store.session(wanted.session_id)
        except UnknownSession:
            if wanted.resume == "must":
                raise
        else:
            return wanted.session_id, ()
    try:
        return await create(store, wanted, DEFAULT_MODEL if wanted.model is None else wanted.model.name)
    except SessionExists:
        if wanted.session_id is None or wanted.resume == "never":
            raise
        return wanted.session_id, ()  # somebody else was quicker


async def create(store: Store, wanted: Wanted, model_name: str) -> tuple[str, tuple[str, ...]]:
    """Make a new session and return its id and warnings about its skills."""
    workspace = wanted.workspace or str(Path.cwd())
    wanted.check_limited(wanted.tools_of_new)
    tools, warnings = await _with_skills(wanted.tools_of_new, workspace)
    registry = Registry(tools)
    session_id = wanted.session_id or ids.new_session_id()
    opened = ev.SessionOpened(
        instructions=wanted.instructions or "",
        model=model_name,
        tools=registry.records(),
        workspace=workspace,
        settings=wanted.settings or ModelSettings(),
        policy=await _with_window(wanted.policy_on(ev.Policy()), model_name),
        title=wanted.title,
    )
    now = timestamp(utc_now())
    draft = Draft(SessionState(), now)
    draft.add(opened)
    await store.create(session_id, draft.records, created_at=now, title=wanted.title)
    return session_id, warnings


async def _with_skills(given: Sequence[Tool | SkillsRequest], workspace: str) -> tuple[list[Tool], tuple[str, ...]]:
    tools: list[Tool] = []
    warnings: tuple[str, ...] = ()
    for tool in given:
        if isinstance(tool, SkillsRequest):
            found = await trio.to_thread.run_sync(find_skills, Path(workspace), tool.folders)
            warnings += found.warnings
            if found.skills:  # a tool that can do nothing would still cost tokens in every turn
                tools.append(SkillTool(found.skills))
        else:
            tools.append(tool)
    return tools, warnings


async def prepare(store: Store, wanted: Wanted, session_id: str) -> tuple[SessionState, Prepared]:
    """Read the log and match what it needs with what was given.

    Raises ToolUnavailable before anything runs, BadInput, UnknownModel, MissingKey, CorruptLog, UnsupportedVersion.
    """
    state = await fold(store, session_id)
    config = state.config
    if wanted.workspace is None and not await trio.Path(config.workspace).is_dir():
        raise BadInput(
            f"the session's workspace {config.workspace!r} is gone. Make it again, or name another workspace."
        )
    asked = _not_skills_again(wanted.tools or (), config.tools)
    given, warnings = await _with_skills(asked, wanted.workspace or config.workspace)
    registry = Registry(_merged(config.tools, given))
    _need_tools(state, registry)
    wanted.check_limited(wanted.tools or (), registry.names)
    try:
        model = wanted.model or made_model(config.model)
    except UnknownModel as error:
        line = f"the session's model {config.model!r} is no model that can be made from its name. Pass it again."
        raise BadInput(line) from error
    policy = wanted.policy_on(config.policy)
    if wanted.policy is None and model.name != config.model:  # another model, another window
        policy = msgspec.structs.replace(policy, window_tokens=None)
    if policy != config.policy:
        policy = await _with_window(policy, model.name)
    changes = ev.Settings(
        model=_changed(model.name, config.model),
        instructions=_changed(wanted.instructions, config.instructions),
        tools=registry.records() if registry.records() != config.tools else None,
        settings=_changed(wanted.settings, config.settings),
        policy=_changed(policy, config.policy),
        workspace=_changed(wanted.workspace, config.workspace),
    )
    needed = changes if changes != ev.Settings() else None
    return state, Prepared(model, registry, needed, warnings)


async def _with_window(policy: ev.Policy, model: str) -> ev.Policy:
    """The policy with the model's window, where the caller gave none and it is known."""
    if policy.window_tokens is not None:
        return policy
    return msgspec.structs.replace(policy, window_tokens=await trio.to_thread.run_sync(window_of, model))


def _not_skills_again(
    tools: Sequence[Tool | SkillsRequest], records: Sequence[ev.ToolRecord]
) -> tuple[Tool | SkillsRequest, ...]:
    """A session keeps the skills that it was opened with: they are part of every request it has sent."""
    has_skills = any(record.kind == "skill" for record in records)
    return tuple(tool for tool in tools if not (has_skills and isinstance(tool, SkillsRequest)))


def _changed(wanted: T | None, current: T) -> T | None:
    return wanted if wanted is not None and wanted != current else None


def _merged(records: Sequence[ev.ToolRecord], given: Sequence[Tool]) -> list[Tool]:
    """The log's tools, those of the caller in their place, and the caller's new ones behind them."""
    by_name: dict[str, Tool] = {tool.name: tool for tool in given}
    if len(by_name) < len(given):
        raise ToolDefinitionError("two of the tools given have the same name. Rename one.")
    names = [record.schema.name for record in records]
    merged = [by_name.get(name) or remade(record) for name, record in zip(names, records, strict=True)]
    return [*merged, *(tool for tool in given if tool.name not in names)]


def remade(record: ev.ToolRecord) -> Tool:
    """The tool that the log tells of; a function, which no log can hold, as an AbsentTool."""
    match record.kind:
        case "bash":
            return Bash(**record.config)
        case "view_image":
            return ViewImage()
        case "skill":
            return SkillTool(msgspec.convert(record.config["skills"], list[Skill]))
        case _:
            return AbsentTool(record)


def _need_tools(state: SessionState, registry: Registry) -> None:
    """What this session still runs is presented by the tools that began it. Raises ToolUnavailable, BadInput."""
    # What a parent runs is no work of this session, and an unknown outcome reads the same whatever tool it was.
    ours = {op.id for op in state.operations.values() if op.id not in state.foreign and op.status is not Status.UNKNOWN}
    began = {record.schema.name: record.kind for record in state.config.tools}
    for call in state.pending:
        if not ours.intersection(call.operations):
            continue
        if registry.absent(call.tool):
            raise ToolUnavailable(call.tool, call.call_id)
        if (kind := registry.kind(call.tool)) != began.get(call.tool, kind):
            raise BadInput(
                f"call {call.call_id} of the tool {call.tool!r} ({began[call.tool]}) has not ended, and another tool "
                f"({kind}) of that name could not read its result. Leave it out until the call has ended."
            )
