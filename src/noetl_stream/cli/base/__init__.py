"""The common parts of all commands: target, session, options, output, exit codes."""
