"""Reconcile many HPAs at once, over columns. Start at :mod:`~kscale.hpa.batch.reconcile_all`; without I/O, at
:mod:`~kscale.hpa.batch.decisions`.
"""
