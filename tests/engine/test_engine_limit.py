"""A limit by key: never more than it allows, in order, none lost and none stuck, at the same cost however many wait."""

from __future__ import annotations

import random
from collections import deque

import pytest
from tests.engine.limit_rows import StoredLimit, granted

from noetl_stream.engine.aggregates.key_limits import CATCHING_UP_MS, IDLE_MS
from noetl_stream.model import events
from noetl_stream.model.aggregates import LimitSlot, LimitState, SlotAsked, SlotHeld, SlotReturned
from noetl_stream.model.events import OnLimit, Rate
from noetl_stream.model.json import codec

NOW = 1_000_000


def asked(
    execution_id: str,
    concurrency: int | None = 1,
    rate: Rate | None = None,
    on_limit: OnLimit = "queue",
    path: str = "a",
) -> SlotAsked:
    return SlotAsked("key", execution_id, path=path, concurrency=concurrency, rate=rate, on_limit=on_limit)


def returned(execution_id: str) -> SlotReturned:
    return SlotReturned("key", execution_id)


def test_the_first_that_asks_gets_the_slot_and_the_next_when_it_is_given_back() -> None:
    limit = StoredLimit()
    assert granted(limit.fold(asked("one"), NOW)) == ["one"]
    assert granted(limit.fold(asked("two"), NOW)) == [] == granted(limit.fold(asked("three"), NOW))
    assert granted(limit.fold(returned("one"), NOW)) == ["two"]
    assert granted(limit.fold(returned("two"), NOW)) == ["three"]


def catching_up() -> StoredLimit:
    limit = StoredLimit()
    limit.is_catching_up = True
    return limit


@pytest.mark.parametrize("on_limit", ["queue", "reject", "discard", "cancel_running"])
def test_an_asker_waits_until_all_holders_of_a_limit_that_catches_up_are_known(on_limit: OnLimit) -> None:
    limit = catching_up()
    assert not limit.fold(asked("one", on_limit=on_limit), NOW).messages
    assert not limit.fold(asked("two", on_limit=on_limit), NOW).messages, "nobody is refused or ended either"
    assert limit.state is not None and limit.state.catching_up
    assert limit.wake(NOW + CATCHING_UP_MS - 1) == []
    limit.wake(NOW + CATCHING_UP_MS)
    limit.is_catching_up = False
    [(at_ms, folded)] = limit.wake(NOW + 2 * CATCHING_UP_MS)
    assert granted(folded) == ["one"] and at_ms == NOW + 2 * CATCHING_UP_MS
    assert folded.state is not None and not folded.state.catching_up


def test_former_holders_of_a_slot_hold_it_again_before_any_other_whatever_the_limit_allows() -> None:
    limit = catching_up()
    for name in ("new", "old", "older"):
        limit.fold(asked(name), NOW)
    for name in ("older", "old", "old", "nobody"):
        limit.fold(SlotHeld("key", name), NOW)
    limit.is_catching_up = False
    assert [row.execution_id for row in limit.queue] == ["new"] and len(limit.holding) == 2
    assert granted(limit.fold(returned("old"), NOW)) == [], "as one still holds it"
    assert granted(limit.fold(returned("older"), NOW)) == ["new"]


def test_slots_given_back_while_a_limit_catches_up_are_given_out_afterwards() -> None:
    limit = StoredLimit()
    limit.fold(asked("one"), NOW)
    limit.fold(asked("two"), NOW)
    limit.is_catching_up = True
    assert granted(limit.fold(returned("one"), NOW)) == []
    limit.is_catching_up = False
    assert [granted(folded) for _, folded in limit.wake(NOW + CATCHING_UP_MS)] == [["two"]]


def test_a_limit_that_nobody_uses_leaves_nothing() -> None:
    limit = StoredLimit()
    limit.fold(asked("one"), NOW)
    limit.fold(returned("one"), NOW)
    assert limit.state is not None and not limit.rows, "who uses it again soon finds it"
    limit.wake(NOW + IDLE_MS - 1)
    assert limit.state is not None
    limit.wake(NOW + IDLE_MS)
    assert limit.state is None


def test_asking_or_giving_back_twice_changes_nothing() -> None:
    limit = StoredLimit()
    limit.fold(asked("one"), NOW)
    limit.fold(asked("two"), NOW)
    before = limit.state
    assert not limit.fold(asked("one"), NOW).slots and not limit.fold(asked("two"), NOW).slots
    assert not limit.fold(returned("nobody"), NOW).slots
    assert limit.state is before


def test_an_asker_that_left_the_queue_is_skipped() -> None:
    limit = StoredLimit()
    for name in ("one", "two", "three"):
        limit.fold(asked(name), NOW)
    assert granted(limit.fold(returned("two"), NOW)) == []
    assert granted(limit.fold(returned("one"), NOW)) == ["three"]


@pytest.mark.parametrize("on_limit", ["reject", "discard"])
def test_an_asker_that_does_not_wait_is_refused_with_the_holder_of_the_key(on_limit: OnLimit) -> None:
    limit = StoredLimit()
    limit.fold(asked("one"), NOW)
    before = limit.rows.copy()
    (told,) = limit.fold(asked("two", on_limit=on_limit), NOW).messages
    assert told.execution_id == "two" and isinstance(told.fact, events.SlotRefused)
    assert told.fact.reason == f"key key is limited to 1 at once: 1 held, and on_limit is {on_limit}"
    assert limit.rows == before


def test_a_newer_execution_ends_the_oldest_and_takes_its_place_once_that_has_ended() -> None:
    limit = StoredLimit()
    limit.fold(asked("one", on_limit="cancel_running"), NOW)
    (told,) = limit.fold(asked("two", on_limit="cancel_running"), NOW).messages
    assert told.execution_id == "one" and isinstance(told.fact, events.CancelRequested)
    assert "execution two takes its place: key key" in told.fact.reason
    (told,) = limit.fold(asked("three", on_limit="cancel_running"), NOW).messages
    assert told.execution_id == "two", "it waits, and a newer one came"
    assert granted(limit.fold(returned("two"), NOW)) == []
    assert granted(limit.fold(returned("one"), NOW)) == ["three"]


def test_a_step_that_holds_the_key_is_not_ended_for_an_execution() -> None:
    limit = StoredLimit()
    limit.fold(SlotAsked("key", "one", "run", concurrency=1), NOW)
    assert not limit.fold(asked("two", on_limit="cancel_running"), NOW).messages


def test_a_rate_allows_a_burst_and_then_one_at_a_time() -> None:
    limit = StoredLimit()
    rate = Rate(2.0, 3)
    assert [granted(limit.fold(asked(f"{n}", None, rate), NOW)) for n in range(5)] == [["0"], ["1"], ["2"], [], []]
    assert limit.state is not None and limit.state.timer_ms == NOW + 500 and not limit.holding
    assert [(at_ms - NOW, granted(folded)) for at_ms, folded in limit.wake(NOW + 5000)] == [
        (500, ["3"]), (1000, ["4"]),
    ]  # fmt: skip


def test_with_both_a_slot_and_the_rate_are_needed() -> None:
    limit = StoredLimit()
    rate = Rate(1.0)
    assert granted(limit.fold(asked("one", 1, rate), NOW)) == ["one"]
    limit.fold(asked("two", 1, rate), NOW)
    assert not limit.wake(NOW + 10_000), "no slot is free"
    assert granted(limit.fold(returned("one"), NOW + 300)) == []
    assert [(at_ms - NOW, granted(folded)) for at_ms, folded in limit.wake(NOW + 10_000)] == [(1000, ["two"])]


def test_a_clock_that_goes_back_refills_no_rate() -> None:
    limit = StoredLimit()
    limit.fold(asked("one", None, Rate(1.0)), NOW)
    limit.fold(asked("two", None, Rate(1.0)), NOW - 60_000)
    assert limit.state is not None and limit.state.timer_ms == NOW + 1000
    assert granted(limit.fold(None, NOW - 60_000)) == []


@pytest.mark.parametrize(("path", "by"), [("b", "another playbook"), ("a", "playbook a/x")], ids=["elsewhere", "above"])
def test_the_newest_asker_sets_the_limit_and_both_learn_of_a_difference(path: str, by: str) -> None:
    limit = StoredLimit()
    limit.fold(asked("one", 1, path="a/x"), NOW)
    (told,) = limit.fold(asked("two", 2, path=path), NOW + 1).messages
    assert isinstance(told.fact, events.SlotGranted)
    text = "the limit of key key is 2 at once now, as playbook {} says; it was 1 at once, as {} says: "
    text += "the newest that asks decides"
    assert told.fact.warning == text.format(path, by), "who may see the playbook that asks may see all that is named"
    assert limit.state is not None and limit.state.replaced == text.format(path, "playbook a/x")
    assert limit.state is not None and (limit.state.concurrency, limit.state.set_by) == (2, path)
    limit.fold(asked("three", 1, path="a"), NOW + 2)
    assert granted(limit.fold(returned("one"), NOW + 3)) == [], "a lower limit takes nothing away, and gives nothing"
    assert granted(limit.fold(returned("two"), NOW + 4)) == ["three"]


def test_a_higher_limit_gives_to_those_who_wait_already_in_order() -> None:
    limit = StoredLimit()
    for name in ("one", "two", "three"):
        limit.fold(asked(name), NOW)
    assert granted(limit.fold(asked("four", 3), NOW)) == ["two", "three"]


def test_a_limit_survives_encoding() -> None:
    limit = StoredLimit()
    limit.fold(asked("one", 3, Rate(0.5, 2)), NOW)
    limit.fold(asked("two", 3), NOW)
    assert limit.state == codec.decode_as(LimitState, codec.encode(limit.state))


def test_ten_thousand_waiting_askers_make_a_grant_no_more_expensive() -> None:
    """A grant writes two rows, whoever waits, and the state has the size it always has."""
    limit, waiting = StoredLimit(window=8), 10_000
    limit.rows = {f"{number}": LimitSlot(number + 1, f"{number}") for number in range(waiting)}
    limit.rows["0"] = LimitSlot(1, "0", granted_ms=NOW)
    limit.state = LimitState("key", 1, held=1, queued=waiting - 1, next_number=waiting + 1, at_ms=NOW)
    size = len(codec.encode(limit.state))
    for number in range(3):
        limit.written = 0
        assert granted(limit.fold(returned(f"{number}"), NOW)) == [f"{number + 1}"]
        assert limit.written == 2 and len(codec.encode(limit.state)) <= size


@pytest.mark.parametrize("seed", range(200))
def test_a_random_history_is_what_a_plain_queue_does(seed: int) -> None:
    """Against an oracle that keeps a list: the same slots, in the same order, at the same times."""
    dice = random.Random(seed)
    window = dice.choice([1, 2, 64])
    rate = dice.choice([None, None, Rate(dice.choice([0.5, 3, 40]), dice.randint(1, 4))])
    at_once = dice.choice([None, 1, 2, 5]) if rate else dice.choice([1, 2, 5])
    limit, oracle = StoredLimit(window), _Oracle(at_once, rate)
    now, names = NOW, iter(range(10_000))
    for _ in range(120):
        later = now + dice.choice([0, 0, 1, 50, 700])
        got = [(at_ms, name) for at_ms, folded in limit.wake(later) for name in granted(folded)]
        assert got == oracle.until(later)
        now = later
        known = [*oracle.holding, *oracle.queue, "nobody"]
        if dice.random() < 0.55:
            name = f"e{next(names)}"
            got = granted(limit.fold(asked(name, at_once, rate), now))
            wanted = oracle.asked(name, now)
        else:
            name = dice.choice(known)
            got = granted(limit.fold(returned(name), now))
            wanted = oracle.returned(name, now)
        got += [name for _, folded in limit.wake(now) for name in granted(folded)]
        assert got == wanted
        assert [row.holder for row in limit.queue] == list(oracle.queue)
        assert sorted(row.holder for row in limit.holding) == sorted(oracle.holding if at_once else [])
        assert at_once is None or len(limit.holding) <= at_once
        _check_counts(limit)
    for name in [*oracle.holding, *oracle.queue]:
        limit.fold(returned(name), now)
    limit.wake(now + 10_000_000)
    assert limit.state is None and not limit.rows


def _check_counts(limit: StoredLimit) -> None:
    """The counts are those of the rows, and whatever can go on names what will wake it."""
    state = limit.state
    if state is None:
        assert not limit.rows
        return
    assert (state.held, state.queued) == (len(limit.holding), len(limit.queue))
    has_slot = state.concurrency is None or state.held < state.concurrency
    assert not (state.queued and has_slot) or state.timer_ms


class _Oracle:
    """What a limit does, the simple way: a list of who holds, one of who waits, and the times of the last grants."""

    def __init__(self, at_once: int | None, rate: Rate | None) -> None:
        self.at_once, self.rate = at_once, rate
        self.holding: list[str] = []
        self.queue: deque[str] = deque()
        self._missing = 0.0  # how much the bucket lacks, in grants, at ``_at``
        self._at = NOW

    def asked(self, name: str, now: int) -> list[str]:
        self.queue.append(name)
        return self._give(now)

    def returned(self, name: str, now: int) -> list[str]:
        if name in self.holding:
            self.holding.remove(name)
        elif name in self.queue:
            self.queue.remove(name)
        return self._give(now)

    def until(self, later: int) -> list[tuple[int, str]]:
        found = []
        for at_ms in range(self._at, later + 1) if self.rate is not None and self.queue else [later]:
            found += [(at_ms, name) for name in self._give(at_ms)]
        return found

    def _give(self, now: int) -> list[str]:
        given = []
        if self.rate is not None:
            self._missing = max(0.0, self._missing - (now - self._at) * self.rate.per_s / 1000)
        self._at = now
        while self.queue and (self.at_once is None or len(self.holding) < self.at_once):
            if self.rate is not None:
                if self._missing > self.rate.burst - 1 + 1e-9:
                    break
                self._missing += 1
            name = self.queue.popleft()
            given.append(name)
            if self.at_once is not None:
                self.holding.append(name)
        return given
