"""Messages of a pod, except its containers and volumes."""

from __future__ import annotations

__all__ = ["MESSAGES"]

MESSAGES = """
Pod: 0 apiVersion any, 0 kind any, 1 metadata ObjectMeta, 2 spec PodSpec, 3 status PodStatus
PodSpec: 1 volumes Volume*, 2 containers Container*, 3 restartPolicy text,
    4 terminationGracePeriodSeconds int64?, 5 activeDeadlineSeconds int64?, 6 dnsPolicy text,
    7 nodeSelector text{}, 8 serviceAccountName text, 9 serviceAccount text, 10 nodeName text,
    11 hostNetwork bool, 12 hostPID bool, 13 hostIPC bool, 14 securityContext PodSecurityContext?,
    15 imagePullSecrets LocalObjectReference*, 16 hostname text, 17 subdomain text, 18 affinity Affinity?,
    19 schedulerName text, 20 initContainers Container*, 21 automountServiceAccountToken bool?,
    22 tolerations Toleration*, 23 hostAliases HostAlias*, 24 priorityClassName text, 25 priority int32?,
    26 dnsConfig PodDNSConfig?, 27 shareProcessNamespace bool?, 28 readinessGates PodReadinessGate*,
    29 runtimeClassName text?, 30 enableServiceLinks bool?, 31 preemptionPolicy text?, 32 overhead Quantity{},
    33 topologySpreadConstraints TopologySpreadConstraint*, 34 ephemeralContainers EphemeralContainer*,
    35 setHostnameAsFQDN bool?, 36 os PodOS?, 37 hostUsers bool?, 38 schedulingGates PodSchedulingGate*,
    39 resourceClaims PodResourceClaim*, 40 resources ResourceRequirements?, 41 hostnameOverride text?,
    43 schedulingGroup PodSchedulingGroup?, 44 evictionResponders EvictionResponder*
PodStatus: 1 phase text, 2 conditions PodCondition*, 3 message text, 4 reason text, 5 hostIP text, 6 podIP text,
    7 startTime Time?, 8 containerStatuses ContainerStatus*, 9 qosClass text,
    10 initContainerStatuses ContainerStatus*, 11 nominatedNodeName text, 12 podIPs PodIP*,
    13 ephemeralContainerStatuses ContainerStatus*, 14 resize text,
    15 resourceClaimStatuses PodResourceClaimStatus*, 16 hostIPs HostIP*, 17 observedGeneration int64,
    18 extendedResourceClaimStatus PodExtendedResourceClaimStatus?, 19 allocatedResources Quantity{},
    20 resources ResourceRequirements?,
    21 nodeAllocatableResourceClaimStatuses NodeAllocatableResourceClaimStatus*,
    22 volumeHealth PodVolumeHealth*
PodSecurityContext: 1 seLinuxOptions SELinuxOptions?, 2 runAsUser int64?, 3 runAsNonRoot bool?,
    4 supplementalGroups int64*, 5 fsGroup int64?, 6 runAsGroup int64?, 7 sysctls Sysctl*,
    8 windowsOptions WindowsSecurityContextOptions?, 9 fsGroupChangePolicy text?,
    10 seccompProfile SeccompProfile?, 11 appArmorProfile AppArmorProfile?, 12 supplementalGroupsPolicy text?,
    13 seLinuxChangePolicy text?
Affinity: 1 nodeAffinity NodeAffinity?, 2 podAffinity PodAffinity?, 3 podAntiAffinity PodAffinity?
Toleration: 1 key text, 2 operator text, 3 value text, 4 effect text, 5 tolerationSeconds int64?
HostAlias: 1 ip text, 2 hostnames text*
PodDNSConfig: 1 nameservers text*, 2 searches text*, 3 options PodDNSConfigOption*
PodReadinessGate: 1 conditionType text
TopologySpreadConstraint: 1 maxSkew int32, 2 topologyKey text, 3 whenUnsatisfiable text,
    4 labelSelector LabelSelector?, 5 minDomains int32?, 6 nodeAffinityPolicy text?, 7 nodeTaintsPolicy text?,
    8 matchLabelKeys text*
PodOS: 1 name text
PodSchedulingGate: 1 name text
PodResourceClaim: 1 name text, 3 resourceClaimName text?, 4 resourceClaimTemplateName text?
ResourceRequirements: 1 limits Quantity{}, 2 requests Quantity{}, 3 claims ResourceClaim*
PodSchedulingGroup: 1 podGroupName text?
EvictionResponder: 1 name text, 2 priority int32?
PodCondition: 1 type text, 2 status text, 3 lastProbeTime Time, 4 lastTransitionTime Time, 5 reason text,
    6 message text, 7 observedGeneration int64
HostIP: 1 ip text
PodIP: 1 ip text
PodResourceClaimStatus: 1 name text, 2 resourceClaimName text?
PodExtendedResourceClaimStatus: 1 requestMappings ContainerExtendedResourceRequest*, 2 resourceClaimName text
NodeAllocatableResourceClaimStatus: 1 resourceClaimName text, 2 containers text*,
    4 mapping NodeAllocatableMappedResources*, 5 overhead NodeAllocatableOverheadResources*
PodVolumeHealth: 1 name text, 2 healthConditions VolumeHealthCondition*, 3 lastTransitionTime Time
Sysctl: 1 name text, 2 value text
NodeAffinity: 1 requiredDuringSchedulingIgnoredDuringExecution NodeSelector?,
    2 preferredDuringSchedulingIgnoredDuringExecution PreferredSchedulingTerm*
PodAffinity: 1 requiredDuringSchedulingIgnoredDuringExecution PodAffinityTerm*,
    2 preferredDuringSchedulingIgnoredDuringExecution WeightedPodAffinityTerm*
PodDNSConfigOption: 1 name text, 2 value text?
ResourceClaim: 1 name text, 2 request text
ContainerExtendedResourceRequest: 1 containerName text, 2 resourceName text, 3 requestName text
NodeAllocatableMappedResources: 1 name text, 2 quantity Quantity?
NodeAllocatableOverheadResources: 1 name text, 2 perPod Quantity?, 3 perContainer Quantity?
VolumeHealthCondition: 1 status text, 2 reason text, 3 message text
NodeSelector: 1 nodeSelectorTerms NodeSelectorTerm*
PreferredSchedulingTerm: 1 weight int32, 2 preference NodeSelectorTerm
PodAffinityTerm: 1 labelSelector LabelSelector?, 2 namespaces text*, 3 topologyKey text,
    4 namespaceSelector LabelSelector?, 5 matchLabelKeys text*, 6 mismatchLabelKeys text*
WeightedPodAffinityTerm: 1 weight int32, 2 podAffinityTerm PodAffinityTerm
NodeSelectorTerm: 1 matchExpressions NodeSelectorRequirement*, 2 matchFields NodeSelectorRequirement*
NodeSelectorRequirement: 1 key text, 2 operator text, 3 values text*
"""
