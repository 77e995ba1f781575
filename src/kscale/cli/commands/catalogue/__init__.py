"""``kscale catalogue import | list | show``."""
