"""A Chat Completions server that works tasks of the turn benchmark and takes its time for each answer.

`python -m bench.thinking` prints its port. The path says what it works on:
`/<conversation>/<shape>/<seed>/<wake or plain>/<speed>/v1/chat/completions`. It knows only what the request shows.

Belongs here: a `Worker` behind HTTP; seconds divided by the speed.
Must not know: when it is asked. That is what is measured.
"""

from __future__ import annotations

import asyncio

from bench.loopback import Message, Server, called, said
from bench.tasks import SHAPES
from bench.worker import ANSWER, WAITING, WORDS, Worker, arguments_of, mark


class _Thinking(Server):
    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}

    async def answer(self, path: str, body: bytes) -> Message:
        _, conversation, shape, seed, wake, speed, *_ = path.split("/")
        worker = self._workers.setdefault(conversation, Worker(SHAPES[shape](int(seed))))
        worker.read([step for step in worker.asked - worker.known if mark(step).encode() in body])
        await asyncio.sleep(worker.think_s() / float(speed))
        calls = worker.next_calls()
        if not calls:
            return said(ANSWER if worker.finished else WAITING)
        wakes = [worker.wake_of(step) if wake == "wake" else None for step in calls]
        made = [(step.tool, arguments_of(step, woken)) for step, woken in zip(calls, wakes, strict=True)]
        return called(made, WORDS, turn=worker.turns)


if __name__ == "__main__":
    asyncio.run(_Thinking().run())
