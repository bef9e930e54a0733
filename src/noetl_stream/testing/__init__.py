"""What the tests of a tool kind need."""
