"""Turnlog: an agent harness whose session is an append-only log and whose tools never block the model.

Everything public is here, by name. Names are loaded when they are first used, so that importing this package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

_PLACES: Final = {
    "harness.deltas": "Deltas Dropped ModelDelta OperationOutput Piece",
    "harness.errors": "BadInput HarnessError RunEnded RunInProgress SessionClosed ToolUnavailable",
    "harness.events": (
        "CallOutcome Cancel Cause Coalesce ContextCompacted Event Heartbeat InputAccepted Interrupt Limits Logged "
        "Message OperationUpdated Outcome Policy Reason RunFinished SessionForked SessionOpened Settings "
        "ToolCallFinished ToolCallPending ToolCallRejected TurnFailed TurnFinished TurnInterrupted TurnStarted Wake "
    ),
    "harness.history": "Events SessionSummary UnknownTurn fork read_events sessions",
    "harness.inbox": "submit",
    "harness.llm": "BadModel MissingKey UnknownModel make_model",
    "harness.llm.model": (
        "AssistantItem AttemptDropped Delta ErrorKind Image Model ModelError ModelRequest ModelResponse "
        "ModelSettings Reasoning ReasoningDelta StopReason Text TextDelta ToolCall ToolCallDelta ToolResultItem "
        "ToolSchema Usage UserItem "
    ),
    "harness.llm.script_file": "BadScript",
    "harness.llm.scripted": "Scripted",
    "harness.llm.windows": "BadWindows",
    "harness.replaying": "Divergence Replay TurnRequest replay",
    "harness.rerunning": "Rerun rerun",
    "harness.result": "RunResult ToolCallResult",
    "harness.runtime": "open_store",
    "harness.session": "Run Session open_session",
    "harness.folding": "apply",
    "harness.state": "SessionState",
    "harness.tools.defaults": "bash skills view_image",
    "harness.tools.function": "FunctionTool tool",
    "harness.tools.registry": "Presented Rejection Tool ToolDefinitionError",
    "harness.trace_rules": "Violation check",
    "store": (
        "CallerError CorruptLog Damage MemoryStore SessionBusy SessionExists SqliteStore StaleWriter Store "
        "StoreError StoreUnavailable UnknownSequence UnknownSession UnsupportedVersion "
    ),
}
"""Which module has which public names."""

_PLACE_OF: Final = {name: module for module, names in _PLACES.items() for name in names.split()}

__all__ = [*sorted(_PLACE_OF), "__version__"]


def __getattr__(name: str) -> Any:
    try:
        module = _PLACE_OF[name]
    except KeyError:
        raise AttributeError(f"module 'harness' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value  # the next use costs nothing
    return value


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:  # the same table for type checkers, which cannot follow a lazy one; a test compares the two
    from harness.deltas import Deltas as Deltas
    from harness.deltas import Dropped as Dropped
    from harness.deltas import ModelDelta as ModelDelta
    from harness.deltas import OperationOutput as OperationOutput
    from harness.deltas import Piece as Piece
    from harness.errors import BadInput as BadInput
    from harness.errors import HarnessError as HarnessError
    from harness.errors import RunEnded as RunEnded
    from harness.errors import RunInProgress as RunInProgress
    from harness.errors import SessionClosed as SessionClosed
    from harness.errors import ToolUnavailable as ToolUnavailable
    from harness.events import CallOutcome as CallOutcome
    from harness.events import Cancel as Cancel
    from harness.events import Cause as Cause
    from harness.events import Coalesce as Coalesce
    from harness.events import ContextCompacted as ContextCompacted
    from harness.events import Event as Event
    from harness.events import Heartbeat as Heartbeat
    from harness.events import InputAccepted as InputAccepted
    from harness.events import Interrupt as Interrupt
    from harness.events import Limits as Limits
    from harness.events import Logged as Logged
    from harness.events import Message as Message
    from harness.events import OperationUpdated as OperationUpdated
    from harness.events import Outcome as Outcome
    from harness.events import Policy as Policy
    from harness.events import Reason as Reason
    from harness.events import RunFinished as RunFinished
    from harness.events import SessionForked as SessionForked
    from harness.events import SessionOpened as SessionOpened
    from harness.events import Settings as Settings
    from harness.events import ToolCallFinished as ToolCallFinished
    from harness.events import ToolCallPending as ToolCallPending
    from harness.events import ToolCallRejected as ToolCallRejected
    from harness.events import TurnFailed as TurnFailed
    from harness.events import TurnFinished as TurnFinished
    from harness.events import TurnInterrupted as TurnInterrupted
    from harness.events import TurnStarted as TurnStarted
    from harness.events import Wake as Wake
    from harness.folding import apply as apply
    from harness.history import Events as Events
    from harness.history import SessionSummary as SessionSummary
    from harness.history import UnknownTurn as UnknownTurn
    from harness.history import fork as fork
    from harness.history import read_events as read_events
    from harness.history import sessions as sessions
    from harness.inbox import submit as submit
    from harness.llm import BadModel as BadModel
    from harness.llm import MissingKey as MissingKey
    from harness.llm import UnknownModel as UnknownModel
    from harness.llm import make_model as make_model
    from harness.llm.model import AssistantItem as AssistantItem
    from harness.llm.model import AttemptDropped as AttemptDropped
    from harness.llm.model import Delta as Delta
    from harness.llm.model import ErrorKind as ErrorKind
    from harness.llm.model import Image as Image
    from harness.llm.model import Model as Model
    from harness.llm.model import ModelError as ModelError
    from harness.llm.model import ModelRequest as ModelRequest
    from harness.llm.model import ModelResponse as ModelResponse
    from harness.llm.model import ModelSettings as ModelSettings
    from harness.llm.model import Reasoning as Reasoning
    from harness.llm.model import ReasoningDelta as ReasoningDelta
    from harness.llm.model import StopReason as StopReason
    from harness.llm.model import Text as Text
    from harness.llm.model import TextDelta as TextDelta
    from harness.llm.model import ToolCall as ToolCall
    from harness.llm.model import ToolCallDelta as ToolCallDelta
    from harness.llm.model import ToolResultItem as ToolResultItem
    from harness.llm.model import ToolSchema as ToolSchema
    from harness.llm.model import Usage as Usage
    from harness.llm.model import UserItem as UserItem
    from harness.llm.script_file import BadScript as BadScript
    from harness.llm.scripted import Scripted as Scripted
    from harness.llm.windows import BadWindows as BadWindows
    from harness.replaying import Divergence as Divergence
    from harness.replaying import Replay as Replay
    from harness.replaying import TurnRequest as TurnRequest
    from harness.replaying import replay as replay
    from harness.rerunning import Rerun as Rerun
    from harness.rerunning import rerun as rerun
    from harness.result import RunResult as RunResult
    from harness.result import ToolCallResult as ToolCallResult
    from harness.runtime import open_store as open_store
    from harness.session import Run as Run
    from harness.session import Session as Session
    from harness.session import open_session as open_session
    from harness.state import SessionState as SessionState
    from harness.tools.defaults import bash as bash
    from harness.tools.defaults import skills as skills
    from harness.tools.defaults import view_image as view_image
    from harness.tools.function import FunctionTool as FunctionTool
    from harness.tools.function import tool as tool
    from harness.tools.registry import Presented as Presented
    from harness.tools.registry import Rejection as Rejection
    from harness.tools.registry import Tool as Tool
    from harness.tools.registry import ToolDefinitionError as ToolDefinitionError
    from harness.trace_rules import Violation as Violation
    from harness.trace_rules import check as check
    from store import CallerError as CallerError
    from store import CorruptLog as CorruptLog
    from store import Damage as Damage
    from store import MemoryStore as MemoryStore
    from store import SessionBusy as SessionBusy
    from store import SessionExists as SessionExists
    from store import SqliteStore as SqliteStore
    from store import StaleWriter as StaleWriter
    from store import Store as Store
    from store import StoreError as StoreError
    from store import StoreUnavailable as StoreUnavailable
    from store import UnknownSequence as UnknownSequence
    from store import UnknownSession as UnknownSession
    from store import UnsupportedVersion as UnsupportedVersion
