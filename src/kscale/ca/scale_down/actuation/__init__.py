"""Carrying out scale-down: step machines that say what to do next and are told what came of it.

Upstream: ``core/scaledown/actuation`` and ``core/scaledown/deletiontracker``. :class:`~.actuator.Actuator` is the door.
Machines of one actuator share its state: whoever runs them may perform actions side by side as it likes, but advances
one machine at a time. Nothing here touches a cluster.
"""
