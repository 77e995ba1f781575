"""Pods and nodes in the protobuf form of the Kubernetes API (``k8s.io/api/core/v1`` 1.37), converted from and to JSON.

Tables map members to fields; the protobuf runtime (extra ``[grpc]``) reads and writes the bytes.
"""
