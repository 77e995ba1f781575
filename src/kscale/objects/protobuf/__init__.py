"""Pods and nodes in the protobuf form of the Kubernetes API (``k8s.io/api/core/v1`` 1.37), made of their JSON form."""
