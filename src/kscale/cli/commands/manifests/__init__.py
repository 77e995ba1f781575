"""``kscale manifests PROGRAM``: a module for each program."""
