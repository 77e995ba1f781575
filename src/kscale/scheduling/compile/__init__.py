"""Compiles pod classes and nodes for the packing engine: whatever depends only on a pod and a node becomes a bit for
each (row, node class), whatever depends on where pods are becomes a counter.
"""
