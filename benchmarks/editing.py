"""What a keystroke costs the language server in a long playbook, beside a check of the same text: CPU, best of some.

.venv/bin/python benchmarks/editing.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.editing.completion import Language, SchemaWords, complete
from noetl_stream.playbook.editing.names import TextNames
from noetl_stream.playbook.editing.outline import outline
from noetl_stream.playbook.editing.tree import Lines, read_tree
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.tools.registry import kinds_of, load_tools

EXAMPLE: Final = Path(__file__).resolve().parents[1] / "playbooks" / "paginate_to_postgres.yaml"
COPIES: Final = 20
ROUNDS: Final = 7


def playbook() -> str:
    """The steps of an example, so often that they make 3,000 lines, each time with names of their own."""
    head, steps = EXAMPLE.read_text().split("workflow:\n")
    names = [part.split()[0] for part in steps.split("- step: ")[1:]]
    copies = []
    for number in range(COPIES):
        copy = steps
        for name in names:
            for word in ("step: ", "steps."):
                copy = copy.replace(f"{word}{name}", f"{word}{name}_{number}")
        copies.append(copy)
    return f"{head}workflow:\n{''.join(copies)}"


def cpu_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times) * 1000


def main() -> None:
    kinds = kinds_of(load_tools())
    language = Language(SchemaWords(playbook_schema(kinds)), {})
    text = playbook()
    offset = text.rindex("{{") + 3
    key = text.rindex("\n    next:")
    check = cpu_ms(lambda: check_document(text, kinds, proves=True))
    print(f"{len(text.splitlines())} lines, {len(text) // 1024} KiB; a check: {check:.0f} ms")
    work: dict[str, Callable[[], object]] = {
        "tree": lambda: read_tree(text),
        "tree and names": lambda: TextNames(text, read_tree(text)),
        "completion in a template": lambda: complete(text, offset, language),
        "completion of a key": lambda: complete(f"{text[:key]}\n    {text[key:]}", key + 5, language),
        "lines": lambda: Lines(text),
        "outline": lambda: outline(read_tree(text)),
    }
    for name, measured in work.items():
        took = cpu_ms(measured)
        print(f"{name}: {took:.1f} ms, {took / check:.3f} of a check")


if __name__ == "__main__":
    main()
