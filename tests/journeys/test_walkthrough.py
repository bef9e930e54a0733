"""Following a page finds what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from walkthrough import Walkthrough, steps

PAGE = """
Write a file:

```yaml title="deep/a.yaml"
a: 1
```

and read it:

```bash
cd deep
ADDRESS=http://127.0.0.1:8080
cat a.yaml
```

```text
a:   1
```

This fails:

<!-- exit: 3 -->
```bash
echo $ADDRESS is gone
(exit 3)
echo later
```

```text
http://127.0.0.1:8080 is …
```

<!-- terminal -->
```bash
echo ready && exec sleep 60
```

```text
ready
```

The same terminal again:

<!-- terminal -->
```bash
echo ready && exec sleep 60
```

<!-- empty folder -->
```bash
echo no clone
```

```yaml
not: for readers to do
```
"""


def follow(page: str, folder: Path) -> None:
    with Walkthrough(folder, {"PATH": "/usr/bin:/bin"}, {"8080": "9999"}) as reader:
        for step in steps(page):
            reader.do(step)


def test_a_page_that_is_right_is_followed_to_its_end(tmp_path: Path) -> None:
    follow(PAGE, tmp_path)
    assert (tmp_path / "deep" / "a.yaml").read_text() == "a: 1\n"


def test_a_block_shows_where_it_runs() -> None:
    assert [step.text for step in steps(PAGE) if step.is_for_empty_folder] == ["echo no clone\n"]
    assert [step.text for step in steps(PAGE) if step.stays] == ["echo ready && exec sleep 60\n"] * 2


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("a:   1\n", "a: 2\n", "a: 2"),
        ("cat a.yaml", "cat b.yaml", "exited with 1"),
        ("exit: 3", "exit: 4", "exited with 3"),
        ("(exit 3)", "true", "exited with 0"),
        ("is …", "is … again", "again"),
        ("echo ready && exec sleep 60", "echo steady", "steady"),
        ("echo later", "exit 7", "did not end"),
    ],
)
def test_a_page_that_is_wrong_fails(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in PAGE
    with pytest.raises(AssertionError) as failed:
        follow(PAGE.replace(right, wrong), tmp_path)
    assert message in str(failed.value)
