"""The rules, one file each (``simulator/drainability/rules``)."""
