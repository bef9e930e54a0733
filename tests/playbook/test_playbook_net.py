"""What the net of a playbook proves: findings, each with a path of firings that shows it (LANGUAGE §4, §5, §7)."""

from __future__ import annotations

from random import Random

import pytest
from net_playbooks import findings, playbook_of, shown
from playbook_building import checked

from noetl_stream.playbook.diagnostics import Firing, path_text
from noetl_stream.playbook.net.flow import reach_of
from noetl_stream.playbook.net.petri import Exploration
from noetl_stream.playbook.net.unfold import Place, Unfolding, can_move_in_turn


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        (["start > a", "a > b:1==2", "b >"], ["`b`: the arc of `a` on line 10 never fires"]),
        (["start > a:ctx.x b:not~ctx.x c", "a >", "b >", "c >"], ["`c`: the arc of `start` on line 7 never fires"]),
        (["start > a:ctx.n<3 b:ctx.n>=3 c", "a >", "b >", "c >"], ["`c`: the arc of `start` on line 7 never fires"]),
        (
            ["start routes=1 > a:event.status=='error' b", "a >", "b >"],
            ["`a`: the arc of `start` on line 6 never fires"],
        ),
        (["start > a:event.status=='error' b", "a >", "b >"], []),
        (["start > a:steps.a~is~not~none b", "a >", "b >"], ["`a`: the arc of `start` on line 7 never fires"]),
        (
            ["start > a:ctx.late|default(false) b", "a > c", "b >", "c sets=late >"],
            ["`a`: the arc of `start` on line 7 never fires", "`c`: it comes only after `a`"],
        ),
        (["start > a:ctx.late|default(false) b", "a >", "b sets=late > start"], []),
        (["start > a:ctx.outside|default(false) b", "a >", "b >"], []),
        (["start rests=fail > a:ctx.late|default(false)", "a sets=late >"], []),
    ],
)
def test_a_step_is_unreachable_if_the_guards_of_the_arcs_to_it_never_hold(
    lines: list[str], messages: list[str]
) -> None:
    found = [one.message for one in findings(*lines) if one.code == "unreachable_step"]
    assert found == [f"no run reaches step {message}" for message in messages]


def test_the_path_to_an_unreachable_step_leads_to_the_arc_that_never_fires() -> None:
    [finding] = findings("start > a", "a > b:1==2", "b >")
    assert path_text(finding.path) == "start → a"


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (["start > a", "a allow=1==2 >"], ["start → a"]),
        (["start > a", "a allow=token.from_step=='b' >", "b >"], ["start → a"]),
        (["start > a", "a allow=token.from_step=='start' >"], []),
        (["start > a", "a allow=token.cause=='injected' >"], []),
        (["start > a", "a allow=ctx.done|default(false) > b", "b sets=done >"], ["start → a"]),
        (["start > a", "a allow=ctx.done|default(false) wait=1 > b", "b sets=done >"], []),
        (["start >> a b", "a allow=ctx.done|default(false) >", "b sets=done >"], []),
        (["start > a", "a allow=ctx.round|default(0)<3 sets=round > a:ctx.round<3"], []),
        (["start > a", "a allow=ctx.outside|default(false) >"], []),
    ],
)
def test_an_admission_never_opens_if_only_steps_behind_it_would_open_it(lines: list[str], paths: list[str]) -> None:
    assert [path for code, path in shown(*lines) if code == "admission_never_opens"] == paths


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (["start >> a b", "a > j", "b > j", "j join=3 >"], ["start → a, b; a → j; b → j"]),
        (["start >> a b", "a > j", "b > j", "j join=2 >"], []),
        (["start > a:ctx.x b", "a > j", "b > j", "j join=2 >"], ["start → a; a → j"]),
        (["start >> a:ctx.x b:not~ctx.x", "a > j", "b > j", "j join=2 >"], ["start → a; a → j"]),
        (
            ["start >> a b c", "a > k", "b > k", "c > j", "k join=all > j", "j join=3 >"],
            ["start → a, b, c; a → k; b → k; c → j; k joins; k → j"],
        ),
        (["start >> a b", "a > j", "b > j", "j join=any >"], []),
        (
            ["start >> a b c", "a > k", "b > k", "c > j", "k join=any > j", "j join=3 >"],
            ["start → a, b, c; a → k; c → j; k joins; k → j"],
        ),
        (["start > a", "a > a:ctx.x j", "j join=2 >"], ["start → a; a → j"]),
        (["start >> start:ctx.more j", "j join=5 >"], []),
        (["start >> j j", "j join=2 >"], []),
    ],
)
def test_a_join_never_fires_if_fewer_tokens_can_arrive_than_it_waits_for(lines: list[str], paths: list[str]) -> None:
    assert [path for code, path in shown(*lines) if code == "join_never_fires"] == paths


@pytest.mark.parametrize(
    ("key", "entry", "codes"),
    [
        ("once", "start", ["join_never_fires"]),
        ("{{ ctx.n }}", "start", []),
        ("{{ ctx.n }}", "round", []),
        ("once", "round", ["join_never_fires"]),
    ],
)
def test_an_arc_whose_key_is_constant_brings_a_join_one_token(key: str, entry: str, codes: list[str]) -> None:
    text = playbook_of("start > round", "round >> round j", "j join=2 >")
    arcs = text.replace("{ step: j }", f'{{ step: j, spec: {{ dedupe: "{key}" }} }}')
    found = checked(f"executor: {{ spec: {{ entry_step: {entry} }} }}\n{arcs}", proves=True).diagnostics
    assert [one.code for one in found if one.code == "join_never_fires"] == codes


def test_a_cycle_whose_arc_sends_each_key_once_may_end() -> None:
    plain = playbook_of("start > start")
    for text, codes in ((plain, ["endless_cycle"]), (plain.replace("{ step: s", "{ spec: { dedupe: x }, step: s"), [])):
        assert [one.code for one in checked(text, proves=True).diagnostics if one.code == "endless_cycle"] == codes


def test_steps_after_a_join_that_never_fires_are_unreachable_but_its_failure_may_be_handled() -> None:
    steps = ["start > j", "j join=2 > a b:event.status=='error'", "a >", "b >"]
    assert [(one.code, one.message.split("`")[1]) for one in findings(*steps)] == [
        ("join_never_fires", "j"),
        ("unreachable_step", "a"),
    ]


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (["start >> start end", "end >"], ["again and again: start → start, end"]),
        (["start > a", "a >> b c", "b > a:ctx.more", "c >"], ["start → a; again and again: a → b, c; b → a"]),
        (["start > a", "a >> b c", "b > j", "c > j", "j join=all > a:ctx.more"], []),
        (
            ["start > a", "a >> b c", "b > j", "c > j", "j join=any > a:ctx.more"],
            ["start → a; again and again: a → b, c; b → j; j joins; j → a"],
        ),
        (["start > a", "a > b:ctx.x c", "b > a", "c >"], []),
        (["start >> a b", "a > a:ctx.more", "b >"], []),
    ],
)
def test_tokens_pile_up_if_a_round_of_a_cycle_leaves_one_behind(lines: list[str], paths: list[str]) -> None:
    assert [path for code, path in shown(*lines) if code == "tokens_pile_up"] == paths


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (["start > a", "a > b", "b > a"], ["start → a; again and again: a → b; b → a"]),
        (["start > a:ctx.x b:not~ctx.x", "a > start", "b > start"], ["again and again: start → a; a → start"]),
        (["start > a", "a > b:event.status=='success'", "b > a"], ["start → a; again and again: a → b; b → a"]),
        (["start > a", "a > a:ctx.more"], []),
        (["start > a", "a > end:ctx.done a", "end >"], []),
        (["start > a", "a > end:event.status=='error' a", "end >"], []),
        (["start > a", "a > a:ctx.more end", "end > a"], ["start → a; again and again: a → a"]),
        (["start rests=fail > start:ctx.go"], ["again and again: start → start"]),
        (["start rests=discard > start:ctx.go"], []),
    ],
)
def test_a_cycle_has_no_exit_if_every_outcome_leads_round_again(lines: list[str], paths: list[str]) -> None:
    assert [path for code, path in shown(*lines) if code == "endless_cycle"] == paths


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (["start >> a b", "a > c", "b > d", "c sets=k >", "d sets=k >"], ["start → a, b; a → c; b → d"]),
        (["start >> a:ctx.x b:not~ctx.x", "a sets=k >", "b sets=k >"], []),
        (["start >> a b:1==2", "a sets=k >", "b sets=k >"], []),
        (
            ["start >> a b", "a sets=k rests=fail > c:ctx.go", "b > d:steps.a~is~defined", "c >", "d sets=k >"],
            ["start → a, b; b → d"],
        ),
        (["start >> a b", "a > j", "b > j", "j join=any sets=k > z", "z sets=k >"], []),
    ],
)
def test_steps_compete_only_if_a_run_brings_both_to_work_at_once(lines: list[str], paths: list[str]) -> None:
    assert [path for code, path in shown(*lines) if code == "competing_writes"] == paths


def branches(count: int, *last: str) -> list[str]:
    """A fork into branches of four steps, each step setting a key, that all lead to ``end``."""
    lines = [f"start >> {' '.join(f'b{branch}x0' for branch in range(count))}"]
    for branch in range(count):
        for place in range(4):
            to = "end" if place == 3 else f"b{branch}x{place + 1}"
            lines.append(f"b{branch}x{place} sets=k{branch}x{place} > {to}")
    return [*lines, *last]


@pytest.mark.parametrize(
    ("join", "found"), [("20", []), ("21", ["join_never_fires"]), ("19", ["not_explored"]), ("all", [])]
)
def test_twenty_branches_of_four_steps_are_explored_completely(join: str, found: list[str]) -> None:
    assert [one.code for one in findings(*branches(20, f"end join={join} sets=k0x3 >"))] == found


def test_unexplored_parts_are_named() -> None:
    joins = [f"j{index} join=any > {f'j{index + 1} x{index}' if index < 5 else 'end'}" for index in range(6)]
    steps = [
        "start >> j0 " + " ".join(f"x{index}" for index in range(5)),
        *(f"x{index} > j{index + 1}" for index in range(5)),
    ]
    [finding] = findings(*steps, *joins, "end join=3 >")
    assert finding.code == "not_explored"
    assert "how many tokens reach the join of `end`" in finding.message


@pytest.mark.parametrize("seed", range(30))
def test_moving_tokens_in_turn_finds_as_many_arrivals_as_every_order_does(seed: int) -> None:
    random = Random(seed)
    names = ["start", *(f"s{index}" for index in range(random.randint(1, 5))), "end"]
    lines = []
    for index, name in enumerate(names[:-1]):
        targets = random.choices(names[index + 1 :], k=random.randint(1, 3))
        arcs = " ".join(to + random.choice(["", f":ctx.go_{place}"]) for place, to in enumerate(targets))
        lines.append(
            f"{name} {random.choice(['', '', 'join=all']) if index else ''} {random.choice(['>', '>>'])} {arcs}"
        )
    reach = reach_of(checked(playbook_of(*lines, "end join=9 >")).require_plan())
    assert can_move_in_turn(reach, "end")

    def most(explored: Exploration[Place, Firing | None]) -> float:
        return max(sum(count for place, count in tokens.items() if place.step == "end") for tokens in explored)

    net = Unfolding(reach, ["end"], ends_at="end")
    in_turn = Exploration(net.transitions, net.start, 20_000, in_turn=True)
    in_any_order = Exploration(net.transitions, net.start, 20_000)
    assert most(in_turn) == most(in_any_order)
    assert in_turn.is_complete and in_any_order.is_complete and in_turn.fired <= in_any_order.fired
