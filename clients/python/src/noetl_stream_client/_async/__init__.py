"""The client with ``async``, which that without is made from."""
