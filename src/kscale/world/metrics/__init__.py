"""Sources of metrics: the Kubernetes metrics APIs and Prometheus."""
