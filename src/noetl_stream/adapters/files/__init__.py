"""Files in a folder, or in object storage, which needs ``obstore``."""
