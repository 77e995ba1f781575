"""Pods and nodes in the protobuf form of the Kubernetes API (``k8s.io/api/core/v1`` 1.37), from and to their JSON form.

Tables say which member is which field; the protobuf runtime (extra ``[grpc]``) reads and writes the bytes.
"""
