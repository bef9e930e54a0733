"""Hosting: roles in processes, what ``run``, ``dev`` and ``bench`` start, the setup and upkeep of the stores."""
