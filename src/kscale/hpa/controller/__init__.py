"""One reconcile of one HPA (upstream: ``pkg/controller/podautoscaler``). Start at
:mod:`~kscale.hpa.controller.reconcile`.
"""
