"""Reading, listing and deleting executions, as tests that :class:`StoreConformance` inherits."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple, replace

from noetl_stream.model.events import TaskHeartbeat, TaskProcessed
from noetl_stream.model.events.composite import StepRan, TaskRan, TokenPassed
from noetl_stream.model.ids import uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Outcome
from noetl_stream.model.search_terms import due_range, due_terms
from noetl_stream.ports.stores.store import (
    ExecutionRow,
    InboxRow,
    ListingFilter,
    ObjectUseRow,
    RequestRow,
    Store,
    TermRow,
    TimerRow,
)
from noetl_stream.ports.stores.tallies import TallyKey
from noetl_stream.protocol.subjects import named_by_logs_key
from noetl_stream.storage.deletion import delete_execution
from noetl_stream.storage.journal import events_of, facts_about
from noetl_testkit.conformance.store_rows import (
    FACTS,
    as_stored,
    committed,
    entry_row,
    execution_row,
    following,
    mixed_entry,
)

AT_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def begun_at(at_ms: int, **changes: object) -> ExecutionRow:
    """An execution whose id has this start time."""
    return execution_row(uuid7(at_ms, b"0123456789"), **({"started_ms": at_ms} | changes))


def terms_of(rows: Sequence[ExecutionRow], *terms: str) -> list[TermRow]:
    """All of these terms for each of these executions."""
    return [TermRow(term=term, execution_id=row.execution_id) for row in rows for term in terms]


async def listed(store: Store, wanted: ListingFilter, limit: int = 9, before: str | None = None) -> list[str]:
    """The ids of a list."""
    return [row.execution_id for row in await store.list_executions(wanted, limit, before)]


class ReadingConformance:
    """Reads by people and by a new owner."""

    async def test_a_journal_reads_by_position_from_anywhere(self, store: Store) -> None:
        events = [mixed_entry("a", position) for position in (3, 1, 2, 10)]
        await committed(store, entries=[*events, entry_row("b", 1)])
        stored = [as_stored(event) for event in sorted(events, key=lambda event: event.position)]
        assert await store.journal("a") == stored
        assert await store.journal("a", after=2) == stored[2:]
        assert await store.journal("a", after=1, limit=2) == stored[1:3]
        entries = await store.journals({"a": 0, "b": 0, "c": 0})
        assert list(events_of("a", entries["a"])) == stored
        assert list(events_of("b", entries["b"])) == [as_stored(entry_row("b", 1))] and entries["c"] == []
        assert await store.journals({}) == {}
        rest = await store.journals({"a": 2, "b": 1}, 1)
        assert [list(events_of(name, rest[name])) for name in "ab"] == [stored[2:3], []]

    async def test_living_executions_are_those_of_the_partitions_that_have_not_ended(self, store: Store) -> None:
        rows = [
            execution_row("a", partition=1, digest="d1"),
            execution_row("b", partition=2, digest="d2"),
            execution_row("c", partition=2, finished_ms=9),
            execution_row("d", partition=3),
        ]
        assert await store.newest_execution() == ""
        await committed(store, executions=rows)
        assert await store.newest_execution() == "d"
        assert await store.live_executions([1, 2]) == {"a": "d1", "b": "d2"}
        assert await store.live_executions([]) == {}

    async def test_living_executions_rest_that_are_owed_nothing_and_look_into_nothing(self, store: Store) -> None:
        rows = [
            execution_row("a", partition=1),
            execution_row("b", partition=1, commands=1),
            execution_row("c", partition=1, looks_into="evaluation"),
            execution_row("d", partition=1, status="completed", finished_ms=2_000),
            execution_row("e", partition=2, status="paused"),
            execution_row("f", partition=3),
        ]
        await committed(store, executions=rows)
        assert await store.resting_executions([1, 2]) == {"a", "e"}
        assert await store.resting_executions([]) == set()

    async def test_the_timers_of_partitions_are_read_in_the_order_they_are_due(self, store: Store) -> None:
        timers = [
            TimerRow(execution_id=name, timer_id="t", partition=partition, due_ms=due_ms, purpose="wait")
            for name, partition, due_ms in (("a", 1, 30), ("b", 2, 10), ("c", 3, 20))
        ]
        await committed(store, timers=timers)
        assert await store.timers_in([1, 2]) == [timers[1], timers[0]]

    async def test_executions_are_listed_newest_first_filtered_and_paged(self, store: Store) -> None:
        rows = [
            execution_row(
                f"0{n}-Z" if n % 2 else f"0{n}-a",
                status="completed" if n % 2 else "running",
                path="p" if n < 3 else "q",
                finished_ms=n,
            )
            for n in range(6)
        ]
        await committed(store, executions=rows)

        assert await listed(store, ListingFilter(), 3) == ["05-Z", "04-a", "03-Z"]
        assert await listed(store, ListingFilter(), 3, "03-Z") == ["02-a", "01-Z", "00-a"]
        assert await listed(store, ListingFilter(["completed"]), 9, "05-Z") == ["03-Z", "01-Z"]
        assert await listed(store, ListingFilter(path="p")) == ["02-a", "01-Z", "00-a"]
        assert await listed(store, ListingFilter(["running"], "p"), 9, "02-a") == ["00-a"]
        assert await listed(store, ListingFilter(["failed"])) == []
        newest = (await store.list_executions(ListingFilter(), 1, None))[0]
        assert astuple(newest) == (
            "05-Z",
            "completed",
            "q",
            "1",
            1_000,
            5,
            "digest",
            1_003,
            None,
            b"{}",
            "",
            b"{}",
            "",
            b"[]",
            "",
        )
        assert await store.listed_executions(["05-Z", "none"]) == {"05-Z": newest}

    async def test_recent_executions_are_those_of_exactly_one_path_newest_first(self, store: Store) -> None:
        rows = [
            begun_at(AT_MS, path="team/a", status="completed", finished_ms=AT_MS + 7, position=12),
            begun_at(AT_MS + 1, path="team/a", status="failed", finished_ms=AT_MS + 9),
            begun_at(AT_MS + 2, path="team/a", status="running"),
            begun_at(AT_MS + 3, path="team/a/b"),
            begun_at(AT_MS + 4, path="team/ab"),
        ]
        await committed(store, executions=rows)
        found = await store.recent_executions("team/a", 0, 9)
        assert [one.status for one in found] == ["running", "failed", "completed"]
        assert astuple(found[2]) == (rows[0].execution_id, "completed", AT_MS, AT_MS + 7, 12)
        assert await store.recent_executions("team/a", 0, 2) == found[:2]
        assert await store.recent_executions("team/a", AT_MS + 1, 9) == found[:2]
        assert await store.recent_executions("team", 0, 9) == []
        last = await store.last_executions(["team/a", "team/ab", "team"])
        assert {path: one.status for path, one in last.items()} == {"team/a": "running", "team/ab": rows[4].status}
        assert last["team/a"] == found[0]
        assert await store.last_executions([]) == {}

    async def test_iteration_results_are_those_of_one_step_run(self, store: Store) -> None:
        names = ["step.started", "task.processed", "loop.iteration.done", "loop.iteration.failed", "loop.done"]
        events = [entry_row("a", position, name, step_run_id="s") for position, name in enumerate(names, start=1)]
        others = [entry_row("a", 9, "task.processed", step_run_id="t"), entry_row("b", 1, "task.processed")]
        await committed(store, entries=[*events, *others])
        assert [entry.position for entry in await store.iteration_results("a", "s", 0, 9)] == [1, 2, 3, 4, 5]
        assert [entry.position for entry in await store.iteration_results("a", "s", 2, 2)] == [3, 4]

    async def test_entries_are_read_by_their_positions(self, store: Store) -> None:
        events = [entry_row("a", position, "task.processed", step_run_id="s") for position in range(1, 5)]
        await committed(store, entries=[*events, entry_row("b", 2, "task.processed", step_run_id="s")])
        every = await store.iteration_results("a", "s", 0, 9)
        assert await store.entries_at("a", [4, 2, 7]) == [every[1], every[3]]
        assert await store.entries_at("a", []) == await store.entries_at("c", [2]) == []

    async def test_an_entry_reads_as_its_facts_and_then_its_decisions(self, store: Store) -> None:
        started, processed, enqueued = (FACTS[name] for name in ("step.started", "task.processed", "token.enqueued"))
        entry = mixed_entry("a", 1)
        entry = replace(entry, data=codec.encode([started, processed]), decisions=codec.encode([enqueued, enqueued]))
        await committed(store, entries=[entry, entry_row("a", 5)])
        events = await store.journal("a")
        assert [(one.position, one.name, one.source, one.number, one.cause) for one in events] == [
            (1, "step.started", "worker", 1, None),
            (2, "task.processed", "worker", 2, None),
            (3, "token.enqueued", "server", None, 2),
            (4, "token.enqueued", "server", None, 2),
            (5, "token.enqueued", "server", None, None),
        ]
        assert [codec.decode_fact(one.data) for one in events[:3]] == [started, processed, enqueued]
        for after in range(6):
            assert await store.journal("a", after=after) == events[after:]
            assert await store.journal("a", after=after, limit=2) == events[after : after + 2]
        named = await store.events_named("a", {"token.enqueued"}, after=3)
        assert [one.position for one in named] == [4, 5]

    async def test_a_composite_fact_reads_as_the_facts_it_stands_for(self, store: Store) -> None:
        processed = FACTS["task.processed"]
        assert isinstance(processed, TaskProcessed)
        task = TaskRan("fetch", processed.outcome.result, 0, 1, 0.5)
        ran, passed = StepRan("run", "worker", [task]), TokenPassed("run", "fetch", "store", 0)
        entry = replace(mixed_entry("a", 1), data=codec.encode([ran]), decisions=codec.encode([passed]))
        await committed(store, entries=[entry])
        events = await store.journal("a")
        assert [one.name for one in events] == [
            *("step.started", "task.started", "task.processed", "step.done"),
            *("next.evaluated", "token.enqueued", "token.claimed", "step.scheduled"),
        ]
        assert [one.position for one in events] == list(range(1, 9))
        assert [one.number for one in events] == [1, 2, 3, 4, None, None, None, None]
        assert {one.cause for one in events[4:]} == {4}
        assert await store.events_named("a", {"token.claimed", "task.started"}) == [events[1], events[6]]
        (found,) = await store.iteration_results("a", "run", 0, 9)
        assert codec.decode_fact(events[2].data) in list(facts_about("a", found, "run"))

    async def test_events_with_certain_names_are_read_by_position_and_in_pages(self, store: Store) -> None:
        names = ["token.enqueued", "token.claimed", "step.started", "token.enqueued", "token.discarded"]
        events = [entry_row("a", position, name) for position, name in enumerate(names, start=1)]
        await committed(store, entries=[*events, entry_row("b", 1, "token.enqueued")])
        wanted = {"token.enqueued", "token.discarded"}
        assert [event.position for event in await store.events_named("a", wanted)] == [1, 4, 5]
        assert [event.position for event in await store.events_named("a", wanted, after=1, limit=1)] == [4]
        assert await store.events_named("a", {"loop.done"}) == []


class ListingConformance:
    """Lists with several conditions, all of which must hold."""

    async def test_labels_and_words_are_terms_of_which_all_must_be_there(self, store: Store) -> None:
        statuses = {"1": "failed", "2": "failed", "3": "running"}
        rows = [execution_row(name, status=status) for name, status in statuses.items()]
        terms = [*terms_of(rows, "label:a=1"), *terms_of(rows[1:2], "word:x", "word:y"), *terms_of(rows[:1], "word:x")]
        tick = await committed(store, executions=rows, terms=terms)
        await store.commit(following(tick, terms=terms_of(rows[:1], "word:x")))

        async def found(*terms: str, statuses: tuple[str, ...] = (), limit: int = 9, before: str | None = None) -> str:
            return "".join(await listed(store, ListingFilter(statuses, None, terms), limit, before))

        assert await found("label:a=1") == "321"
        assert await found("label:a=1", "word:x") == await found("word:x", "label:a=1") == "21"
        assert await found("label:a=1", "word:x", "word:y") == "2"
        assert await found("label:a=1", statuses=("failed", "paused")) == "21"
        assert await found("label:a=1", limit=1, before="3") == "2"
        assert await found("label:a") == await found("word:x", "word:z") == ""

    async def test_a_term_that_is_gone_finds_nothing(self, store: Store) -> None:
        rows = [execution_row(str(n), status="running") for n in range(2)]
        tick = await committed(store, executions=rows, terms=terms_of(rows, "label:a=1", "label:b=1"))
        gone = terms_of(rows[1:], "label:a=1", "label:c=1")
        await store.commit(following(tick, terms=terms_of(rows, "label:a=2"), terms_gone=gone))
        for term, expected in {"label:a=1": "0", "label:b=1": "10", "label:a=2": "10", "label:c=1": ""}.items():
            assert "".join(await listed(store, ListingFilter(terms=[term]))) == expected

    async def test_several_statuses_are_one_list(self, store: Store) -> None:
        statuses = ("failed", "completed", "running", "failed", "completed")
        rows = [execution_row(str(n), status=status, path="p") for n, status in enumerate(statuses)]
        await committed(store, executions=rows)
        for path in (None, "p"):
            wanted = ListingFilter(("failed", "running", "failed"), path)
            assert await listed(store, wanted, 2) == ["3", "2"]
            assert await listed(store, wanted, 2, "2") == ["0"]

    async def test_a_path_finds_what_is_below_it(self, store: Store) -> None:
        paths = ("team/a", "team/a/x", "team/a/x/deep", "team/ab", "team/a-b", "team", "Team/a/x", "team/a/x")
        rows = [execution_row(str(n), status="completed", path=path) for n, path in enumerate(paths)]
        await committed(store, executions=rows, terms=terms_of(rows, "label:a=1"))
        for others in (ListingFilter(), ListingFilter(("failed", "completed")), ListingFilter(terms=("label:a=1",))):
            for path, expected in {"team/a": "7210", "team/a/x": "721", "team": "7543210", "team/b": ""}.items():
                assert "".join(await listed(store, replace(others, path=path))) == expected
        assert await listed(store, ListingFilter(path="team/a"), 2, "7") == ["2", "1"]

    async def test_a_scope_finds_what_is_below_any_of_its_paths(self, store: Store) -> None:
        paths = ("team/a", "team/a/x", "other/y", "team/ab", "b", "b/c", "team/a/x")
        rows = [execution_row(str(n), status="failed" if n % 2 else "completed", path=p) for n, p in enumerate(paths)]
        await committed(store, executions=rows, terms=[*terms_of(rows, "label:a=1"), *terms_of(rows[1:4], "word:x")])
        within = ListingFilter(scope=("b", "team/a"))
        assert "".join(await listed(store, within)) == "65410"
        assert await listed(store, within, 2, "6") == ["5", "4"]
        assert "".join(await listed(store, replace(within, statuses=("failed",)))) == "51"
        assert "".join(await listed(store, replace(within, terms=("label:a=1",)))) == "65410"
        assert "".join(await listed(store, replace(within, terms=("label:a=1", "word:x")))) == "1"
        assert await listed(store, replace(within, scope=("nowhere",))) == []

        async def counted(wanted: ListingFilter, *edges: str) -> set[tuple[str, str | None, int]]:
            return set(await store.tally_executions(wanted, TallyKey(edges), 9))

        everything = {("completed", "b", 1), ("failed", "b/c", 1), ("completed", "team/a", 1)}
        everything |= {("completed", "team/a/x", 1), ("failed", "team/a/x", 1)}
        assert await counted(within) == await counted(replace(within, terms=("label:a=1",))) == everything
        searched = replace(within, terms=("word:x",))
        assert await counted(searched, "0", "4", "7") == {("failed", "1", 1)}
        assert await counted(replace(within, statuses=("failed",)), "0", "4", "7") == {
            ("failed", "1", 1),
            ("failed", "2", 1),
        }

    async def test_a_time_is_that_of_the_start(self, store: Store) -> None:
        rows = [begun_at(AT_MS + hour * HOUR_MS, status="completed", path="p") for hour in range(4)]
        rows.append(begun_at(AT_MS + 2 * HOUR_MS - 5, started_ms=AT_MS + 2 * HOUR_MS, status="completed", path="p"))
        *ids, late = (row.execution_id for row in rows)
        await committed(store, executions=rows, terms=terms_of(rows, "label:a=1"))
        for others in (
            ListingFilter(),
            ListingFilter(("completed",)),
            ListingFilter((), "p"),
            ListingFilter(terms=("label:a=1",)),
        ):
            begun = replace(others, started_from_ms=AT_MS + 2 * HOUR_MS)
            ended = replace(others, started_before_ms=AT_MS + 2 * HOUR_MS)
            both = replace(begun, started_before_ms=AT_MS + 3 * HOUR_MS)
            assert await listed(store, begun) == [ids[3], ids[2], late]
            assert await listed(store, ended) == [ids[1], ids[0]]
            assert await listed(store, both) == [ids[2], late]

    async def test_a_duration_is_that_of_what_has_ended(self, store: Store) -> None:
        took = {"1": 9_000, "2": 10_000, "3": 99_000, "4": None}
        rows = [execution_row(name, finished_ms=ms and 1_000 + ms, path="p") for name, ms in took.items()]
        await committed(store, executions=rows, terms=terms_of(rows[1:3], "took:10"))
        for others in (
            ListingFilter(),
            ListingFilter(path="p"),
            ListingFilter(["running"]),
            ListingFilter(scope=("p",)),
        ):
            wanted = replace(others, terms=["took:10"], longer_than_ms=10_000)
            assert await listed(store, wanted) == ["3", "2"]
            assert await listed(store, replace(wanted, longer_than_ms=10_001)) == ["3"]

    async def test_a_range_of_times_that_executions_were_due_has_both_ends_whole(self, store: Store) -> None:
        due = ["2026-11-30T23:30:00+01:00", "2026-12-01T00:30:00+01:00", "2026-12-20T02:30:00+01:00", ""]
        rows = [execution_row(str(number), due=one, path="p") for number, one in enumerate(due)]
        terms = [term for row in rows for term in terms_of([row], *due_terms(row.due))]
        await committed(store, executions=rows, terms=terms)
        wanted = {
            "2026-12-01": ["1"],
            "2026-12": ["2", "1"],
            "2026": ["2", "1", "0"],
            "2026-11-30..2026-12-01": ["1", "0"],
            "2026-11-30T23:30..2026-12-01": ["1", "0"],
            "2026-11-30T23:31..2026-12-19": ["1"],
            "2026-12-02..": ["2"],
            "..2026-11": ["0"],
        }
        for text, found in wanted.items():
            chosen = due_range(text)
            for others in (ListingFilter(), ListingFilter(path="p"), ListingFilter(scope=("p",))):
                assert await listed(store, replace(others, terms=[chosen.term], due=chosen)) == found, text

    async def test_a_list_shows_labels_and_errors(self, store: Store) -> None:
        row = execution_row("a", error=b'{"kind":"sql"}', labels=b'{"team":"data"}')
        await committed(store, executions=[row])
        (found,) = await store.list_executions(ListingFilter(), 9, None)
        assert (found.error, found.labels, found.digest) == (row.error, row.labels, row.digest)


class KeyConformance:
    """Unique keys of executions: one holder, in the order of the claims."""

    async def test_the_first_claim_of_a_key_holds_it_whoever_asks_again(self, store: Store) -> None:
        assert await store.hold_key("p", "k", "a") == await store.hold_key("p", "k", "b") == "a"
        assert await store.hold_key("p", "k", "a") == "a"
        assert (await store.hold_key("q", "k", "b"), await store.hold_key("p", "l", "c")) == ("b", "c")
        assert await store.key_holder("p", "k") is None, "it has not started"
        await committed(store, executions=[execution_row("a", path="p", key="k")])
        assert await store.key_holder("p", "k") == await store.hold_key("p", "k", "b") == "a"
        (found,) = await store.list_executions(ListingFilter(), 9, None)
        assert found.key == "k"

    async def test_a_start_that_was_refused_leaves_its_key_to_the_next(self, store: Store) -> None:
        await store.hold_key("p", "k", "a")
        await committed(store, executions=[execution_row("a", path="p", status="failed", finished_ms=9)])
        assert await store.hold_key("p", "k", "b") == await store.hold_key("p", "k", "c") == "b"

    async def test_a_refused_start_that_is_deleted_leaves_its_key_to_the_next(self, store: Store) -> None:
        await store.hold_key("p", "k", "a")
        await committed(store, executions=[execution_row("a", path="p", status="failed", finished_ms=9)])
        assert await store.delete_execution("a")
        assert await store.hold_key("p", "k", "b") == "b"

    async def test_a_key_is_free_once_its_execution_is_deleted(self, store: Store) -> None:
        await store.hold_key("p", "k", "a")
        row = execution_row("a", path="p", key="k", status="completed", finished_ms=9)
        await committed(store, executions=[row], terms=terms_of([row], "key:k"))
        assert await listed(store, ListingFilter(terms=["key:k"])) == ["a"]
        assert await store.delete_execution("a")
        assert await store.hold_key("p", "k", "b") == "b"
        await store.delete_execution("b")


class TallyingConformance:
    """Counts of executions by status and something else."""

    async def test_executions_are_counted_between_ids(self, store: Store) -> None:
        statuses = ("completed", "failed", "completed", "running", "completed")
        rows = [execution_row(f"{n}{n}", status=status, path="p") for n, status in enumerate(statuses)]
        await committed(store, executions=rows, terms=terms_of(rows[:3], "label:a=1"))
        key = TallyKey(edges=("0", "1", "3", "4"))

        async def found(wanted: ListingFilter, limit: int = 9) -> set[tuple[str, str | None, int]]:
            return set(await store.tally_executions(wanted, key, limit))

        everything = {("completed", "1", 1), ("completed", "2", 1), ("failed", "2", 1), ("running", "3", 1)}
        assert await found(ListingFilter()) == await found(ListingFilter(path="p")) == everything
        assert await found(ListingFilter(["completed"])) == {("completed", "1", 1), ("completed", "2", 1)}
        tagged = {("completed", "1", 1), ("completed", "2", 1), ("failed", "2", 1)}
        assert await found(ListingFilter(terms=["label:a=1"])) == tagged
        assert await found(ListingFilter(terms=["label:a=1"], statuses=["failed"])) == {("failed", "2", 1)}
        assert await found(ListingFilter(started_from_ms=AT_MS)) == everything
        key = TallyKey(edges=("0", "4"))
        assert await found(ListingFilter(["completed"]), 1) == {("completed", "1", 1)}
        assert await found(ListingFilter(terms=["label:a=1"]), 2) == {("completed", "1", 1), ("failed", "1", 1)}
        by_path = await store.tally_executions(ListingFilter(["completed"]), TallyKey(), 2)
        assert by_path == [("completed", "p", 2)]
        assert await found(ListingFilter(path="q")) == set()

    async def test_executions_are_counted_by_path_and_by_label(self, store: Store) -> None:
        labels = (b'{"team":"a"}', b'{"team":"b","tier":1}', b'{"team":"a","tier":2}', b"{}")
        rows = [
            execution_row(str(n), status="failed" if n == 2 else "completed", path="p" if n else "q", labels=label)
            for n, label in enumerate(labels)
        ]
        await committed(store, executions=rows, terms=terms_of(rows, "word:x"))
        for wanted in (ListingFilter(), ListingFilter(terms=["word:x"])):
            by_path = await store.tally_executions(wanted, TallyKey(), 9)
            assert set(by_path) == {("completed", "q", 1), ("completed", "p", 2), ("failed", "p", 1)}
            by_label = await store.tally_executions(wanted, TallyKey(label="team"), 9)
            assert set(by_label) == {
                *(("completed", "a", 1), ("completed", "b", 1), ("failed", "a", 1), ("completed", None, 1)),
            }
        numbers = await store.tally_executions(ListingFilter(path="p"), TallyKey(label="tier"), 9)
        assert {one.key for one in numbers} == {"1", "2", None}


class DeletingConformance:
    """A deleted execution leaves nothing behind, except what others still need."""

    async def test_an_ended_execution_is_forgotten_whole(self, store: Store) -> None:
        gone = execution_row("a", finished_ms=9, error=b'{"kind":"sql","message":"no"}', labels=b'{"team":"data"}')
        rows = [gone, replace(gone, execution_id="b")]
        words = ("label:team=data", "word:sql", "word:no")
        tick = await committed(
            store,
            entries=[entry_row(name, position) for name in "ab" for position in range(1, 100)],
            executions=rows,
            requests=[RequestRow(request_id="r", execution_id=name, answer=b"{}", position=1) for name in "ab"],
            timers=[TimerRow(execution_id=name, timer_id="t", partition=0, due_ms=9, purpose="wait") for name in "ab"],
            inbox=[InboxRow(id=f"message-{name}", partition=0, execution_id=name, body=b"{}") for name in "ab"],
            object_uses=[ObjectUseRow(execution_id=name, key="child/x", store="nats", owner="child") for name in "ab"],
            terms=terms_of(rows, *words),
        )
        assert await store.delete_execution("a") is True
        assert await store.execution("a") is None
        assert await store.journal("a") == []
        assert await store.request("a", "r") is None
        assert await store.timers("a") == []
        assert [item.execution_id for item in await store.inbox([0], 9)] == ["b"]
        assert [use.execution_id for use in await store.objects_used_elsewhere("child")] == ["b"]
        for term in words:
            assert await listed(store, ListingFilter(terms=(term,))) == ["b"]
        assert len(await store.journal("b")) == 99
        await store.commit(following(tick, executions=[gone]))
        assert await listed(store, ListingFilter(terms=("word:sql",)), 9, "b") == []

    async def test_one_that_has_not_ended_is_not_deleted(self, store: Store) -> None:
        await committed(store, entries=[entry_row("a", 1)], executions=[execution_row("a")])
        assert [await store.delete_execution("a"), await store.delete_execution("b")] == [False, False]
        assert await store.execution("a") == execution_row("a")
        assert len(await store.journal("a")) == 1

    async def test_an_original_names_the_reruns_that_read_it(self, store: Store) -> None:
        rows = [
            execution_row("a", finished_ms=1),
            execution_row("again", looks_into="a"),
            execution_row("given-up", looks_into="a", finished_ms=1),
            execution_row("other", looks_into="b"),
        ]
        await committed(store, executions=rows)
        assert await store.looked_into_by("a") == ["again"]

    async def test_deleting_begins_with_the_first_entry_of_one_that_has_ended(self, store: Store) -> None:
        events = [entry_row(name, position) for name in "ab" for position in (1, 2)]
        rows = [execution_row("a", finished_ms=1), execution_row("b")]
        await committed(store, entries=events, executions=rows)
        for name in ("a", "a", "b", "nobody"):
            await store.begin_deleting(name)
        assert [event.position for event in await store.journal("a")] == [2]
        assert [event.position for event in await store.journal("b")] == [1, 2]
        assert await store.delete_execution("a") is True

    async def test_a_long_journal_goes_whole(self, store: Store) -> None:
        events = [entry_row("a", position) for position in range(1, 12_001)]
        await committed(store, entries=events, executions=[execution_row("a", finished_ms=1)])
        assert await store.delete_execution("a") is True
        assert await store.journal("a") == []

    async def test_results_of_deleted_executions_are_kept_for_their_last_user(self, store: Store) -> None:
        uses = [
            ObjectUseRow(execution_id="a", key="child/x", store="nats", owner="child"),
            ObjectUseRow(execution_id="a", key="child/y", store="nats", owner="child"),
            ObjectUseRow(execution_id="b", key="child/y", store="nats", owner="child"),
            ObjectUseRow(execution_id="a", key="living/z", store="nats", owner="living"),
        ]
        names = ("a", "b", "child", "living")
        rows = [execution_row(name, finished_ms=1) for name in names]
        await committed(store, entries=[entry_row(name, 1) for name in names], executions=rows, object_uses=uses)
        assert await store.objects_kept_for("a") == []
        await store.delete_execution("child")
        assert await store.objects_kept_for("a") == uses[:1]
        await store.delete_execution("b")
        assert await store.objects_kept_for("a") == uses[:2]

    async def test_of_two_that_are_deleted_at_once_each_deletes_what_both_hold(self, store: Store) -> None:
        uses = [ObjectUseRow(execution_id=name, key="child/x", store="nats", owner="child") for name in ("a", "b")]
        names = ("a", "b", "child")
        rows = [execution_row(name, finished_ms=1) for name in names]
        await committed(store, entries=[entry_row(name, 1) for name in names], executions=rows, object_uses=uses)
        await store.begin_deleting("a")
        assert await store.objects_used_elsewhere("child") == uses[1:]
        assert await store.objects_kept_for("a") == []
        for name in ("b", "child"):
            await store.begin_deleting(name)
        assert await store.objects_used_elsewhere("child") == []
        assert [await store.objects_kept_for(use.execution_id) for use in uses] == [[use] for use in uses]

    async def test_the_parts_of_a_file_go_with_the_last_execution_that_holds_it(self, store: Store) -> None:
        file, other = "child/command/run/0", "child/command/run/1/parts-1"
        outcome = Outcome("ok", codec.payload_of([{"key": f"{file}/parts-2"}, {"key": other}]))
        facts = [
            FACTS["token.enqueued"],
            TaskHeartbeat("task", 1, key=f"{file}/parts"),
            TaskProcessed("task", 1, outcome, "continue"),
        ]
        entries = [entry_row("child", at, data=codec.encode([fact])) for at, fact in enumerate(facts, start=1)]
        rows = [execution_row(name, finished_ms=1) for name in ("parent", "child")]
        use = ObjectUseRow(execution_id="parent", key=f"{file}/parts-2", store="nats", owner="child")
        await committed(store, entries=[*entries, entry_row("parent", 1)], executions=rows, object_uses=[use])
        deleted: list[str] = []

        async def delete_objects(keys: Sequence[str]) -> None:
            deleted.extend(key for key in keys if named_by_logs_key(key) is None)

        await delete_execution(store, delete_objects, "child")
        assert deleted == [other]
        await delete_execution(store, delete_objects, "parent")
        assert deleted[1:] == [f"{file}/parts-2"]
