"""The client without ``async``, made from that with it by scripts/client_code.py."""
