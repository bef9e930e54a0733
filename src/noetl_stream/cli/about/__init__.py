"""The program itself: its version and completion, its documentation, the gateways that it knows."""
