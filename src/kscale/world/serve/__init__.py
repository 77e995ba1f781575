"""What a program serves over HTTP (extras ``[kube]``, ``[metrics]``): metrics, health, the debugging snapshot."""
