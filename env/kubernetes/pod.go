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
	"deepswe/env/fleet"
	"deepswe/env/guest"
)

// Paths and names of the guest in a pod.
const (
	mainContainer  = "sandbox"
	guestContainer = "guest"
	guestDir       = "/.deepswe"
	guestPath      = guestDir + "/deepswe"
	bridgeName     = "deepswe"
)

// Labels and annotations of pods and leases. Annotations hold values with characters that labels cannot have.
const (
	labelOwner   = "deepswe.owner"   // fleet.Owner with dots, and a nonce
	labelKind    = "deepswe.kind"    // kindSandbox, kindOriginal, kindPull
	labelNetwork = "deepswe.network" // off or on: what a NetworkPolicy selects

	annotationRun     = "deepswe.run"
	annotationRollout = "deepswe.rollout"
	annotationHost    = "deepswe.host"
)

// The purposes of our pods.
const (
	kindSandbox  = "sandbox"
	kindOriginal = "original" // original files are read from it
	kindPull     = "pull"     // makes a node pull an image
)

// level is the most privileged kind of pod that a namespace's Pod Security admission accepts.
type level int

const (
	// levelFull lets the guest delete the pod's network interfaces.
	levelFull level = iota
	// levelBaseline has no privileges over the network.
	levelBaseline
	// levelRestricted has no root user, so commands run as the guest's own user.
	levelRestricted
)

func (l level) String() string { return [...]string{"privileged", "baseline", "restricted"}[l] }

// mode is how sandboxes are started in a cluster. It starts at the most privileged and is lowered when the cluster
// refuses a pod.
type mode struct {
	level level
	// probe is set if the network interfaces cannot be deleted, so that only a NetworkPolicy can close the network.
	probe bool
}

// network returns the value of the guest's --network.
func (m mode) network(s env.Spec) string {
	switch {
	case s.Network:
		return ""
	case m.probe || m.level > levelFull:
		return "probe"
	}
	return "delete"
}

// restrictedUser runs everything in pods that must not have a root user, and owns the copied repository there.
const restrictedUser = 1000

// launch describes a pod to be started.
type launch struct {
	kind string
	name string
	spec env.Spec
	mode mode
	// build is the hash that the guest's program must have.
	build string
	turn  *turn
}

// manifest returns the pod of a launch.
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
			OwnerReferences: c.lease.references(),
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
				// Files in memory count towards the sandbox's memory limit.
				{Name: "shm", EmptyDir: &emptyDir{Medium: "Memory", SizeLimit: quantity(min(64<<20, c.limits(l.spec).Memory/4))}},
			},
		},
	}
	for _, t := range o.TopologySpread {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, spread{
			TopologyKey: t.TopologyKey, MaxSkew: cmp.Or(t.MaxSkew, 1),
			WhenUnsatisfiable: cmp.Or(t.WhenUnsatisfiable, "ScheduleAnyway"),
			LabelSelector:     labelSelector{map[string]string{labelOwner: c.owner}},
		})
	}
	for _, name := range o.PullSecrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, reference{name})
	}
	if o.GuestImage != "" {
		p.Spec.InitContainers = []container{c.installContainer(l)}
	}
	if l.mode.level == levelRestricted {
		p.Spec.SecurityContext.FSGroup = new(int64(restrictedUser))
	}
	for _, m := range filled(l) {
		p.Spec.Volumes = append(p.Spec.Volumes, volume{Name: m.Name, EmptyDir: &emptyDir{}})
	}
	return p
}

// waitForGuest is the first command of a pod without a guest image: it waits until the guest has been sent, and
// executes it.
const waitForGuest = `i=0; until [ -x ` + guestPath + ` ]; do i=$((i+1)); [ $i -gt 6000 ] && exit 1; ` +
	`sleep 0.05 2>/dev/null || sleep 1; done; exec ` + guestPath + ` "$@"`

// sandboxContainer returns the container that runs the guest and commands.
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
		// If the guest cannot start, its last output becomes part of the pod's status.
		TerminationMessagePolicy: "FallbackToLogsOnError",
	}
	sandbox.VolumeMounts = append(sandbox.VolumeMounts, filled(l)...)
	for _, kv := range l.spec.Env {
		key, value, _ := strings.Cut(kv, "=")
		sandbox.Env = append(sandbox.Env, variable{key, escape(value)})
	}
	return sandbox
}

// filled returns the mounts of volumes for what is copied in by a user who cannot create the folders.
func filled(l launch) (all []mount) {
	if l.mode.level == levelRestricted && l.spec.CopyIn != "" {
		all = append(all, mount{Name: "repository", MountPath: l.spec.Dir})
	}
	for i, f := range l.spec.Shown {
		all = append(all, mount{Name: fmt.Sprint("shown-", i), MountPath: f.Path, ReadOnly: f.Host == "" && !f.Writable})
	}
	return all
}

// guestArguments returns the guest's arguments in the container that runs commands.
func (c *cluster) guestArguments(l launch) []string {
	args := []string{
		guest.Arg, "--listen", bridgeName, "--dir", l.spec.Dir, "--build", l.build, "--silence", silence.String(),
	}
	if c.options.Pods.GuestImage != "" {
		args[6] = "@" + guestPath + ".sha256" // the hash of the program that the image contains
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

// installContainer returns the init container that copies the guest from its image and deletes the network
// interfaces, so that the container with the commands never has the privilege to.
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

// networkRights returns the capabilities of the container that deletes the network interfaces.
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

// security returns a container's security context. The guest drops what it does not need before the first command;
// commands have no capabilities.
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

// limits returns a spec's limits with defaults for those that are zero.
func (c *cluster) limits(s env.Spec) env.Limits { return s.Limits.WithDefaults(c.options.Limits) }

// besideDisk is added to a pod's disk limit: it covers the guest, and what commands write before the guest notices,
// which can be some GiB if counting the files of a large image takes a second. The guest should kill them before the
// node evicts the whole pod.
const besideDisk = 8 << 30

// resources returns a container's limits, and the requests derived from them.
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

// escape keeps the cluster from expanding $(NAME) in commands and variables.
func escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// podName returns a unique name that tells users of kubectl get pods what the pod is for.
func podName(kind string, s env.Spec) string {
	name := strings.ToLower(cmp.Or(s.Rollout, s.Run))
	name = strings.Trim(invalidInName.ReplaceAllString(name[:min(len(name), 40)], "-"), "-")
	if kind != kindSandbox {
		name = kind
	}
	if name != "" {
		name += "-"
	}
	return "deepswe-" + name + fleet.Nonce()
}

// invalidInName matches the characters that a pod's name must not contain, and dashes.
var invalidInName = regexp.MustCompile(`[^a-z0-9]+`)
