"""Expanders: strategies that choose one of several possible scale-ups, and the chain of them."""
