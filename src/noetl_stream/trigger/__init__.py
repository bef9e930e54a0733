"""What starts executions on events: pure, without IO and clock (LANGUAGE §15 *Trigger*)."""
