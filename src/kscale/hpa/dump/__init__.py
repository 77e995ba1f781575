"""Decisions for the HPAs of files: read a dump, decide, report."""
