"""The world of a Kubernetes API server (extra ``[kube]``): client, informers, writes. No rule stands here."""
