package kubernetes

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	core "k8s.io/api/core/v1"
	strict "sigs.k8s.io/yaml"

	"deepswe/env"
)

// The settings in docs/kubernetes.md reach the pods, in fields that Kubernetes knows.
func TestScheduling(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var c struct {
		Env        string
		Kubernetes Pods
	}
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		t.Fatal(err)
	}
	s, p := onSimulation(t)
	p.clusters[0].options.Pods = c.Kubernetes
	sandbox, err := p.Start(t.Context(), env.Spec{Image: "task"})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	for _, started := range s.pods {
		data, err := json.Marshal(started.pod.Spec)
		var got core.PodSpec
		if err == nil {
			err = strict.UnmarshalStrict(data, &got)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if got.NodeSelector["pool"] != "sandboxes" || got.Tolerations[0].Key != "sandboxes" ||
			got.PriorityClassName != "batch" || *got.RuntimeClassName != "gvisor" ||
			got.SchedulerName != "default-scheduler" {
			t.Errorf("the pod has %s", data)
		}
		spread := got.TopologySpreadConstraints[0]
		if spread.TopologyKey != core.LabelHostname || spread.MaxSkew != 8 ||
			spread.WhenUnsatisfiable != core.ScheduleAnyway ||
			spread.LabelSelector.MatchLabels[labelOwner] != started.pod.Metadata.Labels[labelOwner] {
			t.Errorf("it is spread by %+v", spread)
		}
	}
	s.mu.Unlock()
	if err := sandbox.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	s.checkEmpty(t)
}
