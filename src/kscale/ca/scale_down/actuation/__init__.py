"""Execution of scale-down as step machines, which yield actions and receive their outcomes.

Upstream: ``core/scaledown/actuation`` and ``core/scaledown/deletiontracker``. The entry point is
:class:`~.actuator.Actuator`. The machines of one actuator share its state: their actions may be performed concurrently,
but only one machine may be advanced at a time. No code here accesses a cluster.
"""
