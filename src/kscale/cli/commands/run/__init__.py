"""``kscale run PROGRAM``: one module per program. Shared code is in :mod:`kscale.cli.process`."""
