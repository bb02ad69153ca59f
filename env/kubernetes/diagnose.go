package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/fleet"
)

// Diagnose implements env.Diagnoser. It reports each cluster's version, and what this user may do in it.
func (p *Provider) Diagnose(ctx context.Context) []env.Finding {
	var findings []env.Finding
	for _, c := range p.clusters {
		findings = append(findings, c.diagnoseServer(ctx), c.diagnoseRole(ctx), c.diagnoseQuota(ctx),
			c.diagnosePodSecurity(ctx))
	}
	if !p.options.Pods.ProcessLimit {
		findings = append(findings, env.Finding{
			Check: "kubernetes limits", Status: env.Warning,
			Detail: "a pod has no limit on its processes and none on its files beside the node's; what a namespace enforces " +
				"cannot be found out",
			Fix: "set podPidsLimit in the kubelets' configuration, then kubernetes.process_limit: true in deepswe's",
		})
	}
	return findings
}

// Sample implements env.Diagnoser. It uses a small public image, because it cannot know which images a cluster has.
func (p *Provider) Sample(context.Context) (s env.Spec, lacking string, err error) {
	return env.Spec{Image: "docker.io/library/busybox:stable"}, "", nil
}

// mostSkew is how far the clocks may differ without leases being misjudged.
const mostSkew = 30 * time.Second

func (c *cluster) diagnoseServer(ctx context.Context) env.Finding {
	began := time.Now()
	v, err := c.version(ctx)
	if err != nil {
		return env.FindingOf(name, c.unreachable(err))
	}
	took := time.Since(began)
	skew := time.Duration(c.skew.Load()).Round(time.Second)
	f := env.Finding{Check: name, Status: env.OK, Detail: fmt.Sprintf("Kubernetes %s at %s (%s), answers in %v, clock "+
		"differs by %v", v.GitVersion, c.base.Host, c.where(), took.Round(time.Millisecond), skew.Abs())}
	if skew.Abs() > mostSkew {
		f.Status, f.Fix = env.Warning, "synchronise the clock of this machine: timedatectl set-ntp true"
	}
	return f
}

// rights are the permissions that the Role in docs/kubernetes.md grants.
var rights = []struct{ group, resource, verbs string }{
	{`""`, "pods", "create, get, list, watch, delete"},
	{`""`, "pods/exec", "create, get"},
	{`""`, "resourcequotas", "list"},
	{"coordination.k8s.io", "leases", "create, get, list, update, delete"},
}

// role returns the role that a user of the namespace needs, as a kubectl apply command.
func role(namespace string) string {
	text := `kubectl apply -f - <<'END'
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deepswe, namespace: ` + namespace + `}
rules:
`
	for _, r := range rights {
		text += fmt.Sprintf("- {apiGroups: [%s], resources: [%s], verbs: [%s]}\n", r.group, r.resource, r.verbs)
	}
	return text + "END"
}

func (c *cluster) diagnoseRole(ctx context.Context) env.Finding {
	f := env.Finding{Check: name + " role", Status: env.OK}
	var wanted []access
	for _, r := range rights {
		resource, sub, _ := strings.Cut(r.resource, "/")
		for verb := range strings.SplitSeq(r.verbs, ", ") {
			wanted = append(wanted, access{Namespace: c.namespace, Verb: verb, Group: strings.Trim(r.group, `"`),
				Resource: resource, Subresource: sub})
		}
	}
	lacking := make([]string, len(wanted))
	failures := make([]error, len(wanted))
	var work sync.WaitGroup
	for i, a := range wanted {
		work.Go(func() {
			review := accessReview{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
			review.Spec.Attributes = a
			failures[i] = c.call(ctx, request{
				method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				body: review, into: &review, once: true,
			})
			if failures[i] == nil && !review.Status.Allowed {
				lacking[i] = a.Verb + " " + strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
			}
		})
	}
	work.Wait()
	if err := cmp.Or(failures...); err != nil {
		f.Status, f.Detail = env.Skipped, "the permissions of this user could not be checked: "+err.Error()
		return f
	}
	lacking = slices.DeleteFunc(lacking, func(s string) bool { return s == "" })
	if len(lacking) == 0 {
		f.Detail = "this user has all permissions that sandboxes require"
		return f
	}
	f.Status, f.Detail, f.Fix = env.Failed, "this user may not "+strings.Join(lacking, ", "), role(c.namespace)
	return f
}

func (c *cluster) diagnoseQuota(ctx context.Context) env.Finding {
	f := env.Finding{Check: name + " quota", Status: env.OK, Detail: "the namespace has no quota"}
	var list quotaList
	err := c.call(ctx, request{
		method: http.MethodGet, path: "/api/v1/namespaces/" + c.namespace + "/resourcequotas", into: &list, once: true,
	})
	if err != nil {
		f.Status, f.Detail = env.Skipped, "the quota could not be read: "+err.Error()
		return f
	}
	var parts []string
	for _, q := range list.Items {
		for _, resource := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			hard, used := q.Status.Hard[resource], cmp.Or(q.Status.Used[resource], "0")
			parts = append(parts, fmt.Sprintf("%s %s of %s", resource, used, hard))
			switch {
			case used != hard || !ofPods(resource):
			case used == "0":
				f.Status, f.Fix = env.Failed, "no sandbox will ever fit: "+raiseQuota+" "+q.Metadata.Name
			case f.Status == env.OK:
				f.Status, f.Fix = env.Warning, "sandboxes wait until there is room; to run more at once, "+raiseQuota+" "+
					q.Metadata.Name
			}
		}
	}
	if len(parts) > 0 {
		f.Detail = "used: " + strings.Join(parts, ", ")
	}
	return f
}

// raiseQuota is the advice where a quota is too small, in doctor and in a start's error.
const raiseQuota = "raise the ResourceQuota"

// ofPods reports whether a quota's resource is one that pods use up.
func ofPods(resource string) bool {
	resource = strings.TrimPrefix(strings.TrimPrefix(resource, "requests."), "limits.")
	return slices.Contains([]string{"pods", "count/pods", "cpu", "memory", "ephemeral-storage"}, resource)
}

// diagnosePodSecurity asks the server with dry runs which privileges a pod may have.
func (c *cluster) diagnosePodSecurity(ctx context.Context) env.Finding {
	f := env.Finding{Check: name + " pods", Status: env.OK}
	var refusals []string
	for _, l := range []level{levelFull, levelBaseline, levelRestricted} {
		m := c.manifest(launch{
			kind: kindSandbox, name: "deepswe-doctor-" + fleet.Nonce(), mode: mode{level: l},
			spec: env.Spec{Image: "docker.io/library/busybox:stable", Dir: "/testbed"},
		})
		m.Metadata.OwnerReferences = nil
		err := c.call(ctx, request{
			method: http.MethodPost, path: c.pods(), query: url.Values{"dryRun": {"All"}}, body: m, once: true,
		})
		if err != nil && !strings.Contains(err.Error(), "exceeded quota") { // diagnoseQuota reports that
			refusals = append(refusals, err.Error())
			continue
		}
		switch l {
		case levelFull:
			f.Detail = "the guest may delete network interfaces, so it can close the network under any network plugin"
		case levelBaseline:
			f.Status, f.Detail = env.Warning, "the namespace forbids NET_ADMIN, so only a NetworkPolicy can close the network"
		case levelRestricted:
			f.Status, f.Detail = env.Warning, "the namespace forbids root and NET_ADMIN: "+
				"commands run as the guest's own user, and only a NetworkPolicy can close the network"
		}
		if l > levelFull {
			f.Fix = "kubectl label namespace " + c.namespace + " --overwrite pod-security.kubernetes.io/enforce=privileged, " +
				"or apply the NetworkPolicy of docs/kubernetes.md"
		}
		return f
	}
	f.Status, f.Detail = env.Failed, "the cluster refuses the pods of sandboxes: "+refusals[0]
	return f
}
