"""From pod classes and nodes to what the packing engine takes: everything that can be said in advance becomes a bit for
each (row, node class), everything that depends on where pods are becomes a counter."""
