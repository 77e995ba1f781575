"""The HorizontalPodAutoscaler as the API server sees it: defaults, validation, conversion between versions, and
KEDA's generated objects.
"""
