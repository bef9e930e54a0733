"""Documents of ``kind: Schedule`` (LANGUAGE §15 *Schedule*)."""
