"""Storage objects that the volume plug-ins read."""
