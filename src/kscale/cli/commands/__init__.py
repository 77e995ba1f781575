"""Modules of commands; the registry names the function of each. See ``kscale.cli.app`` for the convention."""
