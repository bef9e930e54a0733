"""Services for editors of a playbook that is being written: pure, of the text as it is, mistakes included."""
