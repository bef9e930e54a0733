"""The how-to guides, followed on stores of one's own with accounts: two servers, three workers, a gateway."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from guide_stages import GUIDES, PAGES, Stage, typed_on
from journey_stack import ROOT
from own_stage import OwnStage, own_stage
from walkthrough import Step, Walkthrough, free_ports, steps

from nats_process import NatsCluster
from noetl_stream.hosting.nats_seeds import write_seeds
from object_storage import ObjectStorage, object_storage
from warm_program import noetl

pytestmark = [
    pytest.mark.verify,
    pytest.mark.xdist_group("journeys"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="some guides use curl, which is not installed"),
]

WITH_SEEDS = {"own-servers.md", "upgrade.md"}
"""Pages that work in the folder in which the seeds are."""

SCHEDULED = {"17 2 * * * ": "", "47 * * * * ": ""}
"""What stands before a command in the table of cron."""

BUCKETS = {"s3://backups/": "s3://bucket/", "s3://archive/": "s3://bucket/archive/"}
ON_OWN = sorted(
    page.name for page in GUIDES.glob("*.md") if Stage.OWN in PAGES.get(page.name, ()) or typed_on(Stage.OWN, page.name)
)


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as running:
        yield running


@pytest.fixture(scope="module")
def own(storage: ObjectStorage) -> Iterator[OwnStage]:
    """One for all pages; each leaves it at work."""
    with own_stage(storage.variables()) as stage:
        stage.command("credential", "set", "guides.local_postgres", "--kind", "postgres", "--set", f"dsn={stage.dsn}")
        yield stage


@pytest.fixture
def fresh(storage: ObjectStorage) -> Iterator[OwnStage]:
    """One for a test that stops servers and loses stores."""
    with own_stage(storage.variables()) as stage:
        yield stage


def steps_on(stage: Stage, name: str) -> list[Step]:
    """The steps of a page on a stage: all, or what stands in ``text`` alone, if another test follows the page."""
    found = steps((GUIDES / name).read_text(), typed_on(stage, name))
    if stage in PAGES.get(name, ()):
        return [step for step in found if not step.installs]
    return [step for step in found if step.is_text]


def reader_of(stage: OwnStage, name: str) -> Walkthrough:
    """A reader in a folder of their own on this stage."""
    folder = Path(tempfile.mkdtemp(prefix="reader-", dir=stage.folder))
    shutil.copytree(ROOT / "playbooks", folder / "playbooks", ignore=shutil.ignore_patterns("__pycache__"))
    if name in WITH_SEEDS:
        for made in ("nats-seeds", "nats-accounts.conf"):
            (folder / made).symlink_to(stage.folder / made)
    second, airports, travel = free_ports(3)
    for file in filter(Path.is_file, (folder / "playbooks").rglob("*")):
        file.write_text(file.read_text().replace("8099", airports).replace("8098", travel))
    elsewhere = {"8080": str(stage.gateway_port), "8081": second, "8099": airports, "8098": travel}
    elsewhere |= {**SCHEDULED, **BUCKETS, "~/.noetl": str(stage.home), "backup restore ": "backup restore --yes "}
    elsewhere |= {
        'json.loads((home / "stack.json").read_text())["servers"]["nats"]["url"]': repr(stage.url),
        'home / "nats" / "publisher.nk"': repr(str(stage.folder / "nats-seeds" / "publisher.nk")),
    }
    if name == "page-an-api.md":  # which says so
        elsewhere["local_postgres"] = "guides.local_postgres"
    return Walkthrough(folder, {**stage.environment, "HOME": str(folder)}, elsewhere)


@pytest.mark.parametrize("name", ON_OWN)
def test_a_guide_does_what_it_says_on_own_stores_with_accounts(name: str, own: OwnStage) -> None:
    with reader_of(own, name) as reader:
        for step in steps_on(Stage.OWN, name):
            reader.do(step)
    assert own.are_at_work


def test_a_pool_that_nobody_has_made_is_joined_as_the_messages_say(fresh: OwnStage) -> None:
    """`worker --pool late` never joined, and did not say why."""
    refused = noetl("worker", "--pool", "late", cwd=fresh.folder, **fresh.environment)
    assert refused.returncode == 2
    (command,) = re.findall(r"`noetl-stream (nats accounts .+?)`", refused.stderr)
    (fresh.folder / "nats-accounts.conf").write_text(fresh.command(*command.split()))
    unknown = noetl("worker", "--pool", "late", cwd=fresh.folder, **fresh.environment)
    assert unknown.returncode == 3
    assert "reload it twice" in unknown.stderr
    fresh.reload_nats()
    fresh.reload_nats()
    fresh.start_role("late", "worker", "--pool", "late")
    assert "late" in fresh.command("pool", "list")


def follow(stage: OwnStage, name: str, step: Step, **instead: str) -> None:
    """Does what a step of a page says, with these names in place of its own."""
    text = step.text
    for shown, here in instead.items():
        text = text.replace(shown, here)
    with reader_of(stage, name) as reader:
        reader.do(replace(step, text=text))


def check_whole(stage: OwnStage) -> None:
    """What was there before is there, new work ends, and the stores agree."""
    stage.command("run", str(ROOT / "playbooks" / "hello.yaml"))
    assert stage.command("execution", "list", "-o", "name").count("\n") == 2
    while noetl("database", "verify", cwd=stage.folder, **stage.environment).returncode:
        assert stage.are_at_work


LOST: Final = (("postgres",), ("postgres",), ("nats",), ("postgres", "nats"))
"""What is lost before each list of commands of the page about disasters."""


@pytest.mark.parametrize("number", range(len(LOST)))
def test_the_page_about_disasters_brings_an_installation_back(number: int, fresh: OwnStage) -> None:
    orders = steps_on(Stage.STOPPED, "disaster.md")
    assert len(orders) == len(LOST)
    name = f"nightly-{number}"
    fresh.command("run", str(ROOT / "playbooks" / "hello.yaml"))
    fresh.command("backup", "create", "s3://bucket/noetl", "--name", name)
    if "postgres" in LOST[number]:
        fresh.stop_roles()
        fresh.use_database("after")
    if "nats" in LOST[number]:
        fresh.lose_nats()
    follow(fresh, "disaster.md", orders[number], nightly=name)
    if "postgres" in LOST[number]:
        fresh.start_roles()
    check_whole(fresh)


def test_a_backup_is_restored_as_its_page_says(fresh: OwnStage) -> None:
    fresh.command("run", str(ROOT / "playbooks" / "hello.yaml"))
    fresh.command("backup", "create", str(fresh.folder / "kept"), "--name", "nightly")
    fresh.stop_roles()
    fresh.lose_nats()
    fresh.use_database("after")
    (step,) = steps_on(Stage.STOPPED, "back-up-and-restore.md")
    follow(fresh, "back-up-and-restore.md", step, backups=str(fresh.folder / "kept"))
    fresh.start_roles()
    check_whole(fresh)


def test_partitions_are_changed_as_the_page_says(fresh: OwnStage) -> None:
    fresh.command("run", str(ROOT / "playbooks" / "hello.yaml"))
    fresh.stop_roles()
    change, rebuild = steps_on(Stage.STOPPED, "scale.md")
    follow(fresh, "scale.md", change)
    fresh.environment["NOETL_PARTITIONS"] = "64"
    fresh.start_roles()
    check_whole(fresh)
    fresh.stop_roles()
    fresh.use_database("after")
    follow(fresh, "scale.md", rebuild)


def test_a_cluster_of_nats_gets_its_copies_as_the_page_says(own: OwnStage, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    cluster = NatsCluster(tmp_path, write_seeds(seeds, (), ()).text)
    cluster.start()
    try:
        page = (GUIDES / "run-on-clusters.md").read_text()
        settings = dict(re.findall(r"^(NOETL_STREAM_REPLICAS)=(\d)$", page, re.MULTILINE))
        given = {
            "NOETL_NATS_URL": cluster.url,
            "NOETL_NATS_SEEDS": str(seeds),
            "NOETL_POSTGRES_DSN": own.dsn,
            **settings,
        }
        (step,) = steps_on(Stage.CLUSTER, "run-on-clusters.md")
        for line in step.text.splitlines():
            done = noetl(*line.split()[1:], HOME=str(tmp_path), **given)
            while done.returncode:  # NATS elects its leader
                assert re.search("no answer|JetStream|leader", done.stderr), done.stderr
                done = noetl(*line.split()[1:], HOME=str(tmp_path), **given)
        assert re.findall(r"^EVENTS .*? 3 ", done.stdout, re.MULTILINE)
    finally:
        cluster.end()
