"""Read pods and other objects from texts."""
