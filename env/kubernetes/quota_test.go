package kubernetes

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"deepswe/env"
)

// doctor tells a quota that is used up for now from one in which no sandbox will ever fit.
func TestDiagnoseQuota(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quotas, detail, fix string
		status              env.Status
	}{
		"none": {`[]`, "no quota", "", env.OK},
		"room": {`[{"metadata": {"name": "q"}, "status": {"hard": {"pods": "4"}, "used": {"pods": "1"}}}]`, "pods 1 of 4", "",
			env.OK},
		"nothing used": {`[{"metadata": {"name": "q"}, "status": {"hard": {"limits.memory": "8Gi"}}}]`,
			"limits.memory 0 of 8Gi", "", env.OK},
		"used up": {`[{"metadata": {"name": "q"}, "status": {"hard": {"pods": "3"}, "used": {"pods": "3"}}}]`, "pods 3 of 3",
			"wait until there is room; to run more at once, raise the ResourceQuota q", env.Warning},
		"of nothing": {`[{"metadata": {"name": "a"}, "status": {"hard": {"pods": "3"}, "used": {"pods": "3"}}},
			{"metadata": {"name": "b"}, "status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}]`, "pods 0 of 0",
			"no sandbox will ever fit: raise the ResourceQuota b", env.Failed},
		"of what pods do not need": {`[{"metadata": {"name": "q"}, "status": {"hard": {"services": "0"}}}]`,
			"services 0 of 0", "", env.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"items": `+c.quotas+`}`)
			}))
			t.Cleanup(server.Close)
			at, err := connect(Options{config: &rest.Config{Host: server.URL}}, "", "default")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(at.discard)
			f := at.diagnoseQuota(t.Context())
			if f.Status != c.status || !strings.Contains(f.Detail, c.detail) || !strings.Contains(f.Fix, c.fix) ||
				(c.fix == "") != (f.Fix == "") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A refusal by a quota is final only if the pod is larger than the whole quota.
func TestLargerThanQuota(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3":                                        false,
		"exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0":                                        true,
		"exceeded quota: q, requested: limits.memory=64Gi, used: limits.memory=0, limited: limits.memory=8Gi":        true,
		"exceeded quota: q, requested: limits.cpu=2,pods=1, used: limits.cpu=7,pods=4, limited: limits.cpu=8,pods=4": false,
		"exceeded quota: q, requested: limits.cpu=9,pods=1, used: limits.cpu=0,pods=4, limited: limits.cpu=8,pods=4": true,
		"exceeded quota: q": false,
	} {
		if got := largerThanQuota(message); got != want {
			t.Errorf("%s: %v, want %v", message, got, want)
		}
	}
}
