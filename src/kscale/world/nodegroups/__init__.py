"""Clouds behind one protocol (:class:`kscale.world.protocols.NodeGroups`): a groups file, upstream's external gRPC
protocol (both ends), kwok, Cluster API."""
