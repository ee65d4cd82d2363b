"""The table of legal transitions, row by row."""

from __future__ import annotations

from itertools import product

import pytest

from operations import TERMINAL, TRANSITIONS, IllegalTransition, Operation, OperationSpec, Status, Update, moved


def make_operation(status: Status) -> Operation:
    return Operation("op", OperationSpec("shell", 1, {}), status, {"pid": 1})


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_only_listed_transitions_are_accepted(before: Status, after: Status) -> None:
    operation = make_operation(before)
    if after in TRANSITIONS[before]:
        assert moved(operation, Update("op", after)).status is after
    else:
        with pytest.raises(IllegalTransition, match=rf"{before.value}.*{after.value}"):
            moved(operation, Update("op", after))
        assert operation == make_operation(before)


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_nothing_follows_an_end(status: Status) -> None:
    assert not TRANSITIONS[status]


def test_every_status_has_a_row() -> None:
    assert set(TRANSITIONS) == set(Status)


def test_an_update_without_a_checkpoint_keeps_the_last_one() -> None:
    assert moved(make_operation(Status.RUNNING), Update("op", Status.RUNNING)).checkpoint == {"pid": 1}
    assert moved(make_operation(Status.RUNNING), Update("op", Status.RUNNING, {"pid": 2})).checkpoint == {"pid": 2}
