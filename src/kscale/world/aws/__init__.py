"""Cloud provider for AWS: node groups are EC2 Auto Scaling groups.

- ``provider.py``: the provider (:class:`~kscale.world.aws.provider.AwsGroups`).
- ``auto_scaling_groups.py``: cache of groups and instances; changes of sizes; deletion of instances.
- ``templates.py``: rules for new nodes, without I/O.
- ``client.py``: calls to AWS. ``api.py``: structs of its responses.
"""
