"""Every playbook of the folder does what its first lines say, on real NATS and Postgres."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import playbook_checks as checks
import pytest
from journey_stack import ROOT
from playbook_stage import FOLDER, Ended, Scenario, Stage, open_stage

from homes import SHARED_FILES

pytestmark = pytest.mark.xdist_group("stack")

PLAYBOOKS = sorted(path.stem for path in FOLDER.glob("*.yaml") if "." not in path.stem)
ARCHIVE = str(SHARED_FILES / "adr.tar.gz")
NO_ARCHIVE = f"{ARCHIVE}.not"
ADR = ROOT / "docs" / "adr"
CHART = ROOT / "docs" / "how-to" / "quantum-sweep.svg"
"""What the page about quantum circuits shows; if another version of Aer draws other numbers, it is to be made anew."""


async def approve(stage: Stage, execution_id: str) -> None:
    await stage.noetl("execution", "patch", execution_id, "--set", "decision=approved", "--reason", "a good customer")


async def refuse(stage: Stage, execution_id: str) -> None:
    await stage.noetl("execution", "patch", execution_id, "--set", "decision=refused")


async def signal_go(stage: Stage, execution_id: str) -> None:
    await stage.noetl("execution", "signal", execution_id, "release", "--payload", '{"go": true, "by": "ada"}')


async def signal_no(stage: Stage, execution_id: str) -> None:
    await stage.noetl("execution", "signal", execution_id, "release", "--payload", '{"go": false, "by": "ada"}')


SCENARIOS = {
    "hello": Scenario("hello", {"text": "HELLO, ADA", "letters": 3}, {"name": "Ada"}),
    "paginate": Scenario(
        "paginate_to_postgres",
        checks.airports_by_state(),
        check=checks.every_airport_is_stored,
    ),
    "approval_of_little": Scenario("approval", {"order": "1001", "paid": 40}),
    "approval_given": Scenario("approval", {"order": "1001", "paid": 250}, {"amount": 250}, meanwhile=approve),
    "approval_refused": Scenario("approval", {"order": "1001", "paid": 0}, {"amount": 250}, meanwhile=refuse),
    "approval_never": Scenario(
        "approval",
        {"order": "1001", "escalated": True},
        {"amount": 250},
        hurry=("timeout_s: 259200", "timeout_s: 0.3"),
    ),
    "signal_go": Scenario(
        "approval_by_signal", {"live": "1.4.0", "by": "ada"}, {"version": "1.4.0"}, meanwhile=signal_go
    ),
    "signal_no": Scenario("approval_by_signal", {"rolled_back": "1.0.0", "why": "ada said no"}, meanwhile=signal_no),
    "signal_never": Scenario(
        "approval_by_signal", {"rolled_back": "1.0.0", "why": "nobody answered"}, {"patience_s": 0.3}
    ),
    "join_of_two": Scenario("fan_out_and_join", {"accepted": True, "failed_checks": []}, {"customer": "eve"}),
    "join_of_three": Scenario(
        "fan_out_and_join", {"accepted": False, "failed_checks": ["fraud"]}, {"customer": "eve", "amount": 900}
    ),
    "nested_loops": Scenario(
        "nested_loops",
        [
            {"city": "Lisbon", "rooms": 9, "cheapest": "Tejo 101"},
            {"city": "Oslo", "rooms": 9, "cheapest": "Fjord 101"},
            {"city": "Quito", "rooms": 0, "cheapest": None},
        ],
    ),
    "saga_to_the_end": Scenario("saga", {"booked": True}, check=checks.all_three_are_booked),
    "saga_taken_back": Scenario(
        "saga",
        {"booked": False, "why": "no limousine is free"},
        {"car": "limousine", "trip": "oslo-2"},
        check=checks.every_booking_is_cancelled,
    ),
    "one_invoice": Scenario("invoice_customer", {"customer": "ada", "trips": 40, "total": 14784}),
    "all_invoices": Scenario(
        "invoice_all_customers", {"invoices": 3, "total": 71190}, check=checks.the_invoices_are_stored
    ),
    "poll": Scenario("poll_a_job", {"rows": 42, "questions": 3}, {"pause_s": 0.1}),
    "poll_in_vain": Scenario("poll_a_job", None, {"pause_s": 0.1, "questions": 2}, status="failed"),
    "etl": Scenario(
        "http_to_duckdb_to_postgres",
        {
            "cities": [
                {"city": "Lisbon", "trips": 60, "revenue": 29910, "mean_nights": 3.5},
                {"city": "Oslo", "trips": 30, "revenue": 16830, "mean_nights": 4},
                {"city": "Quito", "trips": 30, "revenue": 12585, "mean_nights": 3},
            ]
        },
        check=checks.the_sums_are_stored,
    ),
    "large_results": Scenario(
        "large_results", {"trips": 20000, "customers": 3}, check=checks.the_large_result_went_by_reference
    ),
    "quantum_job": Scenario(
        "quantum_job",
        {"shots": 30000, "equal": 30000, "longest_row": 15},
        {"pause_s": 0.1},
        check=checks.no_outcome_is_in_the_journal,
    ),
    "quantum_sweep": Scenario(
        "quantum_sweep",
        {"circuits": 64, "largest_error": 0.024, "chart": CHART.read_text()},
        check=checks.all_circuits_ran,
    ),
    "secrets": Scenario("secrets", {"accepted": "1001"}, check=checks.no_secret_is_in_the_journal),
    "limit": Scenario("limited_by_customer", [{"customer": "acme", "page": page} for page in (1, 2, 3)]),
    "rate_limit": Scenario(
        "rate_limited_api",
        [
            {"city": city, "price": price}
            for city, price in (
                ("Lisbon", 160),
                ("Oslo", 140),
                ("Quito", 150),
                ("Hanoi", 150),
                ("Perth", 150),
                ("Turin", 150),
            )
        ],
        check=checks.three_calls_came_too_early,
    ),
    "schedule": Scenario(
        "run_on_schedule",
        {"looks": 3, "healthy": 3},
        {"every_s": checks.EVERY_S, "times": 3},
        check=checks.the_moments_are_written_down,
    ),
    "status_200": Scenario("route_by_status", {"shipped": "1001"}),
    "status_404": Scenario("route_by_status", {"made": "1003"}, {"order": "1003"}),
    "status_422": Scenario("route_by_status", {"unclear": "1002"}, {"order": "1002"}),
    "status_503": Scenario(
        "route_by_status",
        {"down": "1004", "status": 503},
        {"order": "1004"},
        check=checks.three_requests_arrived,
    ),
    "batch": Scenario(
        "batch_with_report",
        {
            "sent": 3,
            "failed": 2,
            "failures": [
                {"to": "bob", "why": "bob is not an address"},
                {"to": "dave", "why": "dave is not an address"},
            ],
        },
        check=checks.the_others_got_the_message,
    ),
    "quorum": Scenario("quorum_of_mirrors", {"rate": 1.0812, "from": 2}),
    "no_quorum": Scenario("quorum_of_mirrors", {"rate": 1.07, "from": 0}, {"mirrors": ["amber", "cedar", "cedar"]}),
    "map_reduce": Scenario(
        "map_reduce",
        {"files": 5, "lines": 100, "error_percent": 25, "slowest_ms": 59, "services": ["booking", "search"]},
    ),
    "workbook": Scenario(
        "workbook",
        {"told": "sales@example.com"},
        {"customer": "eva"},
        check=checks.both_were_notified_and_it_is_audited,
    ),
    "sugar": Scenario("choose_while_until", {"urgent": [2, 4], "pages": 3, "looks": 3}, {"pause_s": 0.1}),
    "deadline_missed": Scenario("deadline_with_fallback", {"amount": 216.0, "live": False}, {"amount": 200}),
    "deadline_met": Scenario(
        "deadline_with_fallback", {"amount": 216.24, "live": True}, {"amount": 200, "mirror": "amber"}
    ),
    "nats": Scenario(
        "nats_settings",
        {"revision": 2, "settings": {"currency": "EUR", "discount_percent": 10}},
        check=checks.everybody_is_notified_and_no_change_is_lost,
    ),
    "shell": Scenario(
        "shell_backup",
        {"archive": ARCHIVE, "files": sum(path.is_file() for path in ADR.rglob("*"))},
        {"folder": str(ADR), "archive": ARCHIVE},
        check=checks.the_archive_is_whole,
    ),
    "shell_in_vain": Scenario(
        "shell_backup",
        None,
        {"folder": "/nowhere", "archive": NO_ARCHIVE},
        status="failed",
        check=checks.there_is_no_archive,
    ),
}


@pytest.fixture(scope="module")
def played(shared_home: Path, request: pytest.FixtureRequest) -> dict[str, Ended | BaseException]:
    """All scenarios that are asked for, played at the same time: how each ended, or what was wrong with it."""
    selected = {item.name for item in request.session.items}
    names = [name for name in SCENARIOS if f"{test_the_playbook_does_what_it_says.__name__}[{name}]" in selected]

    async def play() -> dict[str, Ended | BaseException]:
        async with open_stage(shared_home) as stage:
            ended = await asyncio.gather(*(stage.play(SCENARIOS[name]) for name in names), return_exceptions=True)
        return dict(zip(names, ended, strict=True))

    return asyncio.run(play())


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_playbook_does_what_it_says(name: str, played: dict[str, Ended | BaseException]) -> None:
    scenario, ended = SCENARIOS[name], played[name]
    if isinstance(ended, BaseException):
        raise ended
    assert (ended.status, ended.result) == (scenario.status, scenario.result), ended.error
    assert ended.discarded_tokens == 0


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_has_a_scenario(playbook: str) -> None:
    assert playbook in {scenario.playbook for scenario in SCENARIOS.values()}


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_begins_with_what_it_does_how_to_run_it_and_what_to_expect(playbook: str) -> None:
    head = (FOLDER / f"{playbook}.yaml").read_text().partition("\napiVersion")[0]
    assert all(line.startswith("# ") or line == "#" for line in head.splitlines())
    assert f"# Run:    noetl-stream run playbooks/{playbook}.yaml" in head
    assert "# Expect: " in head


def test_the_document_lists_the_playbooks_that_are_there() -> None:
    page = (ROOT / "docs" / "how-to" / "examples.md").read_text()
    listed = re.findall(r"^\| \[\w+\]\(\.\./\.\./playbooks/(\w+)\.yaml\) \|", page, re.M)
    assert sorted(listed) == PLAYBOOKS
