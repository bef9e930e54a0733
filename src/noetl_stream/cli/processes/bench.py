"""``noetl-stream bench``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import home_option, output_option
from noetl_stream.cli.base.output import print_json, print_table
from noetl_stream.cli.base.process import run_async, settings_for


@click.command()
@click.option("--executions", type=click.IntRange(1), default=1000, show_default=True, help="Executions in a burst.")
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="No-op steps of each.")
@click.option("--latency-runs", type=click.IntRange(0), default=200, show_default=True, help="Runs on an idle stack.")
@click.option("--fan-out", type=click.IntRange(1), default=1000, show_default=True, help="Iterations of the loop.")
@click.option("--in-flight", type=click.IntRange(1), default=1000, show_default=True, help="Of them at once.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Bursts and loops to measure.")
@click.option("--servers", type=click.IntRange(1), default=1, show_default=True, help="Server processes.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Worker processes.")
@click.option("--slots", type=click.IntRange(1), default=256, show_default=True, help="Slots of each worker.")
@output_option("text", "json")
@home_option
def bench(output: str, home: Path | None, **load: int) -> None:
    """Measure the real stack on this machine: throughput, latency, fan-out, CPU and memory of each process.

    Starts its own server and worker processes on the NATS and Postgres of the settings; use a --home of its own.
    Nothing is simulated: every step is a command, a report and a commit.
    """
    from noetl_stream.bench import Bench, Figures, Load
    from noetl_stream.hosting import connected_to, open_stack, prepare_embedded

    async def measure() -> Figures:
        await prepare_embedded(stack)
        async with connected_to(stack, "noetl-bench") as connected:
            return await Bench(stack, connected, Load(**load)).run()

    with open_stack(settings_for(home)) as stack:
        figures = run_async(measure())
    if output == "json":
        print_json(figures.to_json())
        return
    rows: list[tuple[str, object]] = list(figures.conditions.items())
    rows += [("steps/s", _spread(figures.steps_per_s)), ("executions/s", _spread(figures.executions_per_s))]
    rows += [(f"latency {name}, ms", value) for name, value in figures.latency_ms.items()]
    rows.append(("fan-out, s", _spread(figures.fan_out_s)))
    rows += [(f"CPU µs/step, {name}", value) for name, value in figures.cpu_us_per_step.items()]
    rows += [(f"memory MiB, {name}", value) for name, value in figures.memory_mib.items()]
    print_table(("what", "seen"), rows)


def _spread(values: list[float]) -> str:
    """Median and range."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:g} ({ordered[0]:g} to {ordered[-1]:g})"
