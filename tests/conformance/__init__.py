"""The conformance tables of the specification, as data, and what runs them on an engine."""
