"""The command line: a file for each noun or for a few related ones, without logic of its own."""
