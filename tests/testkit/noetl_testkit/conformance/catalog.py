"""Conformance of :class:`~noetl_stream.ports.stores.catalog.Catalog`, as tests to inherit.

A test class inherits :class:`CatalogConformance`; the module or its ``conftest.py`` provides two fixtures:

``catalog``
    An empty catalog.
``store``
    The store in which executions find the catalog's sources.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from noetl_stream.model.ids import digest_of
from noetl_stream.ports.stores.catalog import (
    SEARCHED_CHARACTERS,
    Catalog,
    CatalogEntry,
    KindTaken,
    VersionAmbiguous,
    VersionTaken,
)
from noetl_stream.ports.stores.store import Store
from noetl_testkit.conformance.store_rows import execution_row, taken, tick_of
from noetl_testkit.waiting import expect_error

PATH = "demo/pages"
BUNDLES = [f"demo@{digit * 64}" for digit in "012"]


def naming(bundle: str) -> str:
    """A text that names a bundle."""
    return f"a: 1\nbundle: {bundle}\n"


def entry_of(source: str, path: str = PATH, version: str | None = None, **changes: Any) -> CatalogEntry:
    """An entry to register."""
    entry = CatalogEntry(
        path=path,
        version=version,
        revision=0,
        digest=digest_of(source),
        name="pages",
        description=None,
        labels={},
        tags=[],
        registered_ms=1_000,
        registered_by="ada",
    )
    return replace(entry, **changes)


async def registered(
    catalog: Catalog, source: str, path: str = PATH, version: str | None = None, **changes: Any
) -> CatalogEntry:
    """The catalog's entry for ``source``, registered."""
    return await catalog.register(entry_of(source, path, version, **changes), source)


class CatalogConformance:
    async def test_an_entry_comes_back_as_it_was_given_with_a_revision(self, catalog: Catalog) -> None:
        given = entry_of(
            "a: 1", version="1.0", description="Reads pages", labels={"tier": 1, "team": "data"}, tags=["etl", "http"]
        )
        kept = await catalog.register(given, "a: 1")
        assert kept == replace(given, revision=1)
        assert await catalog.resolve(PATH, None) == kept
        assert await catalog.versions(PATH) == [kept]

    async def test_a_path_has_one_kind(self, catalog: Catalog) -> None:
        kept = await registered(catalog, "a: 1", kind="Schema")
        assert (await catalog.versions(PATH))[0].kind == kept.kind == "Schema"
        await expect_error(KindTaken, registered(catalog, "b: 2"))
        await catalog.delete(PATH, None)
        assert (await registered(catalog, "b: 2")).kind == "Playbook"

    async def test_the_source_is_kept_where_executions_find_it(self, catalog: Catalog, store: Store) -> None:
        source = "a: 1\r\n# ünïcode\n"
        await registered(catalog, source, version="1.0")
        row = await store.playbook(digest_of(source))
        assert row is not None
        assert (row.source, row.path, row.version) == (source, PATH, "1.0")

    async def test_without_a_version_each_new_text_is_the_next_revision(self, catalog: Catalog) -> None:
        assert [(await registered(catalog, text)).revision for text in ("a", "b", "a")] == [1, 2, 3]
        assert [entry.digest for entry in await catalog.versions(PATH)] == [digest_of(text) for text in ("a", "b", "a")]

    async def test_the_same_text_again_changes_nothing(self, catalog: Catalog) -> None:
        first = await registered(catalog, "a")
        assert await registered(catalog, "a", registered_ms=9_000, registered_by="bob") == first
        one = await registered(catalog, "b", version="1.0")
        two = await registered(catalog, "c", version="2.0")
        assert await registered(catalog, "b", version="1.0", registered_ms=9_000) == one
        assert await catalog.versions(PATH) == [two, one, first]

    async def test_a_version_never_changes_its_text(self, catalog: Catalog) -> None:
        kept = await registered(catalog, "a", version="1.0")
        error = await expect_error(VersionTaken, registered(catalog, "b", version="1.0"))
        assert f"{PATH}@1.0 is registered with a different text" in error.message
        assert "another metadata.version" in (error.hint or "")
        assert await catalog.versions(PATH) == [kept]

    async def test_paths_count_for_themselves(self, catalog: Catalog) -> None:
        await registered(catalog, "a", "demo/one", "1.0")
        other = await registered(catalog, "b", "demo/two", "1.0")
        assert other.revision == 1
        assert await registered(catalog, "a", "demo/two") == replace(
            other, version=None, revision=2, digest=digest_of("a")
        )

    async def test_many_at_once_get_a_revision_each(self, catalog: Catalog) -> None:
        kept = await asyncio.gather(*(registered(catalog, f"a: {number}") for number in range(8)))
        assert sorted(entry.revision for entry in kept) == list(range(1, 9))
        assert sorted(await catalog.versions(PATH), key=attrgetter("revision")) == sorted(
            kept, key=attrgetter("revision")
        )

    async def test_the_same_text_many_times_at_once_is_one_entry(self, catalog: Catalog) -> None:
        for version in (None, "1.0"):
            kept = await asyncio.gather(*(registered(catalog, f"v: {version}", version=version) for _ in range(8)))
            assert len({entry.revision for entry in kept}) == 1
        assert len(await catalog.versions(PATH)) == 2

    async def test_one_of_two_concurrent_texts_for_a_version_is_refused(self, catalog: Catalog) -> None:
        tried = await asyncio.gather(
            *(registered(catalog, f"a: {number}", version="1.0") for number in range(4)), return_exceptions=True
        )
        kept = [one for one in tried if isinstance(one, CatalogEntry)]
        assert await catalog.versions(PATH) == kept
        assert [type(one) for one in tried if one not in kept] == [VersionTaken] * 3

    async def test_the_latest_is_what_was_registered_last(self, catalog: Catalog) -> None:
        assert await catalog.resolve(PATH, None) is None
        await registered(catalog, "a", version="2.0")
        last = await registered(catalog, "b", version="1.0")
        assert await catalog.resolve(PATH, None) == last

    async def test_an_entry_answers_to_its_version_and_to_its_revision(self, catalog: Catalog) -> None:
        first = await registered(catalog, "a", version="1.0")
        second = await registered(catalog, "b")
        for spelling, entry in (("1.0", first), ("1", first), ("#1", first), ("2", second), ("#2", second)):
            assert await catalog.resolve(PATH, spelling) == entry
        assert (first.known_as, second.known_as) == ("1.0", "2")

    async def test_an_unknown_version_resolves_to_nothing(self, catalog: Catalog) -> None:
        await registered(catalog, "a", version="1.0")
        for spelling in ("2", "01", "#01", "1.00", "", "#", "-1", "1" * 40, "²"):
            assert await catalog.resolve(PATH, spelling) is None
        assert await catalog.resolve("demo", "1") is None

    async def test_a_version_that_is_another_entrys_revision_is_ambiguous(self, catalog: Catalog) -> None:
        first = await registered(catalog, "a", version="2")
        second = await registered(catalog, "b")
        error = await expect_error(VersionAmbiguous, catalog.resolve(PATH, "2"))
        assert f"`{PATH}@#2`, `{PATH}@#1`" in (error.hint or "")
        assert [await catalog.resolve(PATH, f"#{number}") for number in (1, 2)] == [first, second]

    async def test_a_version_that_is_its_own_revision_is_not_ambiguous(self, catalog: Catalog) -> None:
        entry = await registered(catalog, "a", version="1")
        assert await catalog.resolve(PATH, "1") == entry

    async def test_the_latest_of_each_path_by_path(self, catalog: Catalog) -> None:
        await registered(catalog, "old", "b/two")
        kept = [await registered(catalog, text, path) for path, text in (("b/two", "new"), ("a", "x"), ("b/One", "y"))]
        assert await catalog.latest("", {}, 10, None) == sorted(kept, key=attrgetter("path"))
        assert [entry.path for entry in await catalog.latest("b/", {}, 10, None)] == ["b/One", "b/two"]
        assert await catalog.latest("b%", {}, 10, None) == []
        scoped = await catalog.latest("", {}, 10, None, scope=("b/two", "a"))
        assert [entry.path for entry in scoped] == ["a", "b/two"]
        await registered(catalog, "later", "a/job", kind="Schedule")
        for kinds, paths in ((["Schedule"], ["a/job"]), (["Playbook", "Schema"], ["a", "b/One", "b/two"])):
            assert [entry.path for entry in await catalog.latest("", {}, 10, None, kinds=kinds)] == paths

    async def test_page_by_page(self, catalog: Catalog) -> None:
        for path in "abcde":
            await registered(catalog, path, path)
        assert [entry.path for entry in await catalog.latest("", {}, 2, None)] == ["a", "b"]
        assert [entry.path for entry in await catalog.latest("", {}, 2, "b")] == ["c", "d"]

    async def test_labels_are_compared_as_text_and_all_must_hold(self, catalog: Catalog) -> None:
        labels: dict[str, Any] = {"tier": 1, "prod": True, "share": 0.5, "team": "data", "none": None}
        await registered(catalog, "a", "a", labels=labels)
        await registered(catalog, "b", "b", labels={"tier": "1"})

        async def found(**wanted: str) -> list[str]:
            return [entry.path for entry in await catalog.latest("", wanted, 10, None)]

        assert await found(tier="1") == ["a", "b"]
        assert await found(tier="1", prod="true", share="0.5", team="data") == ["a"]
        assert await found(tier="1", team="other") == []
        assert await found(none="null") == await found(absent="") == []

    async def test_words_are_found_anywhere_and_all_must_be_there(self, catalog: Catalog) -> None:
        labels: dict[str, Any] = {"team": "Sales", "tier": 1, "none": None}
        await registered(catalog, "a", "eu/report", name="Nightly", description="Ärger mit 100% of it", tags=["x-ray"])
        await registered(catalog, "b", "us/Report", labels=labels)

        async def found(*words: str) -> list[str]:
            return [entry.path for entry in await catalog.latest("", {}, 10, None, words=words)]

        assert await found() == await found("report") == ["eu/report", "us/Report"]
        assert await found("night", "u/r") == await found("100%") == await found("x-ray") == ["eu/report"]
        assert await found("team=sales", "tier=1") == ["us/Report"]
        assert await found("report", "elsewhere") == await found("none=") == await found("100_") == []
        assert await found("Ärger".lower()) == [] and await found("rger") == ["eu/report"]
        one = await catalog.latest("", {}, 1, "eu/report", words=["report"])
        assert [entry.path for entry in one] == ["us/Report"]

    async def test_no_more_than_the_beginning_of_a_description_is_searched(self, catalog: Catalog) -> None:
        await registered(catalog, "a", description=f"{'first ':>{SEARCHED_CHARACTERS}}last")
        assert len(await catalog.latest("", {}, 10, None, words=["first"])) == 1
        assert await catalog.latest("", {}, 10, None, words=["last"]) == []

    async def test_labels_are_those_of_the_latest(self, catalog: Catalog) -> None:
        await registered(catalog, "a", labels={"team": "old"})
        await registered(catalog, "b", labels={"team": "new"})
        assert await catalog.latest("", {"team": "old"}, 10, None) == []
        assert len(await catalog.latest("", {"team": "new"}, 10, None)) == 1

    async def test_an_entry_goes_and_the_others_stay(self, catalog: Catalog, store: Store) -> None:
        one, two = [await registered(catalog, text, version=text) for text in ("1.0", "2.0")]
        assert await catalog.delete(PATH, two.revision) == 1
        assert await catalog.versions(PATH) == [one]
        assert await catalog.resolve(PATH, None) == one
        assert await catalog.resolve(PATH, "2.0") is None
        assert await store.playbook(two.digest) is not None, "executions may run it"

    async def test_a_path_goes_with_all_its_entries(self, catalog: Catalog) -> None:
        for text in ("a", "b"):
            await registered(catalog, text)
        other = await registered(catalog, "a", "demo/other")
        assert await catalog.delete(PATH, None) == 2
        assert await catalog.latest("", {}, 10, None) == [other]
        assert await catalog.versions(PATH) == []

    async def test_an_unknown_entry_is_not_deleted(self, catalog: Catalog) -> None:
        kept = await registered(catalog, "a")
        assert [await catalog.delete(PATH, 2), await catalog.delete("demo/none", None)] == [0, 0]
        assert await catalog.versions(PATH) == [kept]

    async def test_a_revision_is_not_given_twice(self, catalog: Catalog) -> None:
        for text in ("a", "b", "c"):
            await registered(catalog, text)
        await catalog.delete(PATH, 3)
        await catalog.delete(PATH, 1)
        assert (await registered(catalog, "d")).revision == 4
        await catalog.delete(PATH, None)
        assert (await registered(catalog, "a")).revision == 5

    async def test_a_version_that_was_deleted_can_be_registered_with_another_text(self, catalog: Catalog) -> None:
        first = await registered(catalog, "a", version="1.0")
        await catalog.delete(PATH, first.revision)
        assert (await registered(catalog, "b", version="1.0")).digest == digest_of("b")

    async def test_a_bundle_stays_while_the_latest_text_a_named_version_or_an_execution_names_it(
        self, catalog: Catalog, store: Store
    ) -> None:
        for bundle in BUNDLES:
            assert await catalog.want_bundle(bundle, 1_000)
        of_execution, of_version, latest = BUNDLES
        await registered(catalog, naming(of_execution))
        await registered(catalog, naming(of_version), version="1.0")
        await registered(catalog, naming(latest))
        row = execution_row("run-1", path=PATH, digest=digest_of(naming(of_execution)), finished_ms=2_000)
        await store.commit(tick_of("one", await taken(store), executions=[row]))
        assert await catalog.unwanted_bundles(5_000, 5_000) == []
        await store.begin_deleting("run-1")
        await store.delete_execution("run-1")
        assert await catalog.unwanted_bundles(5_500, 5_000) == [], "it was wanted a moment ago"
        assert await catalog.unwanted_bundles(9_000, 5_500) == [of_execution]
        await catalog.delete(PATH, None)
        assert sorted(await catalog.unwanted_bundles(9_500, 9_500)) == BUNDLES

    async def test_a_bundle_that_is_being_deleted_is_stored_again_once_it_is_gone(self, catalog: Catalog) -> None:
        bundle = BUNDLES[0]
        assert await catalog.want_bundle(bundle, 1_000)
        assert await catalog.want_bundle(bundle, 3_000)
        assert await catalog.want_bundle(bundle, 2_000), "clocks differ"
        await catalog.forget_bundle(bundle)
        assert await catalog.unwanted_bundles(4_000, 3_000) == []
        assert await catalog.unwanted_bundles(4_000, 3_001) == [bundle]
        assert not await catalog.want_bundle(bundle, 5_000)
        assert await catalog.unwanted_bundles(5_000, 1_000) == [bundle], "a deletion that was interrupted goes on"
        await catalog.forget_bundle(bundle)
        assert await catalog.want_bundle(bundle, 6_000)
        assert await catalog.unwanted_bundles(7_000, 5_000) == []
