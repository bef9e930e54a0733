"""Where files are kept: a folder, or object storage, which needs ``obstore``."""
