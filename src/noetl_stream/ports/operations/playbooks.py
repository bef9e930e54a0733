"""The catalog as people use it (LANGUAGE §9, §12 *playbook*)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from noetl_stream.model.envelope import Time
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.reading.graphs import GraphDocument
from noetl_stream.ports.operations.verbs import (
    Cursor,
    Document,
    DocumentPage,
    Inner,
    ItemsBelow,
    Labels,
    Limit,
    Named,
    OpenDocument,
    PlaybookPath,
    Prefix,
    TextName,
    document_from,
    list_of,
    verb,
)


class DurationsDocument(Document, frozen=True):
    """Percentiles of durations, in seconds: each is one that was measured (the nearest rank)."""

    count: int
    p50: float
    p90: float
    p99: float
    longest: float


class StepStatisticsDocument(Document, frozen=True):
    """The runs of a step that ended ``done`` or ``failed``. ``failure_rate``: from 0 to 1. ``duration`` is from the
    claim of the token to the end, waits included.
    """

    step: str
    done: int
    failed: int
    failure_rate: float
    duration: DurationsDocument


class StatisticsBucketDocument(Document, frozen=True):
    """Executions that started from ``start`` on and before the next bucket, by status."""

    start: Time
    statuses: dict[str, int]
    duration: DurationsDocument | None


class PlaybookStatisticsDocument(Document, frozen=True):
    """Statistics of the executions of a path, all versions, that started from ``since`` on.

    Attributes:
        until: When it was asked.
        executions: How many are counted: the newest.
        is_sample: Whether there may be older ones, which are not counted.
        statuses: Executions by status.
        failure_rate: Failed ones among those that completed or failed, from 0 to 1; null if there are none.
        duration: Of those that completed; null if there are none.
        buckets: The same over time, in stretches of one length.
        sampled_executions: How many journals, of the newest that have ended, were read for ``steps``.
        steps: In the order in which they first ran in the newest of them.
    """

    path: str
    since: Time
    until: Time
    executions: int
    is_sample: bool
    statuses: dict[str, int]
    failure_rate: float | None
    duration: DurationsDocument | None
    buckets: list[StatisticsBucketDocument]
    sampled_executions: int
    steps: list[StepStatisticsDocument]


class PlaybookDocument(Document, frozen=True, kw_only=True):
    """A registered version of a playbook, or of a document of another ``kind``.

    ``known_as`` is what follows the ``@``: its version, or its revision if it has none.
    """

    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: dict[str, Any]
    tags: list[str]
    registered_by: str
    registered: Time
    known_as: str
    kind: str = "Playbook"


class LastExecutionDocument(Document, frozen=True):
    """The execution of a playbook, of any of its versions, that started last."""

    execution_id: str
    status: ExecutionStatus
    started: Time
    finished: Time | None


class ListedPlaybookDocument(PlaybookDocument, frozen=True, kw_only=True):
    """``last`` is null if none has started, or it was not asked for."""

    last: LastExecutionDocument | None = None


class RegisteredDocument(PlaybookDocument, frozen=True):
    """``created``: whether it is new."""

    created: bool


class PlaybookWithSourceDocument(PlaybookDocument, frozen=True):
    source: str

    @property
    def entry(self) -> PlaybookDocument:
        """All but the text."""
        return document_from(PlaybookDocument, self)


class PlaybookPage(DocumentPage[ListedPlaybookDocument], frozen=True):
    """The latest entry of each path, by path."""


class CheckedDocument(Document, frozen=True):
    """The diagnostics of a text. ``path``, ``version`` and ``digest`` are null if it has errors. ``graph`` is null
    unless it was asked for, and if there is no step to draw; errors or not, it has what can be read.
    """

    ok: bool
    path: str | None
    version: str | None
    digest: str | None
    diagnostics: list[Diagnostic]
    graph: GraphDocument | None = None


class ChangedNamesDocument(Document, frozen=True):
    """Names that only the second text has, only the first has, and that mean something else in the second."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class ChangedArcDocument(Document, frozen=True):
    """``change`` is ``added``, ``removed`` or ``changed``. ``was``: the ``when`` of the first text; both are null
    without a guard.
    """

    source: str = msgspec.field(name="from")
    to: str
    change: Literal["added", "removed", "changed"]
    when: str | None
    was: str | None


class PlaybookDiffDocument(Document, frozen=True):
    """What differs between two texts. Layout and comments do not count as changes of steps and arcs.

    Attributes:
        same: Whether the texts are equal.
        before: The entry of the first text; null if there is no earlier one.
        after: The entry of the second text; null if it is not registered.
        text: A unified diff; empty if the texts are equal.
    """

    same: bool
    before: PlaybookDocument | None
    after: PlaybookDocument | None
    text: str
    steps: ChangedNamesDocument
    arcs: list[ChangedArcDocument]


class PlaybookSchemaDocument(OpenDocument, frozen=True):
    """A JSON Schema, draft 2020-12."""


class PlanDocument(OpenDocument, frozen=True):
    """What a playbook compiles to: for people; its form may change with a release."""


class BundleDocument(Document, frozen=True):
    """A stored bundle: the Python packages of a project. ``name`` is what playbooks have as ``bundle``."""

    name: str
    files: int
    bytes: int


class StoredBundleDocument(BundleDocument, frozen=True):
    """A bundle with its bytes: a zip file, in base64."""

    content: str


WORDS: Final = "What is in the path, name, description, tags or labels: each word anywhere, at most eight."
COUNTED: Final = (
    "Of at most 10,000 executions, the newest. For steps, journals of at most 200 of those that have ended are read, "
    "the newest, up to 20,000 events."
)
BUNDLED: Final = "`path` is that of the project. Stored again, the same bytes change nothing."
KEPT: Final = "Executions keep their text."

CatalogKind = Literal["Playbook", "Schedule", "Trigger", "Schema"]
SchemaKind = Literal["Playbook", "Schedule", "Trigger"]

Version = Annotated[
    str | None, Meta(max_length=256, description="`metadata.version`, or a revision; the latest without it.")
]


class Playbooks(Protocol):
    """A version of a playbook is named by ``metadata.version``, by its revision, or by ``None`` for the latest."""

    @verb("POST", "/playbooks/check", "checkPlaybook", scope="special", reads=True)
    async def check(
        self,
        source: bytes,
        name: TextName,
        paths: Annotated[Sequence[str], Inner] = (),
        *,
        graph: Annotated[bool, Meta(description="Whether to answer its steps and arcs, too.")] = False,
    ) -> CheckedDocument:
        """Check a text; nothing is stored.

        Args:
            paths: Where schemas that it names are looked up; empty: everywhere.
        """

    @verb("POST", "/playbooks", scope="special")
    async def register(self, source: bytes, name: str, by: str) -> RegisteredDocument:
        """The entry.

        Raises:
            PlaybookRefused: it has errors.
            Conflict: the version is registered with another text; or ``by`` may not start what a schedule starts.
            UsageError: the playbook that a schedule starts is not registered.
        """

    @verb("POST", "/playbooks/{path}/bundle", "putBundle", "author", description=BUNDLED, sends="zip")
    async def put_bundle(self, path: PlaybookPath, source: bytes, by: str) -> BundleDocument:
        """Store the Python packages of a project.

        Raises:
            UsageError: the zip file is not as a bundle is.
        """

    @verb("GET", "/playbooks/{path}/bundle", "getBundle", heavy=True)
    async def get_bundle(
        self,
        path: PlaybookPath,
        digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="What its name has after the `@`.")],
    ) -> StoredBundleDocument:
        """Get the Python packages of a project.

        Raises:
            NotFound: the project has stored no such bundle, or it is damaged.
        """

    @verb("GET", "/playbooks", "listPlaybooks", scope="items", listed_first=("limit", "cursor"))
    async def page(
        self,
        prefix: Prefix,
        labels: Labels,
        limit: Limit,
        cursor: Cursor | None,
        *,
        words: Annotated[str, Meta(max_length=256, description=WORDS)] = "",
        kinds: Annotated[
            Collection[CatalogKind], Named("kind"), Meta(max_length=4, description="What they may be.")
        ] = (),
        last: Annotated[bool, Meta(description="Whether to answer the execution of each that started last.")] = False,
        scope: ItemsBelow = (),
    ) -> PlaybookPage:
        """List playbooks by path, the latest version of each."""

    @verb("GET", "/playbooks/{path}", "getPlaybook")
    async def get(self, path: PlaybookPath, version: Version) -> PlaybookWithSourceDocument:
        """Get a playbook with its text.

        Raises:
            NotFound: nothing is registered there; the hint lists what is.
        """

    @verb("GET", "/playbooks/{path}/plan", "getPlan", document=PlanDocument)
    async def plan(self, path: PlaybookPath, version: Version) -> dict[str, Any]:
        """Get the plan it compiles to."""

    @verb("GET", "/playbooks/{path}/graph", "getGraph")
    async def graph(
        self,
        path: PlaybookPath,
        version: Version,
        digest: Annotated[
            str | None, Meta(pattern="^[0-9a-f]{64}$", description="Of a text of this path, in place of a version.")
        ] = None,
    ) -> GraphDocument:
        """Get its steps and arcs."""

    @verb(
        "GET",
        "/playbooks/{path}/versions",
        "listVersions",
        document=list_of("PlaybookVersions", PlaybookDocument, "Newest first."),
    )
    async def versions(self, path: PlaybookPath) -> list[PlaybookDocument]:
        """List every version of a playbook.

        The newest is first.
        """

    @verb("GET", "/playbooks/{path}/diff", "diffVersions")
    async def diff(
        self,
        path: PlaybookPath,
        before: Annotated[
            str | None, Meta(max_length=256, description="A version; without it the one registered before `after`.")
        ],
        after: Annotated[str | None, Meta(max_length=256, description="A version; without it the latest.")],
    ) -> PlaybookDiffDocument:
        """Compare two versions: text, steps and arcs."""

    @verb("POST", "/playbooks/{path}/diff", "diffText", reads=True, listed_first=("name",))
    async def diff_text(
        self,
        path: PlaybookPath,
        before: Annotated[str | None, Meta(max_length=256, description="A version; without it the latest.")],
        source: bytes,
        name: TextName,
    ) -> PlaybookDiffDocument:
        """Compare a text with a version; nothing is stored.

        The text may have errors.

        Raises:
            UsageError: the text is not UTF-8.
        """

    @verb("GET", "/playbooks/{path}/statistics", "getStatistics", description=COUNTED)
    async def statistics(
        self,
        path: PlaybookPath,
        since_ms: Annotated[
            int | None, Meta(description="Of executions that started then or later; without it of seven days.")
        ] = None,
    ) -> PlaybookStatisticsDocument:
        """Get how its executions ended and how long they and its steps took.

        All versions count.
        """

    @verb("GET", "/schema", "getSchema", scope="everyone", document=PlaybookSchemaDocument)
    async def schema(
        self, kind: Annotated[SchemaKind, Meta(description="Of which documents.")] = "Playbook"
    ) -> dict[str, Any]:
        """Get the JSON Schema of a kind of documents; that of playbooks has the tool kinds there are."""

    @verb("DELETE", "/playbooks/{path}", "deletePlaybook", "author", refuses=("conflict",), description=KEPT)
    async def delete(self, path: PlaybookPath, version: Version, by: str) -> None:
        """Delete a version, or without one all of them, from the catalog.

        Raises:
            Conflict: it is a schedule or a trigger: their own `delete` stops it, too.
        """
