"""Hosts roles in processes, starts the stacks of ``run``, ``dev`` and ``bench``, and maintains the stores."""
