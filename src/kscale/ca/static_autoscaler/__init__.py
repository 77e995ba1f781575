"""One whole loop of the Cluster Autoscaler (upstream: ``core/static_autoscaler.go``: RunOnce)."""
