"""Documents of ``kind: Trigger`` (LANGUAGE §15 *Trigger*)."""
