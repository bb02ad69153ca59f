package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"deepswe/env"
)

// PodError says why a pod does not start, or has ended.
type PodError struct {
	Pod string
	// Reason is the cluster's word (ErrImagePull, Unschedulable, Evicted, OOMKilled), Text one sentence about it.
	Reason, Text string
	// kind is the sentinel that the error is.
	kind error
}

func (e *PodError) Error() string { return fmt.Sprintf("pod %s: %s", e.Pod, e.Text) }

// Unwrap makes a PodError an infrastructure failure; env.ErrExhausted where what ran in the sandbox has ended it, and
// env.ErrNoImage or env.ErrUnsupported where another try cannot help.
func (e *PodError) Unwrap() error { return e.kind }

// The codes with which a guest ends that could not close the network; see package inside.
const (
	exitNetworkStays = 71
	exitNetworkOpen  = 72
)

// errNetworkStays says that a pod's interfaces cannot be removed, so that a NetworkPolicy has to do.
var errNetworkStays = errors.New("the network's interfaces cannot be removed")

// ended returns how a pod's life has ended; nil while it has not.
func ended(p *pod) error {
	s := p.Status
	if s == nil {
		return nil
	}
	e := &PodError{Pod: p.Metadata.Name, Reason: s.Reason, Text: s.Message, kind: env.ErrInfrastructure}
	for _, c := range s.Conditions {
		if c.Type == "DisruptionTarget" && c.Status == "True" {
			e.Reason, e.Text = c.Reason, disrupted(c)
			return e
		}
	}
	switch s.Reason {
	case "Evicted":
		return evicted(e, s.Message)
	case "DeadlineExceeded":
		e.Text = "it has lived longer than the longest lifetime of a sandbox"
		return e
	}
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		if t := c.State.Terminated; t != nil && (c.Name != guestContainer || t.ExitCode != 0) {
			return terminatedError(e, t)
		}
	}
	if s.Phase == "Failed" || s.Phase == "Succeeded" {
		e.Text = strings.TrimSpace("it has ended (" + s.Phase + ") " + s.Reason + " " + s.Message)
		return e
	}
	if p.Metadata.DeletionTimestamp != nil {
		e.Reason, e.Text = "Deleted", "it is being deleted by somebody else"
		return e
	}
	return nil
}

// disrupted explains what the cluster has done to a pod for reasons of its own.
func disrupted(c condition) string {
	why := map[string]string{
		"PreemptionByScheduler":        "it was preempted by a pod of higher priority",
		"DeletionByTaintManager":       "its node got a taint that it does not tolerate",
		"EvictionByEvictionAPI":        "it was evicted to drain its node",
		"DeletionByPodGC":              "its node is gone",
		"TerminationByKubelet":         "its node ended it: it is short of resources, or shuts down",
		"DeletionByDeviceTaintManager": "a device of its node got a taint",
	}[c.Reason]
	if why == "" {
		why = "the cluster ended it: " + c.Reason
	}
	if c.Message != "" {
		why += " (" + c.Message + ")"
	}
	return why
}

// evicted tells a node that is short of room from a sandbox that has filled its own.
func evicted(e *PodError, message string) error {
	for _, own := range []string{"exceeds the total limit of containers", "exceeded its local ephemeral storage limit",
		"Usage of EmptyDir volume"} {
		if strings.Contains(message, own) {
			e.Text, e.kind = "its commands have filled its disk: "+message, env.ErrExhausted
			return e
		}
	}
	e.Text = "it was evicted: " + message
	return e
}

// terminatedError explains the end of a container.
func terminatedError(e *PodError, t *terminated) error {
	said := lastLine(t.Message)
	e.Reason = t.Reason
	switch {
	case t.Reason == "OOMKilled":
		e.Text, e.kind = "its commands have used up its memory", env.ErrExhausted
	case t.ExitCode == exitNetworkStays:
		e.Reason, e.Text, e.kind = "NetworkStays", said, errNetworkStays
	case t.ExitCode == exitNetworkOpen:
		e.Reason, e.kind = "NetworkOpen", env.ErrUnsupported
		e.Text = said + "; to fix: apply the NetworkPolicy that docs/kubernetes.md shows, in a cluster whose network " +
			"plugin " +
			"enforces it, or let sandboxes have NET_ADMIN (Pod Security level privileged)"
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		e.Text = "it cannot start: " + said
		if strings.Contains(said, "/bin/sh") {
			e.kind = env.ErrUnsupported
			e.Text = "its image has no /bin/sh, through which the guest would be sent; to fix: set kubernetes.guest_image in " +
				"the configuration (docs/kubernetes.md)"
		}
	case t.Reason == "ContainerStatusUnknown":
		e.Text = "its node lost track of it"
	default:
		e.Text = fmt.Sprintf("it ended with exit code %d", t.ExitCode)
		if said != "" {
			e.Text += ": " + said
		}
	}
	return e
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// impediments follows what keeps a pod from starting.
type impediments struct {
	failures int // of the image's pull, that the cluster goes on trying
	pulled   string
	unplaced time.Time // since when no node takes the pod
}

// watch looks at a pod that is being started. It returns an error when the start is in vain, and for how long to wait
// for a node at most; 0 where none is being waited for.
func (i *impediments) watch(p *pod, c *cluster) error {
	if p.Status == nil {
		return nil
	}
	if err := ended(p); err != nil {
		return err
	}
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w != nil {
			if err := i.waiting(p, w.Reason, w.Message); err != nil {
				return err
			}
		}
	}
	for _, cond := range p.Status.Conditions {
		if cond.Type != "PodScheduled" {
			continue
		}
		if cond.Status != "False" || cond.Reason != "Unschedulable" {
			i.unplaced = time.Time{}
			continue
		}
		if i.unplaced.IsZero() {
			i.unplaced = time.Now()
		}
		if time.Since(i.unplaced) >= c.nodeWait(cond.Message) {
			return &PodError{Pod: p.Metadata.Name, Reason: cond.Reason, kind: env.ErrInfrastructure,
				Text: "no node takes it: " + cond.Message}
		}
	}
	return nil
}

// waiting judges why a container waits. A pull that failed once may succeed: registries have bad moments.
func (i *impediments) waiting(p *pod, reason, message string) error {
	e := &PodError{Pod: p.Metadata.Name, Reason: reason, kind: env.ErrInfrastructure}
	image := p.Spec.Containers[0].Image
	switch reason {
	case "ErrImagePull", "ImagePullBackOff":
		if reason != i.pulled {
			i.pulled = reason
			i.failures++
		}
		final := strings.Contains(message, "not found") || strings.Contains(message, "no such host") ||
			strings.Contains(message, "denied") || strings.Contains(message, "unauthorized") ||
			strings.Contains(message, "authorization failed")
		if i.failures < 2 && !final {
			return nil
		}
		if final {
			e.kind = env.ErrNoImage
		}
		e.Text = fmt.Sprintf("the image %s cannot be pulled: %s", image, lastLine(message))
	case "ErrImageNeverPull":
		e.kind, e.Text = env.ErrNoImage, fmt.Sprintf("the image %s is not on the node, and may not be pulled", image)
	case "InvalidImageName":
		e.kind, e.Text = env.ErrNoImage, fmt.Sprintf("%q is not the name of an image", image)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		e.Text = "its container cannot be created: " + lastLine(message)
		if strings.Contains(message, "exec format error") || strings.Contains(message, "no match for platform") {
			e.kind, e.Text = env.ErrUnsupported, "its node has another architecture: "+lastLine(message)
		}
	default:
		return nil
	}
	return e
}

// How long a pod may stay without a node: until one of our other sandboxes ends, where there are any and it is room
// that lacks.
const (
	unplacedWait = 15 * time.Second
	roomWait     = 10 * time.Minute
)

func (c *cluster) nodeWait(message string) time.Duration {
	wait := max(unplacedWait, c.options.Pods.NodeWait)
	if strings.Contains(message, "Insufficient ") || strings.Contains(message, "Too many pods") {
		if c.placed() > 0 {
			wait = max(wait, roomWait)
		}
	}
	return wait
}
