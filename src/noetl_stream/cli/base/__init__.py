"""What all commands share: target, session, options, output, exit codes."""
