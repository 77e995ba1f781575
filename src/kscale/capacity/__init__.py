"""Batch estimation, headroom, sweeps, catalogues, generated clusters."""
