"""The executions and playbooks in a server's memory."""
