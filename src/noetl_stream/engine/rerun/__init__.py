"""What a rerun takes over from the execution it repeats (LANGUAGE §9 *Rerun*)."""
