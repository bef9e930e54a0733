"""What an editor asks of a playbook that is being written: pure, of the text as it stands, mistakes included."""
