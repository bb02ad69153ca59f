package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

// PodError says why a pod does not start, or why it has ended.
type PodError struct {
	Pod string
	// Reason is the cluster's reason (ErrImagePull, Unschedulable, Evicted, OOMKilled); Text explains it in a
	// sentence.
	Reason, Text string
	// kind is the sentinel that Unwrap returns.
	kind error
	// vague is set if the node may still report the cause.
	vague bool
}

func (e *PodError) Error() string { return fmt.Sprintf("pod %s: %s", e.Pod, e.Text) }

// Unwrap returns env.ErrExhausted if the sandbox's commands used up its limits, env.ErrNoImage or
// env.ErrUnsupported if retrying cannot help, and otherwise env.ErrInfrastructure.
func (e *PodError) Unwrap() error { return e.kind }

// errNetworkStays reports that a pod's network interfaces cannot be deleted, so that a NetworkPolicy is needed.
var errNetworkStays = errors.New("the network's interfaces cannot be removed")

// ended returns why a pod has ended, or nil if it has not.
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
		e.Text = "it has reached the longest lifetime of a sandbox"
		return e
	}
	for _, c := range s.containers() {
		// Containers that the cluster has added may end.
		if t := c.State.Terminated; t != nil && (c.Name == mainContainer || c.Name == guestContainer && t.ExitCode != 0) {
			return terminatedError(e, t)
		}
	}
	if s.Phase == "Failed" || s.Phase == "Succeeded" {
		for _, c := range s.containers() {
			if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
				e.Reason = t.Reason
				e.Text = fmt.Sprintf("the container %s, which the cluster has added, ended with %s", c.Name, exit(t))
				return e
			}
		}
		e.Text = strings.TrimSpace("it has ended (" + s.Phase + ") " + s.Reason + " " + s.Message)
		return e
	}
	if p.Metadata.DeletionTimestamp != nil {
		return deleted(e.Pod)
	}
	return nil
}

// deleted returns the error for a pod that is gone.
func deleted(pod string) *PodError {
	return &PodError{Pod: pod, Reason: "Deleted", Text: "it was deleted by somebody else", kind: env.ErrInfrastructure}
}

// settle is how long after a container's end its node may take to report the cause: an eviction, for example.
const settle = 3 * time.Second

// explained waits for the cause of a pod's end, if err does not say it. The pod's status changes several times as it
// ends.
func (c *cluster) explained(ctx context.Context, w *watched, err error) error {
	late := time.After(settle)
	for {
		if e, ok := errors.AsType[*PodError](err); !ok || !e.vague {
			return err
		}
		p, gone, change := c.watch.look(w)
		if now := ended(p); now != nil {
			err = now
		}
		if e, ok := errors.AsType[*PodError](err); gone || ok && !e.vague {
			return err
		}
		select {
		case <-change:
		case <-late:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// disrupted explains why the cluster ended a pod.
func disrupted(c condition) string {
	why := map[string]string{
		"PreemptionByScheduler":        "it was preempted by a pod of higher priority",
		"DeletionByTaintManager":       "its node got a taint that it does not tolerate",
		"EvictionByEvictionAPI":        "it was evicted to drain its node",
		"DeletionByPodGC":              "its node is gone",
		"TerminationByKubelet":         "its node is short of resources or shutting down",
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

// evicted distinguishes a node that is short of space from a sandbox that has filled its own disk.
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

// terminatedError explains why a container ended.
func terminatedError(e *PodError, t *terminated) error {
	said := lastLine(t.Message)
	e.Reason = t.Reason
	switch {
	case t.Reason == "OOMKilled":
		e.Text, e.kind = "its commands have used up its memory", env.ErrExhausted
	case t.ExitCode == guest.ExitNetworkStays:
		e.Reason, e.Text, e.kind = "NetworkStays", said, errNetworkStays
	case t.ExitCode == guest.ExitNetworkOpen:
		e.Reason, e.kind = "NetworkOpen", env.ErrUnsupported
		e.Text = said + "; to fix: apply the NetworkPolicy that docs/kubernetes.md shows, in a cluster whose network " +
			"plugin enforces it, or let sandboxes have NET_ADMIN (Pod Security level privileged)"
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		e.Text = "it cannot start: " + said
		if strings.Contains(said, "/bin/sh") {
			e.kind = env.ErrUnsupported
			e.Text = "its image has no /bin/sh, which is needed to send the guest; to fix: set kubernetes.guest_image in " +
				"the configuration (docs/kubernetes.md)"
		}
	case t.Reason == "ContainerStatusUnknown":
		e.Text = "its node lost track of it"
	default:
		e.Text = "it ended with " + exit(t)
		if said == "" { // a guest that ends by itself says why
			e.vague = true
			e.Text += ", without a message: something outside the sandbox killed it, or its node could not run it"
		}
	}
	return e
}

// exit returns a container's exit code and the last line that it printed.
func exit(t *terminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if said := lastLine(t.Message); said != "" {
		text += ": " + said
	}
	return text
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// impediments tracks what keeps a pod from starting.
type impediments struct {
	failed   time.Time // when the first pull failed, which the cluster keeps retrying; zero if none has
	unplaced time.Time // since when no node accepts the pod; zero if scheduled
	why      string    // the scheduler's reason
}

// pullWait is how long a registry may be out of order or out of reach before a start fails.
const pullWait = 5 * time.Minute

// watch examines a pod that is being started, and returns an error if the start cannot succeed.
func (i *impediments) watch(p *pod, c *cluster) error {
	if p.Status == nil {
		return nil
	}
	if err := ended(p); err != nil {
		return err
	}
	for _, s := range p.Status.containers() {
		if w := s.State.Waiting; w != nil {
			if err := i.waiting(c, p, s.Name, w.Reason, w.Message); err != nil {
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
		i.why, _, _ = strings.Cut(cond.Message, ". ") // what follows is about preemption
		if time.Since(i.unplaced) >= c.nodeWait(cond.Message) {
			e := &PodError{Pod: p.Metadata.Name, Reason: cond.Reason, kind: env.ErrInfrastructure,
				Text: "no node takes it: " + i.why}
			if strings.Contains(cond.Message, "untolerated taint") {
				e.Text += " (a node has a taint while it is short of memory, disk or process numbers, or if it is reserved: " +
					"see kubernetes.tolerations in docs/kubernetes.md)"
			}
			return e
		}
	}
	return nil
}

// waiting returns an error if a container waits for a reason that is final. A pull that the registry refuses is final
// at once, and one that does not reach the registry after pullWait.
func (i *impediments) waiting(c *cluster, p *pod, container, reason, message string) error {
	e := &PodError{Pod: p.Metadata.Name, Reason: reason, kind: env.ErrInfrastructure}
	image := p.imageOf(container)
	switch reason {
	case "ErrImagePull", "ImagePullBackOff":
		e.Text = fmt.Sprintf("the image %s cannot be pulled: %s", image, lastLine(message))
		if refusedPull(message) {
			e.kind = env.ErrNoImage
			return e
		}
		if i.failed.IsZero() {
			i.failed = time.Now()
		}
		if time.Since(i.failed) < pullWait {
			if c.pulled.complain(image) {
				c.log.Warn("waiting for the registry", "cluster", c.where(), "for", pullWait, "error", e)
			}
			return nil
		}
	case "ErrImageNeverPull":
		e.kind = env.ErrNoImage
		e.Text = fmt.Sprintf("the image %s is not on the node, and the pull policy forbids pulling it", image)
	case "InvalidImageName":
		e.kind, e.Text = env.ErrNoImage, fmt.Sprintf("%q is not a valid image name", image)
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

// refusedPull reports whether a registry has answered that it does not have the image, or does not allow the pull.
func refusedPull(message string) bool {
	if strings.Contains(message, "no such host") { // "lookup …: no such host", where other text may say "not found"
		return false
	}
	return slices.ContainsFunc([]string{"not found", "denied", "unauthorized", "authorization failed"},
		func(said string) bool { return strings.Contains(message, said) })
}

// unplacedWait is how long a pod may wait for a node, unless room is lacking and another sandbox of ours may end.
const unplacedWait = 15 * time.Second

func (c *cluster) nodeWait(message string) time.Duration {
	wait := max(unplacedWait, c.options.Pods.NodeWait)
	full := strings.Contains(message, "Insufficient ") || strings.Contains(message, "Too many pods")
	if full && c.watch.placed() > 0 {
		wait = max(wait, turnWait)
	}
	return wait
}
