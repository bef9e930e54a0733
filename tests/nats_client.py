"""nats-py's own client, as users have it."""

from __future__ import annotations

from nats.aio.client import Client


async def flush(client: Client) -> None:
    """Returns when the server has everything that was published and subscribed before.

    One flush of nats-py does not say so: its ping overtakes what is not yet written. The second comes after it.
    """
    for _ in range(2):
        await client.flush()
