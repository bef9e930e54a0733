"""Events that start executions: pure, without IO and clock (LANGUAGE §15 *Trigger*)."""
