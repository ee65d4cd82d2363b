"""What foreign code raised: whose it is.

Belongs here: telling an error of a handler's from a cancellation of ours and from Ctrl-C.
Must not know: operations, what an error leads to, or how it reads (`operations.wording`).
"""

from __future__ import annotations

import math
import threading

import trio

from operations.driving import Abandoned
from operations.wording import leaves


def own_error(error: BaseException) -> BaseException | None:
    """What of `error`, just caught, is the foreign code's own; None when nothing is.

    Not its own is the cancellation of the scope that we are in, alone or in a group with what its cleanup raised, and
    what takes abandoned code off the stack. Anything else is, whatever it derives from: left alone it would end all
    that runs beside it. Raises `error` itself for Ctrl-C, which Python raises in whatever the main thread is doing.
    """
    if is_interrupt(error) and threading.current_thread() is threading.main_thread():
        raise error
    # A cancellation that arrives in a scope that is not cancelled was kept from another one, and raised again.
    cancelled = trio.current_effective_deadline() == -math.inf
    ours = (Abandoned, trio.Cancelled) if cancelled else (Abandoned,)
    own = [leaf for leaf in leaves(error) if not isinstance(leaf, ours)]
    if not isinstance(error, BaseExceptionGroup):
        return error if own else None
    return BaseExceptionGroup("", own) if own else None


def is_interrupt(error: BaseException) -> bool:
    """Whether it is a KeyboardInterrupt, or a group with one in it."""
    return any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error))
