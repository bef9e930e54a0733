"""Stories that failed once. ``python -m noetl_testkit.simulation`` prints such tests."""

from __future__ import annotations

import pytest

from noetl_testkit.simulation.faults import kinds_of
from noetl_testkit.simulation.limits import limited_story
from noetl_testkit.simulation.simulation import simulate
from noetl_testkit.simulation.story import Planned, Story
from noetl_testkit.simulation.triggers import triggered_story
from noetl_testkit.simulation.work import JOBS


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_set_aside_because_its_server_lost_a_partition(seed: int) -> None:
    assert not simulate(seed, ("partitions stolen", "server killed")).problems


def test_a_server_forgets_what_it_held_of_a_partition_that_it_lost_unnoticed_and_takes_again() -> None:
    """Frozen until another server had had the partition and given it back, it folded on in its old memory."""
    assert not simulate(1, ("frozen at publish",)).problems


def test_an_execution_that_ends_after_its_poison_was_lost_with_the_tail_is_not_set_aside() -> None:
    """Its loop was broken by an iteration that had failed; the iterations that servers had died of were cancelled."""
    faults = ("commit unknown", "server frozen", "folded tail lost", "poison kills")
    assert not simulate(Story(seed=300053, servers=1, workers=1, faults=faults)).problems


def test_records_published_again_after_a_server_was_frozen_have_another_message_id() -> None:
    """It reads what others have committed meanwhile, and knows only of its own last tick."""
    assert not simulate(400658, ("readers break", "frozen at publish")).problems


def test_a_partition_whose_records_are_trimmed_hides_no_lost_record_of_others() -> None:
    """EVENTS had lost records with its tail, and each takeover took them for trimmed."""
    assert not simulate(15, ("tail lost", "reconcile always")).problems


def test_trimming_while_postgres_catches_up_hides_nothing() -> None:
    """The checkpoint of a journal that lacked what EVENTS held replaced it; what came meanwhile was passed over."""
    assert not simulate(13, ("postgres restored",)).problems


def test_a_record_that_is_lost_after_one_of_a_later_tick_is_published_again() -> None:
    """The last record of the partition was there, and only that was compared."""
    assert not simulate(1079, ("records late", "folded tail lost", "readers break")).problems


def test_a_rerun_waits_for_a_postgres_that_has_yet_to_catch_up() -> None:
    """Its original was in the partition of another server, which took it over later: it was refused as unknown."""
    story = Story(
        seed=330095,
        servers=3,
        workers=2,
        faults=("postgres restored",),
        executions=(Planned(next(job for job in JOBS if job.retried is not None), 4.762264598307903),),
    )
    assert not simulate(story).problems


def test_a_command_whose_inner_loop_has_ended_is_still_under_way() -> None:
    """It ran twice because its lease was ended, and that was not held for the reason."""
    assert not simulate(503049).problems


TRIGGERED = {
    465: "an end that was decided again later started another execution",
    279: "an event was ignored since its token was revoked, though Postgres had once said that it started",
    197: "an end that a wrong clock had called older than its trigger was not told again",
    585: "an execution was lost after another had been started at its end",
    1203: "a message that told of an end again had the id of another",
    3217: "a trigger was told of an end in one tick, and of what it had started in a later one",
}


@pytest.mark.parametrize(
    "seed", [seed if seed in (465, 279) else pytest.param(seed, marks=pytest.mark.verify) for seed in TRIGGERED]
)
def test_triggers_keep_their_promises_after_postgres_was_restored(seed: int) -> None:
    assert not simulate(triggered_story(seed, kinds_of(seed))).problems, TRIGGERED[seed]


@pytest.mark.parametrize("seed", [73, *(pytest.param(seed, marks=pytest.mark.verify) for seed in (2033, 2841, 3889))])
def test_a_slot_is_not_given_to_another_while_postgres_has_yet_to_catch_up_with_who_holds_it(seed: int) -> None:
    """Of a task, of one whose end was lost, of a step, of an execution."""
    assert not simulate(limited_story(seed, kinds_of(seed))).problems
