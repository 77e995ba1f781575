"""Scale-down as release 1.3 of the Cluster Autoscaler (2019) decides it."""
