"""``kscale serve PROGRAM``: a module for each program."""
