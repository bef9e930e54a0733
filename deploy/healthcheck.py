"""The health check of the image: exits with 0 while the role's /readyz answers 200. Imports little: it runs often."""

import os
import socket
import sys

TIMEOUT_S = 4.0


def main() -> int:
    address = os.environ.get("NOETL_STATUS_ADDRESS", "")
    host, _, port = address.rpartition(":")
    if not port:
        return 0  # a command, or a role that was given no address to answer on
    host = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host.strip("[]")  # noqa: S104  # where it listens
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(f"GET /readyz HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        status, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n")
    print(body.partition(b"\r\n\r\n")[2].decode())
    return 0 if status.split()[1:2] == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main())
