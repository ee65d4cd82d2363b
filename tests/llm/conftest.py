from __future__ import annotations

import pytest
import trio.testing


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Virtual time for tests that use real sockets: it jumps only when nothing is on its way over loopback."""
    return trio.testing.MockClock(autojump_threshold=0.02)
