"""When a schedule is due (LANGUAGE §15 *Schedule*)."""
