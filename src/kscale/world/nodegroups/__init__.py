"""Cloud providers behind one protocol (:class:`kscale.world.protocols.NodeGroups`): a groups file, upstream's external
gRPC protocol (client and server), kwok and Cluster API.
"""
