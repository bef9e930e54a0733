"""The sections of a playbook as they are read, one file a section (LANGUAGE §1 to §7)."""
