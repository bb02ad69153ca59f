package kubernetes

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"deepswe/env"
)

// Options say which clusters to use and how. The zero value uses the current context of the user's KUBECONFIG, or the
// cluster that this process runs in.
type Options struct {
	// Contexts are names of the KUBECONFIG's contexts: the current one when empty. Sandboxes are spread over all.
	Contexts []string
	// Namespaces are used in each context: the context's own when empty.
	Namespaces []string
	// Executable is a static Linux build of deepswe for the nodes' architecture, see package program.
	Executable string
	// Log gets the errors of background work; nil logs nothing.
	Log *slog.Logger
	// Warm is how many sandboxes [Provider.Prefetch] keeps ready: none when 0.
	Warm int
	// Limits are those of a sandbox whose spec names none; where these are zero, too, the defaults of env.Limits.
	Limits env.Limits
	// Pods is what the pods are like.
	Pods Pods
	// config replaces the KUBECONFIG in tests.
	config *rest.Config
}

// Pods is what a user says about the pods of sandboxes. The zero value works.
type Pods struct {
	// GuestImage is an image with a deepswe of the same build, by which the guest is brought into pods. Without one it is
	// sent through the API server into each pod, which takes a shell in the image.
	GuestImage string `yaml:"guest_image"`
	// GuestPath is where deepswe is in that image: /deepswe when empty.
	GuestPath string `yaml:"guest_path"`
	// PullPolicy is that of all containers: the cluster's default when empty.
	PullPolicy  string   `yaml:"pull_policy"`
	PullSecrets []string `yaml:"pull_secrets"`
	// RuntimeClass is a sandboxed runtime, such as gVisor or Kata.
	RuntimeClass  string            `yaml:"runtime_class"`
	PriorityClass string            `yaml:"priority_class"`
	Scheduler     string            `yaml:"scheduler"`
	NodeSelector  map[string]string `yaml:"node_selector"`
	Tolerations   []Toleration      `yaml:"tolerations"`
	Labels        map[string]string `yaml:"labels"`
	Annotations   map[string]string `yaml:"annotations"`
	// ServiceAccount is the pods'; its token never enters them.
	ServiceAccount string `yaml:"service_account"`
	// Requests is the share of a sandbox's limits that is reserved for it on a node: 0.1 when 0.
	Requests float64 `yaml:"requests"`
	// Lifetime is the longest that a pod may live, whatever happens to its owner: 12 hours when 0.
	Lifetime time.Duration `yaml:"lifetime"`
	// NodeWait is how long a pod may wait for a node that has room, such as one that an autoscaler adds. Without it, a
	// pod waits for the end of other sandboxes only.
	NodeWait time.Duration `yaml:"node_wait"`
	// ProcessLimit says that the nodes' kubelets have a podPidsLimit of a sandbox's size. Kubernetes has no such field,
	// so it cannot be found out.
	ProcessLimit bool `yaml:"process_limit"`
}

// accessError says why a cluster cannot be used, and how to fix that.
type accessError struct {
	where, reason, remedy string
	err                   error
}

func (e *accessError) Error() string {
	text := fmt.Sprintf("kubernetes %s: %s", e.where, e.reason)
	if e.err != nil {
		text += fmt.Sprintf(" (%v)", e.err)
	}
	return text + "; to fix: " + e.remedy
}

// Fix implements env.Fixer.
func (e *accessError) Fix() (problem, fix string) {
	problem = e.where + ": " + e.reason
	if e.err != nil {
		problem += fmt.Sprintf(" (%v)", e.err)
	}
	return problem, e.remedy
}

// Unwrap makes every accessError an env.ErrInfrastructure.
func (e *accessError) Unwrap() []error { return []error{env.ErrInfrastructure, e.err} }

// connect makes a cluster of a context and a namespace; both may be empty.
func connect(o Options, context, namespace string) (*cluster, error) {
	config, ns := o.config, namespace
	if config == nil {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(),
			&clientcmd.ConfigOverrides{CurrentContext: context})
		var err error
		if config, err = loader.ClientConfig(); err == nil && ns == "" {
			ns, _, err = loader.Namespace()
		}
		if err != nil {
			return nil, &accessError{cmp.Or(context, "current context"), "there is no usable configuration",
				"kubectl config get-contexts shows the contexts of KUBECONFIG; choose one with --kube-context", err}
		}
		if context == "" {
			if raw, err := loader.RawConfig(); err == nil {
				context = cmp.Or(raw.CurrentContext, "in-cluster")
			}
		}
	}
	inside := config.BearerTokenFile != "" && onDriver() && context == "in-cluster"
	c := newCluster(cmp.Or(context, config.Host), cmp.Or(ns, "default"))
	c.inside = inside
	config = rest.CopyConfig(config)
	config.UserAgent = "deepswe"
	config.Timeout = 0 // each request has its own
	var err error
	if c.base, _, err = rest.DefaultServerUrlFor(config); err == nil {
		c.http, err = rest.HTTPClientFor(config)
	}
	if err == nil {
		// A WebSocket is opened over HTTP/1.1.
		upgrade := rest.CopyConfig(config)
		upgrade.NextProtos = []string{"http/1.1"}
		c.upgrade, err = rest.HTTPClientFor(upgrade)
	}
	if err != nil {
		return nil, &accessError{c.where(), "the credentials cannot be used", "kubectl --context " + c.context +
			" version has to work", err}
	}
	return c, nil
}

// reachable explains why a request to a cluster failed.
func (c *cluster) unreachable(err error) error {
	test := "kubectl --context " + c.context + " -n " + c.namespace + " get pods has to work"
	switch refused(err) {
	case 0:
		return &accessError{c.where(), "the API server cannot be reached", test, err}
	case http.StatusUnauthorized:
		return &accessError{c.where(), "the credentials are refused: expired, or of another cluster", "log in again; " + test,
			err}
	case http.StatusForbidden:
		return &accessError{c.where(), "the user may not do that", "apply the Role that deepswe doctor prints", err}
	}
	return &accessError{c.where(), "the API server refuses", test, err}
}

// discard closes a cluster's idle connections.
func (c *cluster) discard() {
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
	utilnet.CloseIdleConnectionsFor(c.upgrade.Transport)
}
