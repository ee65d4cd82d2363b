"""What the coordinator writes: each thing that happened, and each decision, as the events of a draft.

Belongs here: the events' contents, ids included, and what is written where a foreign value cannot be.
Must not know: when anything is decided, committed or carried out.
"""

from __future__ import annotations

from msgspec.structs import replace

from harness import decide as rules
from harness import events as ev
from harness import ids
from harness.compaction import SummaryRequest, keep_from
from harness.context import Built
from harness.elapsed import Elapsed
from harness.errors import HarnessError
from harness.journal import Draft
from harness.llm.model import Text
from harness.state import SessionState
from harness.tools.registry import Registry, Rejection
from harness.transcript import clean
from harness.turn import TurnTask
from operations import TERMINAL, Operation, Update


class Recorder:
    """Adds to drafts. What models and tools gave may be unrecordable: each such event has words to stand in for it."""

    def __init__(self, registry: Registry, elapsed: Elapsed) -> None:
        self._registry, self._elapsed = registry, elapsed

    # --- what happened

    def turn_ended(self, draft: Draft, turn: TurnTask, ended: ev.Event) -> None:
        """A turn in flight has ended so."""
        draft.add_or(ended, turn.cannot_be_recorded)

    def operation_updated(self, draft: Draft, update: Update) -> None:
        """An operation took a step."""
        event = ev.OperationUpdated(
            update.operation_id, update.status, update.checkpoint, update.result, update.seconds
        )

        def without(problem: str) -> ev.OperationUpdated:
            # It happened, so its status stands; only what it says of itself is lost.
            lost = {"error": f"what the operation returned cannot be recorded: {problem}"}
            return replace(event, checkpoint=None, result=lost if update.status in TERMINAL else None)

        draft.add_or(event, without)

    # --- what was decided

    def translate(self, draft: Draft, action: rules.Translate) -> list[Operation]:
        """Accept or reject each call. Returns the operations that are to be started."""
        started: list[Operation] = []
        for call_id in action.call_ids:
            event = self._translated(draft.state, call_id, action.refusal)

            def rejected(problem: str, event: ev.ToolCallPending | ev.ToolCallRejected = event) -> ev.ToolCallRejected:
                line = f"the tool {event.tool!r} failed: the work it asked for cannot be recorded: {problem}"
                return ev.ToolCallRejected(event.turn_id, event.call_id, event.tool, line)

            added = draft.add_or(event, rejected)
            if isinstance(added, ev.ToolCallPending):
                started.extend(added.operations)
        return started

    def _translated(self, state: SessionState, call_id: str, refusal: str) -> ev.ToolCallPending | ev.ToolCallRejected:
        call = state.calls[call_id]
        limit = rules.call_limit_exceeded(state.run, call.tool) if state.run is not None else ""
        if limit and not refusal:
            refusal = f"not run: the limit of {limit} is reached"
        if refusal:
            return ev.ToolCallRejected(call.turn_id, call_id, call.tool, refusal, limit)
        made = self._registry.translate(call.tool, call.arguments, state.config.workspace)
        if isinstance(made, Rejection):
            return ev.ToolCallRejected(call.turn_id, call_id, call.tool, made.error)
        operations = tuple(Operation(ids.new_operation_id(), spec) for spec in made.specs)
        return ev.ToolCallPending(call.turn_id, call_id, call.tool, made.arguments, operations, made.wake)

    def finish_calls(self, draft: Draft, action: rules.FinishCalls) -> None:
        """Every operation of these calls has ended: their results."""
        for call_id in action.call_ids:
            call = draft.state.calls[call_id]
            operations = [draft.state.operations[operation_id] for operation_id in call.operations]
            presented = self._registry.present(call.tool, operations)
            took = [operation.seconds for operation in operations if operation.seconds is not None]
            event = ev.ToolCallFinished(call_id, presented.outcome, presented.parts, seconds=max(took, default=None))

            def failed(problem: str, event: ev.ToolCallFinished = event, tool: str = call.tool) -> ev.ToolCallFinished:
                line = f"the tool {tool!r} could not tell its result: it cannot be recorded: {problem}"
                return replace(event, outcome=ev.CallOutcome.FAILED, parts=(Text(clean(line)),))

            draft.add_or(event, failed)

    def heartbeat(self, draft: Draft, action: rules.Beat) -> None:
        """Nothing has happened for as long as the policy says."""
        idle_s = draft.state.config.policy.heartbeat_s
        draft.add(ev.InputAccepted(ids.new_input_id(), "harness", ev.Heartbeat(action.call_ids, idle_s)))

    def finish_run(self, draft: Draft, action: rules.FinishRun) -> None:
        """The run is over."""
        run = draft.state.run
        if run is None:
            raise HarnessError("there is no run to finish")
        draft.add(
            ev.RunFinished(
                run.run_id,
                action.outcome,
                run.turns,
                run.usage,
                text=run.last_text,
                error=action.error,
                seconds=self._elapsed.run_s(draft.state),
            )
        )

    def finish_compaction(self, draft: Draft) -> None:
        """The summary takes the place of what it summarises."""
        state = draft.state
        draft.add(ev.ContextCompacted(state.seq, state.summary, keep_from(state)))

    def announce_turn(
        self,
        draft: Draft,
        reason: ev.Reason,
        asked: Built | SummaryRequest,
        *,
        new_items: tuple[str, ...] = (),
        limit: str = "",
        covers: int = 0,
    ) -> int:
        """A request is about to be sent. Returns the number of its turn."""
        state = draft.state
        number = state.turns + 1
        draft.add(
            ev.TurnStarted(
                ids.turn_id(number),
                state.run.run_id if state.run is not None else "",
                state.config.model,
                reason,
                asked.digest,
                new_items,
                len(asked.request.items),
                asked.chars,
                run_s=self._elapsed.run_s(state),
                limit=limit,
                covers=covers,
            )
        )
        return number
