"""The functions of the shop that playbooks call."""
