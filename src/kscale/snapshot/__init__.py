"""A cluster as columns: loading, interning, facets and classes, immutable snapshots and their overlays."""
