"""Events that start executions: pure, without IO or clock (LANGUAGE §15 *Trigger*)."""
