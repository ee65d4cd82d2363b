"""Before anything is started: is the session still ours.

Belongs here: asking a lease, and extending one that has run out while this process was stopped or held up.
Must not know: what is to be started, or what a coordinator does when the answer is no.
"""

from __future__ import annotations

from contextlib import suppress

import trio

from store import LEASE_TTL_S, Lease, StoreError

RENEW_EVERY_S = LEASE_TTL_S / 3
"""A lease survives two renewals that fail."""

SOON_S = 0.1


def renew_every_s(lease: Lease) -> float:
    """Seconds until the next renewal: of a store that grants less than usual, more often."""
    return min(RENEW_EVERY_S, max(SOON_S, lease.valid_for_s / 3))


async def hold(lease: Lease) -> None:
    """Return when the lease is valid, extending it if need be. Raises StaleWriter, StoreUnavailable.

    A process that slept past its lease must learn so before it starts anything, not at its next append.
    """
    if lease.valid_for_s <= 0:
        await lease.renew()


async def wait_until_held(lease: Lease) -> None:
    """The same for whoever has nobody to raise to: return once the lease is valid, which may be never."""
    while lease.valid_for_s <= 0:
        with suppress(StoreError):
            await lease.renew()
            continue
        await trio.sleep(SOON_S)
