"""Child processes of tools, forked by a zygote and confined (docs/explanation/worker.md *Isolation*)."""
