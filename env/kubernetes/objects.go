package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The parts of the API's objects that this package reads or writes. Other fields of responses are ignored.

type metadata struct {
	Name              string            `json:"name,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	CreationTimestamp *time.Time        `json:"creationTimestamp,omitempty"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp,omitempty"`
	OwnerReferences   []ownerReference  `json:"ownerReferences,omitempty"`
}

type ownerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

type pod struct {
	APIVersion string     `json:"apiVersion,omitempty"`
	Kind       string     `json:"kind,omitempty"`
	Metadata   metadata   `json:"metadata"`
	Spec       podSpec    `json:"spec"`
	Status     *podStatus `json:"status,omitempty"`
}

// imageOf returns the image of a container. The cluster may have added containers, even before ours.
func (p *pod) imageOf(container string) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

type podSpec struct {
	Containers                    []container       `json:"containers"`
	InitContainers                []container       `json:"initContainers,omitempty"`
	Volumes                       []volume          `json:"volumes,omitempty"`
	RestartPolicy                 string            `json:"restartPolicy,omitempty"`
	NodeName                      string            `json:"nodeName,omitempty"`
	Hostname                      string            `json:"hostname,omitempty"`
	NodeSelector                  map[string]string `json:"nodeSelector,omitempty"`
	Tolerations                   []Toleration      `json:"tolerations,omitempty"`
	TopologySpreadConstraints     []spread          `json:"topologySpreadConstraints,omitempty"`
	RuntimeClassName              string            `json:"runtimeClassName,omitempty"`
	PriorityClassName             string            `json:"priorityClassName,omitempty"`
	SchedulerName                 string            `json:"schedulerName,omitempty"`
	ServiceAccountName            string            `json:"serviceAccountName,omitempty"`
	ImagePullSecrets              []reference       `json:"imagePullSecrets,omitempty"`
	ActiveDeadlineSeconds         int64             `json:"activeDeadlineSeconds,omitempty"`
	TerminationGracePeriodSeconds *int64            `json:"terminationGracePeriodSeconds,omitempty"`
	AutomountServiceAccountToken  *bool             `json:"automountServiceAccountToken,omitempty"`
	EnableServiceLinks            *bool             `json:"enableServiceLinks,omitempty"`
	SecurityContext               *podSecurity      `json:"securityContext,omitempty"`
}

type reference struct {
	Name string `json:"name"`
}

// Toleration allows pods on nodes that have a matching taint.
type Toleration struct {
	Key      string `json:"key,omitempty" yaml:"key"`
	Operator string `json:"operator,omitempty" yaml:"operator"`
	Value    string `json:"value,omitempty" yaml:"value"`
	Effect   string `json:"effect,omitempty" yaml:"effect"`
}

// TopologySpread spreads the pods of a process over nodes or zones.
type TopologySpread struct {
	// TopologyKey is the node label whose values count as one place, such as kubernetes.io/hostname.
	TopologyKey string `yaml:"topology_key"`
	// MaxSkew is by how many pods two places may differ; 0 means 1.
	MaxSkew int `yaml:"max_skew"`
	// WhenUnsatisfiable is DoNotSchedule, or ScheduleAnyway if it is empty.
	WhenUnsatisfiable string `yaml:"when_unsatisfiable"`
}

// spread is a TopologySpread with the pods that it counts.
type spread struct {
	TopologyKey       string        `json:"topologyKey"`
	MaxSkew           int           `json:"maxSkew"`
	WhenUnsatisfiable string        `json:"whenUnsatisfiable"`
	LabelSelector     labelSelector `json:"labelSelector"`
}

type labelSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type container struct {
	Name                     string             `json:"name"`
	Image                    string             `json:"image"`
	ImagePullPolicy          string             `json:"imagePullPolicy,omitempty"`
	Command                  []string           `json:"command,omitempty"`
	WorkingDir               string             `json:"workingDir,omitempty"`
	Env                      []variable         `json:"env,omitempty"`
	Resources                resources          `json:"resources"`
	VolumeMounts             []mount            `json:"volumeMounts,omitempty"`
	SecurityContext          *containerSecurity `json:"securityContext,omitempty"`
	TerminationMessagePolicy string             `json:"terminationMessagePolicy,omitempty"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type resources struct {
	Limits   map[string]string `json:"limits,omitempty"`
	Requests map[string]string `json:"requests,omitempty"`
}

type volume struct {
	Name     string    `json:"name"`
	EmptyDir *emptyDir `json:"emptyDir,omitempty"`
}

type emptyDir struct {
	Medium    string `json:"medium,omitempty"`
	SizeLimit string `json:"sizeLimit,omitempty"`
}

type mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

type podSecurity struct {
	FSGroup        *int64   `json:"fsGroup,omitempty"`
	SeccompProfile *seccomp `json:"seccompProfile,omitempty"`
}

type seccomp struct {
	Type string `json:"type"`
}

type containerSecurity struct {
	RunAsUser                *int64       `json:"runAsUser,omitempty"`
	RunAsGroup               *int64       `json:"runAsGroup,omitempty"`
	RunAsNonRoot             *bool        `json:"runAsNonRoot,omitempty"`
	AllowPrivilegeEscalation *bool        `json:"allowPrivilegeEscalation,omitempty"`
	Capabilities             capabilities `json:"capabilities"`
}

type capabilities struct {
	Add  []string `json:"add,omitempty"`
	Drop []string `json:"drop,omitempty"`
}

type podStatus struct {
	Phase                 string            `json:"phase"`
	Reason                string            `json:"reason"`
	Message               string            `json:"message"`
	Conditions            []condition       `json:"conditions"`
	ContainerStatuses     []containerStatus `json:"containerStatuses"`
	InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
}

// containers returns the states of all containers, and leaves the status, which several goroutines read, as it is.
func (s *podStatus) containers() []containerStatus {
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses)
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type containerStatus struct {
	Name  string `json:"name"`
	State struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
		Running    *struct{}   `json:"running"`
		Terminated *terminated `json:"terminated"`
	} `json:"state"`
}

type terminated struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
}

type podList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []pod `json:"items"`
}

type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

type lease struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   metadata  `json:"metadata"`
	Spec       leaseSpec `json:"spec"`
}

type leaseSpec struct {
	HolderIdentity       string     `json:"holderIdentity,omitempty"`
	LeaseDurationSeconds int        `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          *microTime `json:"acquireTime,omitempty"`
	RenewTime            *microTime `json:"renewTime,omitempty"`
}

// microTime is a time in the format of leases: with exactly six digits after the second.
type microTime struct{ time.Time }

func (t microTime) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

type leaseList struct {
	Items []lease `json:"items"`
}

type quotaList struct {
	Items []struct {
		Metadata metadata `json:"metadata"`
		Status   struct {
			Hard map[string]string `json:"hard"`
			Used map[string]string `json:"used"`
		} `json:"status"`
	} `json:"items"`
}

type accessReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Attributes access `json:"resourceAttributes"`
	} `json:"spec"`
	Status struct {
		Allowed bool `json:"allowed"`
	} `json:"status,omitzero"`
}

type access struct {
	Namespace   string `json:"namespace"`
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
}

type versionInfo struct {
	Major      string `json:"major"`
	Minor      string `json:"minor"`
	GitVersion string `json:"gitVersion"`
}

// statusError is an error response of the API server.
type statusError struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
}

func (e *statusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the API server answered %d %s", e.Code, e.Reason)
	}
	return e.Message
}
