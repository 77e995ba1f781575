"""Messages of a node."""

from __future__ import annotations

__all__ = ["MESSAGES"]

MESSAGES = """
Node: 0 apiVersion any, 0 kind any, 1 metadata ObjectMeta, 2 spec NodeSpec, 3 status NodeStatus
NodeSpec: 1 podCIDR text, 2 externalID text, 3 providerID text, 4 unschedulable bool, 5 taints Taint*,
    6 configSource NodeConfigSource?, 7 podCIDRs text*, 8 podPreemptionPolicy NodePodPreemptionPolicy?
NodeStatus: 1 capacity Quantity{}, 2 allocatable Quantity{}, 3 phase text, 4 conditions NodeCondition*,
    5 addresses NodeAddress*, 6 daemonEndpoints NodeDaemonEndpoints, 7 nodeInfo NodeSystemInfo,
    8 images ContainerImage*, 9 volumesInUse text*, 10 volumesAttached AttachedVolume*,
    11 config NodeConfigStatus?, 12 runtimeHandlers NodeRuntimeHandler*, 13 features NodeFeatures?,
    14 declaredFeatures text*
Taint: 1 key text, 2 value text, 3 effect text, 4 timeAdded Time?
NodeConfigSource: 2 configMap ConfigMapNodeConfigSource?
NodePodPreemptionPolicy: 1 disableResizePreemption text*
NodeCondition: 1 type text, 2 status text, 3 lastHeartbeatTime Time, 4 lastTransitionTime Time, 5 reason text,
    6 message text
NodeAddress: 1 type text, 2 address text
NodeDaemonEndpoints: 1 kubeletEndpoint DaemonEndpoint
NodeSystemInfo: 1 machineID text, 2 systemUUID text, 3 bootID text, 4 kernelVersion text, 5 osImage text,
    6 containerRuntimeVersion text, 7 kubeletVersion text, 8 kubeProxyVersion text, 9 operatingSystem text,
    10 architecture text, 11 swap NodeSwapStatus?, 12 runningInUserNamespace bool?
ContainerImage: 1 names text*, 2 sizeBytes int64
AttachedVolume: 1 name text, 2 devicePath text
NodeConfigStatus: 1 assigned NodeConfigSource?, 2 active NodeConfigSource?, 3 lastKnownGood NodeConfigSource?,
    4 error text
NodeRuntimeHandler: 1 name text, 2 features NodeRuntimeHandlerFeatures?
NodeFeatures: 1 supplementalGroupsPolicy bool?
ConfigMapNodeConfigSource: 1 namespace text, 2 name text, 3 uid text, 4 resourceVersion text,
    5 kubeletConfigKey text
DaemonEndpoint: 1 Port int32
NodeSwapStatus: 1 capacity int64?
NodeRuntimeHandlerFeatures: 1 recursiveReadOnlyMounts bool?, 2 userNamespaces bool?
"""
