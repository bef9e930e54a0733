"""Files and tables by reference, for kinds that read and write them by path."""
