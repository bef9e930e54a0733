"""``noetl-stream playbook``."""
