"""Child processes of tools: a zygote forks them, confined (docs/explanation/worker.md *Isolation*)."""
