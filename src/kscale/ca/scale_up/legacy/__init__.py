"""Scale-up as Cluster Autoscaler 1.3 decided it, behind the option ``profile="legacy"``."""
