package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/owner"
)

// Where the guest is in a pod.
const (
	mainContainer  = "sandbox"
	guestContainer = "guest"
	guestDir       = "/.deepswe"
	guestPath      = guestDir + "/deepswe"
	bridgeName     = "deepswe"
)

// The labels and annotations of pods and leases. Annotations hold what a label's alphabet does not.
const (
	labelOwner   = "deepswe.owner"   // owner.Owner with dots, and a nonce
	labelKind    = "deepswe.kind"    // kindSandbox, kindOriginal
	labelNetwork = "deepswe.network" // off or on: what a NetworkPolicy selects

	annotationRun     = "deepswe.run"
	annotationRollout = "deepswe.rollout"
	annotationHost    = "deepswe.host"
)

// What our pods are for.
const (
	kindSandbox  = "sandbox"
	kindOriginal = "original" // original files are read from it
)

// level is what a namespace's Pod Security admission lets a sandbox be.
type level int

const (
	// levelFull lets the guest remove the pod's network interfaces.
	levelFull level = iota
	// levelBaseline has no right over the network.
	levelBaseline
	// levelRestricted has no user root, and so no user of their own for commands.
	levelRestricted
)

func (l level) String() string { return [...]string{"privileged", "baseline", "restricted"}[l] }

// mode is how sandboxes are started in a cluster. It is found out by the first start that is refused.
type mode struct {
	level level
	// probe is set where the network's interfaces cannot be removed, so that a NetworkPolicy has to keep it closed.
	probe bool
}

// network is the guest's --network.
func (m mode) network(s env.Spec) string {
	switch {
	case s.Network:
		return ""
	case m.probe || m.level > levelFull:
		return "probe"
	}
	return "delete"
}

// restrictedUser is the user of everything in a pod where root is forbidden, and of a repository that is copied in.
const restrictedUser = 1000

// launch describes a pod that is about to be started.
type launch struct {
	kind string
	name string
	spec env.Spec
	mode mode
	// build is the hash of the program that the guest has to be.
	build string
}

// manifest is the pod of a launch.
func (c *cluster) manifest(l launch) pod {
	o := c.options.Pods
	lifetime := cmp.Or(o.Lifetime, 12*time.Hour)
	labels := map[string]string{}
	maps.Copy(labels, o.Labels)
	labels[labelOwner], labels[labelKind], labels[labelNetwork] = c.owner, l.kind, "off"
	if l.spec.Network {
		labels[labelNetwork] = "on"
	}
	annotations := map[string]string{}
	maps.Copy(annotations, o.Annotations)
	annotations[annotationRun], annotations[annotationRollout], annotations[annotationHost] = l.spec.Run, l.spec.Rollout,
		c.hostname
	nodes := map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": arch}
	maps.Copy(nodes, o.NodeSelector)
	p := pod{
		APIVersion: "v1", Kind: "Pod",
		Metadata: metadata{
			Name: l.name, Namespace: c.namespace, Labels: labels, Annotations: annotations,
			OwnerReferences: c.ownerReferences(),
		},
		Spec: podSpec{
			Containers:    []container{c.sandboxContainer(l)},
			RestartPolicy: "Never", Hostname: "sandbox",
			NodeSelector: nodes, Tolerations: o.Tolerations, RuntimeClassName: o.RuntimeClass,
			PriorityClassName: o.PriorityClass, SchedulerName: o.Scheduler, ServiceAccountName: o.ServiceAccount,
			ActiveDeadlineSeconds:         int64(lifetime / time.Second),
			TerminationGracePeriodSeconds: new(int64(0)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext:               &podSecurity{SeccompProfile: &seccomp{"RuntimeDefault"}},
			Volumes: []volume{
				{Name: "guest", EmptyDir: &emptyDir{}},
				// Files in memory use up the sandbox's memory, the guest's included.
				{Name: "shm", EmptyDir: &emptyDir{Medium: "Memory", SizeLimit: quantity(min(64<<20, c.limits(l.spec).Memory/4))}},
			},
		},
	}
	for _, name := range o.PullSecrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, reference{name})
	}
	if o.GuestImage != "" {
		p.Spec.InitContainers = []container{c.installContainer(l)}
	}
	if l.mode.level == levelRestricted {
		p.Spec.SecurityContext.FSGroup = new(int64(restrictedUser))
		if l.spec.CopyIn != "" {
			p.Spec.Volumes = append(p.Spec.Volumes, volume{Name: "repository", EmptyDir: &emptyDir{}})
		}
	}
	return p
}

// waitForGuest is what a pod without a guest image starts with: it waits until the guest has been sent, and becomes it.
const waitForGuest = `i=0; until [ -x ` + guestPath + ` ]; do i=$((i+1)); [ $i -gt 6000 ] && exit 1; ` +
	`sleep 0.05 2>/dev/null || sleep 1; done; exec ` + guestPath + ` "$@"`

// sandboxContainer is the container that commands run in.
func (c *cluster) sandboxContainer(l launch) container {
	command := []string{guestPath}
	if c.options.Pods.GuestImage == "" {
		command = []string{"/bin/sh", "-c", escape(waitForGuest), "deepswe"}
	}
	for _, word := range c.guestArguments(l) {
		command = append(command, escape(word))
	}
	sandbox := container{
		Name: mainContainer, Image: l.spec.Image, ImagePullPolicy: c.options.Pods.PullPolicy, Command: command,
		WorkingDir: "/", Resources: c.resources(l), SecurityContext: security(l.mode, c.networkRights(l, mainContainer)),
		VolumeMounts: []mount{
			{Name: "guest", MountPath: guestDir, ReadOnly: c.options.Pods.GuestImage != ""},
			{Name: "shm", MountPath: "/dev/shm"},
		},
		// What a guest that cannot start says is in the pod's status then.
		TerminationMessagePolicy: "FallbackToLogsOnError",
	}
	if l.mode.level == levelRestricted && l.spec.CopyIn != "" {
		sandbox.VolumeMounts = append(sandbox.VolumeMounts, mount{Name: "repository", MountPath: l.spec.Dir})
	}
	for _, kv := range l.spec.Env {
		key, value, _ := strings.Cut(kv, "=")
		sandbox.Env = append(sandbox.Env, variable{key, escape(value)})
	}
	return sandbox
}

// guestArguments are the guest's, in the container that commands run in.
func (c *cluster) guestArguments(l launch) []string {
	args := []string{
		guest.Arg, "--listen", bridgeName, "--dir", l.spec.Dir, "--build", l.build, "--silence", silence.String(),
	}
	if c.options.Pods.GuestImage != "" {
		args[6] = "@" + guestPath + ".sha256" // what the image really brought
	}
	switch {
	case l.mode.level == levelRestricted:
	case l.spec.CopyIn != "":
		args = append(args, "--own", "--uid", strconv.Itoa(restrictedUser), "--gid", strconv.Itoa(restrictedUser))
	default:
		args = append(args, "--as-owner")
	}
	if len(l.spec.Prepare) > 0 {
		args = append(args, "--prepares")
	}
	if network := l.mode.network(l.spec); network == "probe" || network != "" && c.options.Pods.GuestImage == "" {
		args = append(args, "--network", network)
	}
	return append(args, c.limits(l.spec).DiskArguments()...)
}

// installContainer copies the guest from its image, and removes the network's interfaces, so that the container with
// the commands never has the right to.
func (c *cluster) installContainer(l launch) container {
	path := cmp.Or(c.options.Pods.GuestPath, "/deepswe")
	command := []string{path, guest.Arg, "--install", guestPath}
	if l.mode.network(l.spec) == "delete" {
		command = append(command, "--network", "delete")
	}
	return container{
		Name: guestContainer, Image: c.options.Pods.GuestImage, ImagePullPolicy: c.options.Pods.PullPolicy,
		Command: command, Resources: c.resources(l), SecurityContext: security(l.mode, c.networkRights(l, guestContainer)),
		VolumeMounts:             []mount{{Name: "guest", MountPath: guestDir}},
		TerminationMessagePolicy: "FallbackToLogsOnError",
	}
}

// networkRights are the capabilities for the container that removes the network's interfaces.
func (c *cluster) networkRights(l launch, container string) []string {
	by := mainContainer
	if c.options.Pods.GuestImage != "" {
		by = guestContainer
	}
	if container == by && l.mode.network(l.spec) == "delete" {
		return []string{"NET_ADMIN"}
	}
	return nil
}

// security is a container's security context. The guest gives up what it does not need before the first command, and
// commands have no capability at all.
func security(m mode, more []string) *containerSecurity {
	s := &containerSecurity{
		AllowPrivilegeEscalation: new(false), RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)),
		Capabilities: capabilities{Drop: []string{"ALL"}},
	}
	if m.level == levelRestricted {
		s.RunAsUser, s.RunAsGroup = new(int64(restrictedUser)), new(int64(restrictedUser))
		s.RunAsNonRoot = new(true)
		return s
	}
	s.Capabilities.Add = append([]string{
		"SETUID", "SETGID", "SETPCAP", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID",
	}, more...)
	return s
}

// limits are a spec's, with the defaults filled in.
func (c *cluster) limits(s env.Spec) env.Limits { return s.Limits.WithDefaults(c.options.Limits) }

// besideDisk is what a pod's disk takes beyond what its commands may write: the guest, and its own limit's slack. The
// guest ends commands that write too much; the node ends the whole pod.
const besideDisk = 1 << 30

// resources are a container's limits, and the share of them that is reserved.
func (c *cluster) resources(l launch) resources {
	most := c.limits(l.spec)
	share := cmp.Or(c.options.Pods.Requests, 0.1)
	cpu := func(n float64) string { return fmt.Sprintf("%dm", max(int64(n*1000), 1)) }
	part := func(n int64) string { return quantity(int64(float64(n) * min(share, 1))) }
	return resources{
		Limits: map[string]string{
			"memory": quantity(most.Memory), "cpu": cpu(most.CPUs), "ephemeral-storage": quantity(most.Disk + besideDisk),
		},
		Requests: map[string]string{
			"memory": part(most.Memory), "cpu": cpu(most.CPUs * min(share, 1)), "ephemeral-storage": part(most.Disk),
		},
	}
}

func quantity(bytes int64) string { return strconv.FormatInt(bytes, 10) }

// escape keeps the cluster from replacing $(NAME) in commands and variables.
func escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// podName is what kubectl get pods shows.
func podName(kind string, s env.Spec) string {
	name := strings.ToLower(cmp.Or(s.Rollout, s.Run))
	name = strings.Trim(invalidInName.ReplaceAllString(name[:min(len(name), 40)], "-"), "-")
	if kind != kindSandbox {
		name = kind
	}
	if name != "" {
		name += "-"
	}
	return "deepswe-" + name + owner.Nonce()
}

// invalidInName are the characters that a pod's name cannot have, and the dash.
var invalidInName = regexp.MustCompile(`[^a-z0-9]+`)
