"""What a person's command does: publish requests, wait for the fold's answer, follow an execution live."""
