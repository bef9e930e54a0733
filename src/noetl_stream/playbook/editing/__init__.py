"""Services for editors of playbooks: pure, on the text as it is, mistakes included."""
