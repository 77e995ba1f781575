"""Upstream's own Go packages as a test oracle: draws cases, asks both sides, compares and shrinks."""
