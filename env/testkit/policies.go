package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// EnforcePolicies has the cluster enforce NetworkPolicies until the test ends, with the program of kube-router that
// DEEPSWE_TEST_KUBEROUTER names. It reports whether there is one. The cluster by itself enforces none.
func (l *Kubelab) EnforcePolicies(t testing.TB) bool {
	t.Helper()
	router := os.Getenv("DEEPSWE_TEST_KUBEROUTER")
	if router == "" {
		return false
	}
	t.Cleanup(func() {
		if out, err := exec.Command("sh", "-ec", removePolicies).CombinedOutput(); err != nil {
			t.Errorf("remove the policies' rules: %v: %s", err, out)
		}
	})
	l.StartBeside(t, router, "--run-firewall=true", "--run-router=false", "--run-service-proxy=false",
		"--run-loadbalancer=false", "--kubeconfig="+filepath.Join(l.Run, "admin.kubeconfig"), "--hostname-override=kubelab",
		"--service-cluster-ip-range=198.19.0.0/16")
	time.Sleep(5 * time.Second) // its first round
	return true
}

// removePolicies removes the rules of kube-router, whose own --cleanup-config leaves most of them.
const removePolicies = `for c in INPUT FORWARD OUTPUT; do
	iptables -w -S $c | grep -e "-j KUBE-ROUTER-$c" | sed s/^-A/-D/ | xargs -rL 1 iptables -w
done
chains=$(iptables -w -S | grep -oE '^-N KUBE-(ROUTER|NWPLCY|POD-FW)-.*' | cut -c 4-)
for c in $chains; do iptables -w -F $c; done
for c in $chains; do iptables -w -X $c; done
ipset list -n | grep -E '^KUBE-(DST|SRC)-' | xargs -rL 1 ipset destroy`
