"""What happens to the lists of pods before a scale-up (``core/podlistprocessor``): one rule a module, all pure."""
