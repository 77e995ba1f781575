"""Carrying out scale-down: step machines that say what to do next and are told what came of it.

Upstream: ``core/scaledown/actuation`` and ``core/scaledown/deletiontracker``. :class:`~.actuator.Actuator` is the door,
:mod:`~.actions` the protocol, :mod:`~.run` the runner for simulated worlds. Nothing here touches a cluster.
"""
