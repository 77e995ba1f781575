"""Commands about the nodes and pods of a running cluster: one module per command."""
