"""kscale against the reference, on random input."""
