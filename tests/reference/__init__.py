"""The slow, obvious reference: upstream's rules in plain Python over Kubernetes JSON dicts.

Never shipped and never fast. It imports nothing of kscale, keeps nothing between calls that upstream does not keep, and
recomputes everything from the list of nodes and the pods on them. The recorded answers judge it
(`tests/reference_golden`); then it judges the native kernels.
"""
