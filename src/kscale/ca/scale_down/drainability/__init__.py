"""Drainability: may this pod be moved off its node? One file a rule."""
