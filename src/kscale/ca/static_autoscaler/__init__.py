"""The whole loop of the Cluster Autoscaler (``core/static_autoscaler.go``: RunOnce)."""
