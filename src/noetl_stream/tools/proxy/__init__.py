"""The proxy by which programs of tasks reach the network: it checks what they connect to, as for tools that connect."""
