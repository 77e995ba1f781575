"""Access to a Kubernetes API server: client, informers and writes (extra ``[kube]``)."""
