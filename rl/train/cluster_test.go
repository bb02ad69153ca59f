package train

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"deepswe/env"
	"deepswe/env/testkit"
)

// What --print kubernetes writes runs on a cluster as docs/recipes.md says: the manifests are applied to a node with
// the labels from that page, and the driver's Job finishes two steps, with pods as sandboxes. The images are stand-ins:
// deepswe's is built as the page says, those of SkyRL and vLLM are fakes, and Postgres's does nothing. Requests are
// lowered to what the node has, and its GPUs exist in name only. With what .ci/kuberay makes, the same is done for
// eight nodes, for adapters and for all weights: KubeRay's operator and Ray are real there, and all pods are on the one
// node. With kube-router, the network policies are enforced.
func TestRecipeOnCluster(t *testing.T) {
	if os.Getenv("DEEPSWE_TEST_FULL") == "" {
		t.Skip("it builds and loads images, and takes minutes: DEEPSWE_TEST_FULL asks for it")
	}
	l := testkit.OpenKubelab(t)
	testkit.Images(t, "deepswe-test:busybox")
	kuberay := os.Getenv("DEEPSWE_TEST_KUBERAY")
	program := standInImages(t, l, kuberay)
	l.EnforcePolicies(t) // where kube-router is there
	t.Run("one node", func(t *testing.T) {
		c := newRecipeCluster(t, l, "deepswe-adapter", 1, 3)
		c.train(t, program, "vllm-0:8000", "vllm-0:8001")
	})
	for name, pods := range map[string]int{"deepswe-adapter": 6, "deepswe-32b": 0} {
		t.Run(name+" on eight nodes", func(t *testing.T) {
			needKuberay(t, kuberay)
			c := newRecipeCluster(t, l, name, 8, 2)
			c.operate(t, kuberay)
			var samplers []string
			for pod := range pods {
				samplers = append(samplers, fmt.Sprintf("vllm-%d:8000", pod), fmt.Sprintf("vllm-%d:8001", pod))
			}
			c.train(t, program, samplers...)
			c.ready(t)
		})
	}
	t.Run("the head of two nodes ends", func(t *testing.T) {
		needKuberay(t, kuberay)
		c := newRecipeCluster(t, l, "deepswe-32b", 2, 4)
		c.operate(t, kuberay)
		c.trainWithoutHead(t, program)
		c.ready(t)
	})
}

// metrics returns the path of the run's metrics.
func (c *recipeCluster) metrics() string {
	return filepath.Join(c.dir, "shared", "runs", c.config, "metrics.jsonl")
}

// steps counts the steps that were trained.
func (c *recipeCluster) steps() int {
	data, _ := os.ReadFile(c.metrics()) // the file is missing before the first one
	return bytes.Count(data, []byte("\n"))
}

// apply prints the recipe and applies it, with resource requests that fit on the node.
func (c *recipeCluster) apply(t *testing.T, program string, set ...string) {
	t.Helper()
	manifests := printRecipe(t, program, c.config, "kubernetes", c.nodes, c.gpus, set...)
	manifests = strings.ReplaceAll(manifests, "requests: 0.25", "requests: 0.01")
	large := regexp.MustCompile(`requests: \{cpu: "\d+", memory: \w+\}`)
	manifests = large.ReplaceAllString(manifests, "requests: {cpu: 10m}")
	t.Logf("%s", c.kubectl(t, manifests+standInPolicy, "apply", "--validate=strict", "-f", "-"))
}

// standInPolicy lets the stand-ins of vLLM reach SkyRL's, which samples for them.
const standInPolicy = `
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: stand-ins}
spec:
  podSelector: {matchLabels: {deepswe-train: skyrl}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {deepswe-train: vllm}}}]}]
`

// train applies the recipe, waits until it has trained two steps, and checks what took part. The samplers are vLLMs by
// pod and port; without any, SkyRL's own engines sample.
func (c *recipeCluster) train(t *testing.T, program string, samplers ...string) {
	t.Helper()
	set := []string{"steps=2"}
	if len(samplers) == 0 { // no vLLM writes conversations, and the stand-in's model has no template
		set = append(set, "trainer.template=qwen3")
	}
	c.apply(t, program, set...)
	c.await(t, "deepswe-train")
	t.Log(c.kubectl(t, "", "logs", "job/deepswe-train"))

	data, err := os.ReadFile(c.metrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", data, c.kubectl(t, "", "get", "pods", "-o=wide"))
	events := c.kubectl(t, "", "get", "events", "--field-selector=reason=Scheduled",
		`-o=jsonpath={range .items[*]}{.involvedObject.name}{"\n"}{end}`)
	for i := range 2 {
		if pods := strings.Count(events, fmt.Sprintf("deepswe-number-%d-", i)); pods < 4 {
			t.Errorf("%d pods were sandboxes of task %d, want one for each rollout at least:\n%s", pods, i, events)
		}
	}
	var served map[string]map[string]int
	fetch(t, http.DefaultClient, "http://"+c.podOf(t, "skyrl").String()+":8000/served", &served)
	t.Logf("the adapters of each vLLM have served %v", served)
	if got := slices.Sorted(maps.Keys(served)); !slices.Equal(got, samplers) {
		t.Errorf("the vLLMs that were asked are %q, want %q", got, samplers)
	}
	for name, adapters := range served {
		if len(adapters) == 0 {
			t.Errorf("%s has served no adapter", name)
		}
	}
	if steps := strings.Count(string(data), "\n"); steps != 2 {
		t.Errorf("%d steps were trained, want 2", steps)
	}
	ready := fmt.Sprintf(`"samplers/ready":%d,`, len(samplers))
	if n := strings.Count(string(data), ready); n != 2 && len(samplers) > 0 {
		t.Errorf("all vLLMs were ready in %d steps, want 2", n)
	}
	restarts := c.kubectl(t, "", "get", "pods", "-o=jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if strings.Trim(restarts, "0 ") != "" {
		t.Errorf("containers were started again: %s", restarts)
	}
}

// recipeCluster is a namespace in which the recipe of a configuration runs, with its volumes in dir. Its one node has
// the GPUs of all nodes of the recipe.
type recipeCluster struct {
	*testkit.Kubelab

	config         string
	nodes, gpus    int
	namespace, dir string
	api            *http.Client
}

func newRecipeCluster(t *testing.T, l *testkit.Kubelab, config string, nodes, gpus int) *recipeCluster {
	t.Helper()
	c := &recipeCluster{Kubelab: l, config: config, nodes: nodes, gpus: gpus, dir: t.TempDir(),
		namespace: fmt.Sprintf("%s-%d-%d-%d", config, os.Getpid(), nodes, gpus)}
	c.prepare(t)
	c.names(t)
	return c
}

func (c *recipeCluster) kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	return c.Kubectl(t, stdin, append([]string{"-n", c.namespace}, args...)...)
}

// prepare creates the namespace with its volumes, and gives the node labels and GPUs.
func (c *recipeCluster) prepare(t *testing.T) {
	t.Helper()
	c.Kubectl(t, "", "create", "namespace", c.namespace)
	t.Cleanup(func() {
		c.kubectl(t, "", "delete", "jobs,deployments,statefulsets,daemonsets", "--all", "--wait=false")
		c.kubectl(t, "", "delete", "pods", "--all", "--force", "--grace-period=0")
		c.kubectl(t, "", "delete", "services", "--all", "--timeout=1m") // the mirror has a port of the node, as the next one will
		c.Kubectl(t, "", "delete", "namespace", c.namespace, "--wait=false")
	})
	labels := []string{"deepswe.gpu", "deepswe.sandboxes"}
	for _, label := range labels {
		c.Kubectl(t, "", "label", "node", "--all", label+"=yes", "--overwrite")
		t.Cleanup(func() { c.Kubectl(t, "", "label", "node", "--all", label+"-") })
	}
	status := func(gpus string) {
		c.Kubectl(t, "", "patch", "node", "kubelab", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
			`{"status": {"capacity": {"nvidia.com/gpu": %[1]s}, "allocatable": {"nvidia.com/gpu": %[1]s}}}`, gpus))
	}
	status(fmt.Sprintf("%q", strconv.Itoa(c.nodes*c.gpus)))
	t.Cleanup(func() { status("null") })
	for claim, mode := range map[string]string{"shared": "ReadWriteMany", "postgres": "ReadWriteOnce"} {
		volume := c.namespace + "-" + claim
		c.Kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  accessModes: [%s]
  capacity: {storage: 4Ti}
  claimRef: {namespace: %s, name: deepswe-%s}
  hostPath: {path: %s, type: DirectoryOrCreate}
`, volume, mode, c.namespace, claim, filepath.Join(c.dir, claim)), "apply", "-f", "-")
		t.Cleanup(func() { c.Kubectl(t, "", "delete", "pv", volume, "--wait=false") })
	}
}

// apiAddress is where the API server listens on the node.
const apiAddress = "127.0.0.1:16443"

// The addresses of the name server and of the API as pods see them.
var (
	nameServer = netip.MustParseAddrPort("198.19.0.10:53")
	apiServer  = netip.MustParseAddrPort("198.19.0.1:443")
)

// names provides the name server and the route to the API that the cluster lacks. A service resolves to a pod's
// address.
func (c *recipeCluster) names(t *testing.T) {
	t.Helper()
	pki := filepath.Join(c.Run, "pki")
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	c.api = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: trusted, MinVersion: tls.VersionTLS12},
	}}
	t.Cleanup(c.api.CloseIdleConnections)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, at := range []netip.AddrPort{nameServer, apiServer} {
		execute(t, "", "ip", "address", "add", at.Addr().String()+"/32", "dev", "kubelab0")
		t.Cleanup(func() { execute(t, "", "ip", "address", "del", at.Addr().String()+"/32", "dev", "kubelab0") })
	}
	asked, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(nameServer))
	if err != nil {
		t.Fatal(err)
	}
	called, err := net.Listen("tcp", apiServer.String())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		asked.Close()
		called.Close()
		serving.Wait()
	})
	serving.Go(func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := asked.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if reply := c.answer(t, buffer[:n]); reply != nil {
				_, _ = asked.WriteToUDPAddrPort(reply, from) // a client without a reply asks again
			}
		}
	})
	serving.Go(func() {
		for {
			from, err := called.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { forward(from, apiAddress) })
		}
	})
}

// forward copies both ways between a connection and an address until one side closes.
func forward(from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	var copying sync.WaitGroup
	for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
		copying.Go(func() {
			_, _ = io.Copy(ends[0], ends[1])
			ends[0].Close()
			ends[1].Close()
		})
	}
	copying.Wait()
}

// answer answers a query for the address of a service or of one of its pods.
func (c *recipeCluster) answer(t *testing.T, question []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.Authoritative, m.RCode = true, true, dnsmessage.RCodeNameError
	if name, ok := strings.CutSuffix(q.Name.String(), "."+c.namespace+".svc.cluster.local."); ok {
		if at := c.podOf(t, name); at.IsValid() {
			m.RCode = dnsmessage.RCodeSuccess
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: at.As4()},
				}}
			}
		}
	}
	m.Additionals = nil
	reply, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return reply
}

// podOf returns the address of a pod for SERVICE or POD.SERVICE.
func (c *recipeCluster) podOf(t testing.TB, name string) netip.Addr {
	pod, service, ok := strings.Cut(name, ".")
	if !ok {
		pod, service = "", name
	}
	var list struct {
		Items []struct {
			Endpoints []struct {
				Addresses  []netip.Addr
				Hostname   string
				Conditions struct{ Ready bool }
			}
		}
	}
	fetch(t, c.api, fmt.Sprintf("https://%s/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices?labelSelector=%s",
		apiAddress, c.namespace, url.QueryEscape("kubernetes.io/service-name="+service)), &list)
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready && e.Hostname == pod {
				return e.Addresses[0]
			}
		}
	}
	return netip.Addr{}
}

// await waits until a job ends, and fails the test with the output of its pods if it did not succeed.
func (c *recipeCluster) await(t *testing.T, job string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	for {
		var state struct {
			Status struct {
				Failed     int
				Conditions []struct{ Type string }
			}
		}
		fetch(t, c.api, fmt.Sprintf("https://%s/apis/batch/v1/namespaces/%s/jobs/%s", apiAddress, c.namespace, job), &state)
		for _, condition := range state.Status.Conditions {
			if condition.Type == "Complete" {
				return
			}
		}
		if state.Status.Failed > 0 || env.Sleep(ctx, time.Second) != nil {
			break
		}
	}
	t.Log(c.kubectl(t, "", "get", "pods,events"))
	t.Fatal(c.kubectl(t, "", "logs", "job/"+job, "--all-containers"))
}

// fetch gets JSON from an address.
func fetch(t testing.TB, client *http.Client, address string, into any) {
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, address, nil)
	if err != nil {
		t.Error(err)
		return
	}
	reply, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return
	}
	defer reply.Body.Close()
	if err := json.NewDecoder(reply.Body).Decode(into); err != nil {
		t.Errorf("%s: %s, %v", address, reply.Status, err)
	}
}
