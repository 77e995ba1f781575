"""Scale-up around the estimate: candidate groups, division of new nodes, execution and reports."""
