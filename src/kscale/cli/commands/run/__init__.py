"""``kscale run PROGRAM``: a module for each program. What they share is in :mod:`kscale.cli.process`."""
