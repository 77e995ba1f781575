"""Messages of containers and of what became of them."""

from __future__ import annotations

__all__ = ["MESSAGES"]

MESSAGES = """
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
