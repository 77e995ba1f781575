"""Protobuf messages of pods and nodes: tables of their fields, and classes built from these (``k8s.io/api/core/v1``
1.37).

A line is ``Message: number member type, ...``. The type is ``text``, ``bool``, ``int32``, ``int64``, ``Quantity``,
``Time``, ``IntOrString`` or another message, and after it

- nothing: a field that is always written, absent members as zero (a value in the Go types, not a pointer),
- ``?``: written if the member is there and not null; ``*``: a list; ``{}``: a map of texts to this type.

A member ``.`` is a message whose members are those of its parent in JSON. Number 0 is a member of the JSON form that
is not sent. Numbers and types are those of the API's published messages (``generated.proto`` and ``types.go``).

A map is declared in its wire form, a list of entries, so that entries can be written in the order of their keys, as
Go does. The runtime orders keys differently if one key is a prefix of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple

from kscale.imports import library

__all__ = [
    "CONTAINER_MESSAGES",
    "ENTRY_KEY",
    "ENTRY_VALUE",
    "INLINE",
    "LIST",
    "MAP",
    "METADATA_MESSAGES",
    "NODE_MESSAGES",
    "OPTIONAL",
    "OWN_MEMBERS",
    "POD_MESSAGES",
    "VALUE",
    "VOLUME_MESSAGES",
    "Field",
    "Message",
    "kubernetes_message",
    "message",
    "message_types",
    "names",
    "parse",
]


METADATA_MESSAGES = """
ObjectMeta: 1 name text, 2 generateName text, 3 namespace text, 4 selfLink text, 5 uid text,
    6 resourceVersion text, 7 generation int64, 8 creationTimestamp Time, 9 deletionTimestamp Time?,
    10 deletionGracePeriodSeconds int64?, 11 labels text{}, 12 annotations text{},
    13 ownerReferences OwnerReference*, 14 finalizers text*, 0 managedFields any
OwnerReference: 1 kind text, 3 name text, 4 uid text, 5 apiVersion text, 6 controller bool?,
    7 blockOwnerDeletion bool?
LocalObjectReference: 1 name text
LabelSelector: 1 matchLabels text{}, 2 matchExpressions LabelSelectorRequirement*
LabelSelectorRequirement: 1 key text, 2 operator text, 3 values text*
"""


CONTAINER_MESSAGES = """
Container: 1 name text, 2 image text, 3 command text*, 4 args text*, 5 workingDir text, 6 ports ContainerPort*,
    7 env EnvVar*, 8 resources ResourceRequirements, 9 volumeMounts VolumeMount*, 10 livenessProbe Probe?,
    11 readinessProbe Probe?, 12 lifecycle Lifecycle?, 13 terminationMessagePath text, 14 imagePullPolicy text,
    15 securityContext SecurityContext?, 16 stdin bool, 17 stdinOnce bool, 18 tty bool,
    19 envFrom EnvFromSource*, 20 terminationMessagePolicy text, 21 volumeDevices VolumeDevice*,
    22 startupProbe Probe?, 23 resizePolicy ContainerResizePolicy*, 24 restartPolicy text?,
    25 restartPolicyRules ContainerRestartRule*
EphemeralContainer: 1 . Container, 2 targetContainerName text
ContainerStatus: 1 name text, 2 state ContainerState, 3 lastState ContainerState, 4 ready bool,
    5 restartCount int32, 6 image text, 7 imageID text, 8 containerID text, 9 started bool?,
    10 allocatedResources Quantity{}, 11 resources ResourceRequirements?, 12 volumeMounts VolumeMountStatus*,
    13 user ContainerUser?, 14 allocatedResourcesStatus ResourceStatus*, 15 stopSignal text?
ContainerPort: 1 name text, 2 hostPort int32, 3 containerPort int32, 4 protocol text, 5 hostIP text
EnvFromSource: 1 prefix text, 2 configMapRef ConfigMapEnvSource?, 3 secretRef SecretEnvSource?
EnvVar: 1 name text, 2 value text, 3 valueFrom EnvVarSource?
ContainerResizePolicy: 1 resourceName text, 2 restartPolicy text
ContainerRestartRule: 1 action text, 2 exitCodes ContainerRestartRuleOnExitCodes?
VolumeMount: 1 name text, 2 readOnly bool, 3 mountPath text, 4 subPath text, 5 mountPropagation text?,
    6 subPathExpr text, 7 recursiveReadOnly text?, 8 bindMountOptions text*
VolumeDevice: 1 name text, 2 devicePath text
Probe: 1 . ProbeHandler, 2 initialDelaySeconds int32, 3 timeoutSeconds int32, 4 periodSeconds int32,
    5 successThreshold int32, 6 failureThreshold int32, 7 terminationGracePeriodSeconds int64?
Lifecycle: 1 postStart LifecycleHandler?, 2 preStop LifecycleHandler?, 3 stopSignal text?
SecurityContext: 1 capabilities Capabilities?, 2 privileged bool?, 3 seLinuxOptions SELinuxOptions?,
    4 runAsUser int64?, 5 runAsNonRoot bool?, 6 readOnlyRootFilesystem bool?, 7 allowPrivilegeEscalation bool?,
    8 runAsGroup int64?, 9 procMount text?, 10 windowsOptions WindowsSecurityContextOptions?,
    11 seccompProfile SeccompProfile?, 12 appArmorProfile AppArmorProfile?
SELinuxOptions: 1 user text, 2 role text, 3 type text, 4 level text
WindowsSecurityContextOptions: 1 gmsaCredentialSpecName text?, 2 gmsaCredentialSpec text?,
    3 runAsUserName text?, 4 hostProcess bool?
SeccompProfile: 1 type text, 2 localhostProfile text?
AppArmorProfile: 1 type text, 2 localhostProfile text?
ContainerState: 1 waiting ContainerStateWaiting?, 2 running ContainerStateRunning?,
    3 terminated ContainerStateTerminated?
VolumeMountStatus: 1 name text, 2 mountPath text, 3 readOnly bool, 4 recursiveReadOnly text?,
    5 volumeStatus VolumeStatus?
ContainerUser: 1 linux LinuxContainerUser?
ResourceStatus: 1 name text, 2 resources ResourceHealth*
ConfigMapEnvSource: 1 . LocalObjectReference, 2 optional bool?
SecretEnvSource: 1 . LocalObjectReference, 2 optional bool?
EnvVarSource: 1 fieldRef ObjectFieldSelector?, 2 resourceFieldRef ResourceFieldSelector?,
    3 configMapKeyRef ConfigMapKeySelector?, 4 secretKeyRef SecretKeySelector?, 5 fileKeyRef FileKeySelector?
ContainerRestartRuleOnExitCodes: 1 operator text, 2 values int32*
ProbeHandler: 1 exec ExecAction?, 2 httpGet HTTPGetAction?, 3 tcpSocket TCPSocketAction?, 4 grpc GRPCAction?
LifecycleHandler: 1 exec ExecAction?, 2 httpGet HTTPGetAction?, 3 tcpSocket TCPSocketAction?,
    4 sleep SleepAction?
Capabilities: 1 add text*, 2 drop text*
ContainerStateWaiting: 1 reason text, 2 message text
ContainerStateRunning: 1 startedAt Time
ContainerStateTerminated: 1 exitCode int32, 2 signal int32, 3 reason text, 4 message text, 5 startedAt Time,
    6 finishedAt Time, 7 containerID text
VolumeStatus: 1 image ImageVolumeStatus?
LinuxContainerUser: 1 uid int64, 2 gid int64, 3 supplementalGroups int64*
ResourceHealth: 1 resourceID text, 2 health text, 6 message text?
ObjectFieldSelector: 1 apiVersion text, 2 fieldPath text
ResourceFieldSelector: 1 containerName text, 2 resource text, 3 divisor Quantity
ConfigMapKeySelector: 1 . LocalObjectReference, 2 key text, 3 optional bool?
SecretKeySelector: 1 . LocalObjectReference, 2 key text, 3 optional bool?
FileKeySelector: 1 volumeName text, 2 path text, 3 key text, 4 optional bool?
ExecAction: 1 command text*
HTTPGetAction: 1 path text, 2 port IntOrString, 3 host text, 4 scheme text, 5 httpHeaders HTTPHeader*,
    6 protocol text?
TCPSocketAction: 1 port IntOrString, 2 host text
GRPCAction: 1 port int32, 2 service text?, 3 mode text?
SleepAction: 1 seconds int64
ImageVolumeStatus: 1 imageRef text
HTTPHeader: 1 name text, 2 value text
"""


VOLUME_MESSAGES = """
Volume: 1 name text, 2 . VolumeSource
VolumeSource: 1 hostPath HostPathVolumeSource?, 2 emptyDir EmptyDirVolumeSource?,
    3 gcePersistentDisk GCEPersistentDiskVolumeSource?,
    4 awsElasticBlockStore AWSElasticBlockStoreVolumeSource?, 5 gitRepo GitRepoVolumeSource?,
    6 secret SecretVolumeSource?, 7 nfs NFSVolumeSource?, 8 iscsi ISCSIVolumeSource?,
    9 glusterfs GlusterfsVolumeSource?, 10 persistentVolumeClaim PersistentVolumeClaimVolumeSource?,
    11 rbd RBDVolumeSource?, 12 flexVolume FlexVolumeSource?, 13 cinder CinderVolumeSource?,
    14 cephfs CephFSVolumeSource?, 15 flocker FlockerVolumeSource?, 16 downwardAPI DownwardAPIVolumeSource?,
    17 fc FCVolumeSource?, 18 azureFile AzureFileVolumeSource?, 19 configMap ConfigMapVolumeSource?,
    20 vsphereVolume VsphereVirtualDiskVolumeSource?, 21 quobyte QuobyteVolumeSource?,
    22 azureDisk AzureDiskVolumeSource?, 23 photonPersistentDisk PhotonPersistentDiskVolumeSource?,
    24 portworxVolume PortworxVolumeSource?, 25 scaleIO ScaleIOVolumeSource?,
    26 projected ProjectedVolumeSource?, 27 storageos StorageOSVolumeSource?, 28 csi CSIVolumeSource?,
    29 ephemeral EphemeralVolumeSource?, 30 image ImageVolumeSource?
HostPathVolumeSource: 1 path text, 2 type text?
EmptyDirVolumeSource: 1 medium text, 2 sizeLimit Quantity?, 3 mode int32?
GCEPersistentDiskVolumeSource: 1 pdName text, 2 fsType text, 3 partition int32, 4 readOnly bool
AWSElasticBlockStoreVolumeSource: 1 volumeID text, 2 fsType text, 3 partition int32, 4 readOnly bool
GitRepoVolumeSource: 1 repository text, 2 revision text, 3 directory text
SecretVolumeSource: 1 secretName text, 2 items KeyToPath*, 3 defaultMode int32?, 4 optional bool?,
    5 defaultUser int64?
NFSVolumeSource: 1 server text, 2 path text, 3 readOnly bool
ISCSIVolumeSource: 1 targetPortal text, 2 iqn text, 3 lun int32, 4 iscsiInterface text, 5 fsType text,
    6 readOnly bool, 7 portals text*, 8 chapAuthDiscovery bool, 10 secretRef LocalObjectReference?,
    11 chapAuthSession bool, 12 initiatorName text?
GlusterfsVolumeSource: 1 endpoints text, 2 path text, 3 readOnly bool
PersistentVolumeClaimVolumeSource: 1 claimName text, 2 readOnly bool
RBDVolumeSource: 1 monitors text*, 2 image text, 3 fsType text, 4 pool text, 5 user text, 6 keyring text,
    7 secretRef LocalObjectReference?, 8 readOnly bool
FlexVolumeSource: 1 driver text, 2 fsType text, 3 secretRef LocalObjectReference?, 4 readOnly bool,
    5 options text{}
CinderVolumeSource: 1 volumeID text, 2 fsType text, 3 readOnly bool, 4 secretRef LocalObjectReference?
CephFSVolumeSource: 1 monitors text*, 2 path text, 3 user text, 4 secretFile text,
    5 secretRef LocalObjectReference?, 6 readOnly bool
FlockerVolumeSource: 1 datasetName text, 2 datasetUUID text
DownwardAPIVolumeSource: 1 items DownwardAPIVolumeFile*, 2 defaultMode int32?, 3 defaultUser int64?
FCVolumeSource: 1 targetWWNs text*, 2 lun int32?, 3 fsType text, 4 readOnly bool, 5 wwids text*
AzureFileVolumeSource: 1 secretName text, 2 shareName text, 3 readOnly bool
ConfigMapVolumeSource: 1 . LocalObjectReference, 2 items KeyToPath*, 3 defaultMode int32?, 4 optional bool?,
    5 defaultUser int64?
VsphereVirtualDiskVolumeSource: 1 volumePath text, 2 fsType text, 3 storagePolicyName text,
    4 storagePolicyID text
QuobyteVolumeSource: 1 registry text, 2 volume text, 3 readOnly bool, 4 user text, 5 group text, 6 tenant text
AzureDiskVolumeSource: 1 diskName text, 2 diskURI text, 3 cachingMode text?, 4 fsType text?, 5 readOnly bool?,
    6 kind text?
PhotonPersistentDiskVolumeSource: 1 pdID text, 2 fsType text
ProjectedVolumeSource: 1 sources VolumeProjection*, 2 defaultMode int32?, 3 defaultUser int64?
PortworxVolumeSource: 1 volumeID text, 2 fsType text, 3 readOnly bool
ScaleIOVolumeSource: 1 gateway text, 2 system text, 3 secretRef LocalObjectReference?, 4 sslEnabled bool,
    5 protectionDomain text, 6 storagePool text, 7 storageMode text, 8 volumeName text, 9 fsType text,
    10 readOnly bool
StorageOSVolumeSource: 1 volumeName text, 2 volumeNamespace text, 3 fsType text, 4 readOnly bool,
    5 secretRef LocalObjectReference?
CSIVolumeSource: 1 driver text, 2 readOnly bool?, 3 fsType text?, 4 volumeAttributes text{},
    5 nodePublishSecretRef LocalObjectReference?
EphemeralVolumeSource: 1 volumeClaimTemplate PersistentVolumeClaimTemplate?
ImageVolumeSource: 1 reference text, 2 pullPolicy text
KeyToPath: 1 key text, 2 path text, 3 mode int32?, 4 user int64?
DownwardAPIVolumeFile: 1 path text, 2 fieldRef ObjectFieldSelector?, 3 resourceFieldRef ResourceFieldSelector?,
    4 mode int32?, 5 user int64?
VolumeProjection: 1 secret SecretProjection?, 2 downwardAPI DownwardAPIProjection?,
    3 configMap ConfigMapProjection?, 4 serviceAccountToken ServiceAccountTokenProjection?,
    5 clusterTrustBundle ClusterTrustBundleProjection?, 6 podCertificate PodCertificateProjection?
PersistentVolumeClaimTemplate: 1 metadata ObjectMeta, 2 spec PersistentVolumeClaimSpec
SecretProjection: 1 . LocalObjectReference, 2 items KeyToPath*, 4 optional bool?
DownwardAPIProjection: 1 items DownwardAPIVolumeFile*
ConfigMapProjection: 1 . LocalObjectReference, 2 items KeyToPath*, 4 optional bool?
ServiceAccountTokenProjection: 1 audience text, 2 expirationSeconds int64?, 3 path text, 4 user int64?
ClusterTrustBundleProjection: 1 name text?, 2 signerName text?, 3 labelSelector LabelSelector?, 4 path text,
    5 optional bool?, 6 user int64?
PodCertificateProjection: 1 signerName text, 2 keyType text, 3 maxExpirationSeconds int32?,
    4 credentialBundlePath text, 5 keyPath text, 6 certificateChainPath text, 7 userAnnotations text{},
    8 user int64?
PersistentVolumeClaimSpec: 1 accessModes text*, 2 resources VolumeResourceRequirements, 3 volumeName text,
    4 selector LabelSelector?, 5 storageClassName text?, 6 volumeMode text?,
    7 dataSource TypedLocalObjectReference?, 8 dataSourceRef TypedObjectReference?,
    9 volumeAttributesClassName text?
VolumeResourceRequirements: 1 limits Quantity{}, 2 requests Quantity{}
TypedLocalObjectReference: 1 apiGroup text?, 2 kind text, 3 name text
TypedObjectReference: 1 apiGroup text?, 2 kind text, 3 name text, 4 namespace text?
"""


POD_MESSAGES = """
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


NODE_MESSAGES = """
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


VALUE: Final = ""
OPTIONAL: Final = "?"
LIST: Final = "*"
MAP: Final = "{}"
OWN_MEMBERS: Final = "."


class Field(NamedTuple):
    """One field. ``form``: :data:`VALUE`, :data:`OPTIONAL`, :data:`LIST` or :data:`MAP`."""

    number: int
    member: str
    type: str
    form: str


class Message(NamedTuple):
    """Fields in the order of their numbers, and all members of the JSON form, including those of embedded messages."""

    name: str
    fields: tuple[Field, ...]
    members: frozenset[str]


def parse(table: str) -> dict[str, Message]:
    """Parse a table, in the form that this module describes, into its messages by name, in the table's order."""
    lines: dict[str, str] = {}
    for line in filter(None, table.replace("\n    ", " ").splitlines()):
        name, _, fields = line.partition(":")
        lines[name] = fields
    messages: dict[str, Message] = {}
    for name in lines:
        _parse(name, lines, messages)
    return {name: messages[name] for name in lines}


def _parse(name: str, lines: dict[str, str], messages: dict[str, Message]) -> Message:
    """Return the message ``name``, after adding it and the messages that it embeds to ``messages``."""
    if name in messages:
        return messages[name]
    fields = [_parse_field(part) for part in lines[name].split(",")]
    members = {field.member for field in fields}
    for field in fields:
        if field.member == OWN_MEMBERS:
            members |= _parse(field.type, lines, messages).members
    sent = sorted(field for field in fields if field.number)
    messages[name] = Message(name, tuple(sent), frozenset(members - {OWN_MEMBERS}))
    return messages[name]


def _parse_field(part: str) -> Field:
    """Parse ``NUMBER MEMBER TYPE``. A suffix of the type marks an optional field, a list or a map."""
    number, member, type_ = part.split()
    form = next((form for form in (OPTIONAL, LIST, MAP) if type_.endswith(form)), VALUE)
    return Field(int(number), member, type_.removesuffix(form), form)


@cache
def _load_messages() -> dict[str, Message]:
    """Return the messages of all tables of this module, by name."""
    return parse(METADATA_MESSAGES + POD_MESSAGES + CONTAINER_MESSAGES + VOLUME_MESSAGES + NODE_MESSAGES)


def names() -> list[str]:
    """Return the names of the messages of all tables."""
    return list(_load_messages())


def message(name: str) -> Message | None:
    """Return a message by name; None if no table has it."""
    return _load_messages().get(name)


INLINE: Final = "inline"
"""The field of a message whose members stand among their parent's in JSON."""
ENTRY_KEY, ENTRY_VALUE = "key", "value"

_SCALARS: Final = {"double": 1, "int64": 3, "int32": 5, "bool": 8, "text": 9, "bytes": 12}
_MESSAGE: Final = 11
_OPTIONAL, _REPEATED = 1, 3
_KUBERNETES: Final = "k8s.io.api.core.v1"
_HELPERS: Final = """
Quantity: 1 string text?
Time: 1 seconds int64?, 2 nanos int32?
IntOrString: 1 type int64?, 2 intVal int32?, 3 strVal text?
"""


def message_types(package: str, messages: Iterable[Message], *, syntax: str = "proto2") -> dict[str, Any]:
    """Build protobuf classes, by name, for messages described by tables.

    Fields may also have the types ``bytes`` and ``double``, which the tables of this module do not use. With ``syntax``
    ``proto2`` each field records whether it was set. With ``proto3`` text that is not UTF-8 makes a message unreadable,
    as with upstream's gRPC services. Raises MissingExtraError if the protobuf runtime is not installed.
    """
    descriptor_pb2, descriptor_pool, message_factory = (
        library(f"google.protobuf.{name}", "the protobuf form of objects")
        for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
    )
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)

    def add(to: Any, number: int, name: str, type_: str, label: int) -> None:
        field = to.field.add(number=number, name=name, label=label, type=_SCALARS.get(type_, _MESSAGE))
        if field.type == _MESSAGE:
            field.type_name = f".{package}.{type_}"

    names_of_messages = []
    for of in messages:
        names_of_messages.append(of.name)
        descriptor = file.message_type.add(name=of.name)
        for field in of.fields:
            name = INLINE if field.member == OWN_MEMBERS else field.member
            if field.form == MAP:
                entry = descriptor.nested_type.add(name=f"{name}_entry")
                add(entry, 1, ENTRY_KEY, "text", _OPTIONAL)
                add(entry, 2, ENTRY_VALUE, field.type, _OPTIONAL)
                add(descriptor, field.number, name, f"{of.name}.{name}_entry", _REPEATED)
            else:
                add(descriptor, field.number, name, field.type, _REPEATED if field.form == LIST else _OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in names_of_messages
    }


@cache
def _build_kubernetes() -> dict[str, Any]:
    """Return the protobuf classes of all messages by name."""
    messages = [of for name in names() if (of := message(name)) is not None]
    return message_types(_KUBERNETES, [*parse(_HELPERS).values(), *messages])


def kubernetes_message(name: str) -> Any:
    """Return the class of an API message such as ``Pod``.

    Raises KeyError for an unknown name, MissingExtraError without the protobuf runtime.
    """
    return _build_kubernetes()[name]
