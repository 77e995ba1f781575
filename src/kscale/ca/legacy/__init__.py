"""What Cluster Autoscaler 1.3 decided, behind the option ``profile="legacy"``."""
