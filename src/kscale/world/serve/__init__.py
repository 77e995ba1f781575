"""HTTP endpoints of a program: metrics, health and the debugging snapshot (extras ``[kube]``, ``[metrics]``)."""
