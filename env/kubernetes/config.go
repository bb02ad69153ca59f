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

// Options selects clusters and configures the pods in them. The zero value uses the current context of the user's
// KUBECONFIG, or the cluster that this process runs in.
type Options struct {
	// Contexts are contexts of the KUBECONFIG; if empty, the current one. Sandboxes are spread over all of them.
	Contexts []string
	// Namespaces are used in each context; if empty, the context's own.
	Namespaces []string
	// Executable is a static Linux build of deepswe for the nodes' architecture; see package program.
	Executable string
	// Log receives the errors of background work; nil discards them.
	Log *slog.Logger
	// Progress, unless nil, is called when the number of sandboxes that wait for room changes.
	Progress func(env.Progress)
	// Warm is how many sandboxes [Provider.Prefetch] keeps ready; 0 means none.
	Warm int
	// Limits replace zero limits of a spec. Where they are zero as well, the defaults of env.Limits apply.
	Limits env.Limits
	// Pods configures the pods.
	Pods Pods
	// config replaces the KUBECONFIG in tests.
	config *rest.Config
}

// Pods are the user's settings for the pods of sandboxes. The zero value works.
type Pods struct {
	// GuestImage is an image that contains the same build of deepswe, from which an init container copies the
	// guest. Without it, the guest is sent to each pod through the API server, which requires a shell in the task's
	// image.
	GuestImage string `yaml:"guest_image"`
	// GuestPath is the path of deepswe in GuestImage; /deepswe if empty.
	GuestPath string `yaml:"guest_path"`
	// PullPolicy is the image pull policy of all containers; if empty, the cluster's default.
	PullPolicy  string   `yaml:"pull_policy"`
	PullSecrets []string `yaml:"pull_secrets"`
	// RuntimeClass selects a sandboxed runtime, such as gVisor or Kata.
	RuntimeClass  string            `yaml:"runtime_class"`
	PriorityClass string            `yaml:"priority_class"`
	Scheduler     string            `yaml:"scheduler"`
	NodeSelector  map[string]string `yaml:"node_selector"`
	Tolerations   []Toleration      `yaml:"tolerations"`
	// TopologySpread spreads the pods of a process. Without it, the scheduler's own rules do.
	TopologySpread []TopologySpread  `yaml:"topology_spread"`
	Labels         map[string]string `yaml:"labels"`
	Annotations    map[string]string `yaml:"annotations"`
	// ServiceAccount is the service account of the pods. Its token is not mounted into them.
	ServiceAccount string `yaml:"service_account"`
	// Requests is the fraction of a sandbox's limits that is requested from the scheduler; 0 means 0.1.
	Requests float64 `yaml:"requests"`
	// Lifetime is the longest that a pod may run, whatever happens to its owner; 0 means 12 hours.
	Lifetime time.Duration `yaml:"lifetime"`
	// NodeWait is how long a pod may wait for a node with enough room, for example one that an autoscaler adds.
	// Without it, a pod waits only for other sandboxes to end.
	NodeWait time.Duration `yaml:"node_wait"`
	// ProcessLimit declares that the nodes' kubelets set podPidsLimit to a sandbox's process limit. The API does
	// not reveal it, so deepswe cannot check.
	ProcessLimit bool `yaml:"process_limit"`
}

// accessError says why a cluster cannot be used, and how to fix it.
type accessError struct {
	where, reason, remedy string
	err                   error
}

func (e *accessError) Error() string {
	problem, fix := e.Fix()
	return "kubernetes " + problem + "; to fix: " + fix
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

// connect prepares access to one namespace of one context. Either may be empty, for the default.
func connect(o Options, context, namespace string) (*cluster, error) {
	config, ns := o.config, namespace
	load := func() (*rest.Config, error) { return o.config, nil }
	if config == nil {
		loader := loaderFor(context)
		var err error
		if config, err = loader.ClientConfig(); err == nil && ns == "" {
			ns, _, err = loader.Namespace()
		}
		if err != nil {
			return nil, &accessError{cmp.Or(context, "current context"), "there is no usable configuration",
				"kubectl config get-contexts lists the contexts of KUBECONFIG; choose one with --kube-context", err}
		}
		if context == "" {
			if raw, err := loader.RawConfig(); err == nil {
				context = raw.CurrentContext
			}
		}
		same := context // whatever becomes the current context meanwhile
		load = func() (*rest.Config, error) { return loaderFor(same).ClientConfig() }
		context = cmp.Or(context, "in-cluster")
	}
	inside := config.BearerTokenFile != "" && onDriver() && context == "in-cluster"
	c := newCluster(cmp.Or(context, config.Host), cmp.Or(ns, "default"))
	c.inside = inside
	var err error
	if c.base, _, err = rest.DefaultServerUrlFor(config); err == nil {
		c.http, err = clientFor(load, nil)
	}
	if err == nil {
		c.upgrade, err = clientFor(load, []string{"http/1.1"}) // WebSockets need it
	}
	if err != nil {
		return nil, &accessError{c.where(), "the credentials cannot be used", "kubectl --context " + c.context +
			" version has to work", err}
	}
	return c, nil
}

func loaderFor(context string) clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(),
		&clientcmd.ConfigOverrides{CurrentContext: context})
}

// Selected returns the context and the namespace that an empty choice means now; both are empty where there is no
// current context, as in a pod.
func Selected(context string) (selected, namespace string) {
	loader := loaderFor(context)
	raw, err := loader.RawConfig()
	if err != nil {
		return context, ""
	}
	if context = cmp.Or(context, raw.CurrentContext); context == "" {
		return "", ""
	}
	namespace, _, _ = loader.Namespace()
	return context, namespace
}

// unreachable explains why a request to a cluster failed.
func (s *server) unreachable(err error) error {
	test := "kubectl --context " + s.context + " -n " + s.namespace + " get pods has to work"
	switch refused(err) {
	case 0:
		return &accessError{s.where(), "the API server cannot be reached", test, err}
	case http.StatusUnauthorized:
		return &accessError{s.where(), "the credentials are refused: they have expired, or are for another cluster",
			"log in again; " + test, err}
	case http.StatusForbidden:
		return &accessError{s.where(), "the user lacks permission", "apply the Role that deepswe doctor prints", err}
	}
	return &accessError{s.where(), "the API server refuses the request", test, err}
}

// discard closes a cluster's idle connections.
func (s *server) discard() {
	utilnet.CloseIdleConnectionsFor(s.http.Transport)
	utilnet.CloseIdleConnectionsFor(s.upgrade.Transport)
}
