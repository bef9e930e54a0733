"""How facts change the state: total and guarded (DESIGN §3)."""
