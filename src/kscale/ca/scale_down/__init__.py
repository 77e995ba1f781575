"""Scale-down: which nodes are removed, and the execution of removals."""
