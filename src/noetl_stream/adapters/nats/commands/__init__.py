"""The stream COMMANDS: commands are issued, fenced, pulled by priority and delivered."""
