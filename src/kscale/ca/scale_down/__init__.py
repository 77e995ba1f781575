"""Scale-down: which nodes can go."""
