"""Processing of pod lists before a scale-up, one pure function per rule (upstream: ``core/podlistprocessor``)."""
