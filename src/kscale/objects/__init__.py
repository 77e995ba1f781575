"""Kubernetes API objects as typed data.

Modules by subject: ``quantity``; ``meta``, ``core``, ``volumes``, ``apps``, ``batch``, ``policy``, ``storage``,
``resource``, ``quota``, ``nodegroup`` (the structs); ``kinds`` (which struct is which kind); ``decode`` (from JSON and
plain data); ``selectors``, ``selector_text``, ``node_selectors``, ``taints``, ``names`` (matching and validity);
``requests``, ``conditions``, ``owners``, ``times`` (reading).
"""
