"""Capacity planning: estimates, headroom, costs, mixes, what-if scenarios, sweeps, catalogues, generated clusters."""
