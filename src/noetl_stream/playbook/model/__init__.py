"""The sections of a playbook as read, one file for each section (LANGUAGE §1 to §7)."""
