"""One file per command; each defines ``command``. See ``kscale.cli.app`` for the convention."""
