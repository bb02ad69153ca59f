package recipe

import (
	"encoding/json"

	"deepswe/rl/metrics"
)

// panels are those of the Grafana board: the metrics that docs/recipes.md looks at when something goes wrong.
var panels = []struct {
	title   string
	metrics []string
}{
	{"Reward", []string{"reward/mean", "reward/mean_trained", "val/pass@1"}},
	{"Groups", []string{"groups/effective", "groups/solve_none", "groups/solve_all"}},
	{"Seconds of a step", []string{"time/step", "time/update", "time/wait_rollouts", "time/publish"}},
	{"Who works", []string{"workers/busy", "trainer/busy", "trainer/waiting"}},
	{"Seconds of a rollout", []string{"time/model", "time/environment", "time/reward", "time/queue"}},
	{"Rollouts that end for other reasons", []string{"stop/max_steps", "stop/max_context", "stop/timeout"}},
	{"Failures", []string{"rollouts/no_reward", "samplers/aside"}},
	{"Samplers", []string{"samplers/ready"}},
	{"Seconds until a sandbox is ready", []string{"sandboxes/start_mean", "sandboxes/start_max"}},
	{"Sandboxes that start", []string{"sandboxes/starting", "sandboxes/failed"}},
	{"Age of rollouts", []string{"staleness/mean", "staleness/max"}},
	{"Sampler against trainer", []string{"publish/gap_mean", "mismatch/kl_k3", "off_policy/kl_k3"}},
	{"Optimizer", []string{"optim/grad_norm", "optim/skipped"}},
	{"Clipped", []string{"loss/clip_fraction"}},
	{"Tokens of a rollout", []string{"length/mean", "tokens/sampled/mean"}},
	{"Turns of a rollout", []string{"turns/mean"}},
}

// Panels stand in two columns of a grid that is 24 wide.
const panelWidth, panelHeight = 12, 8

// Board returns a run's board in Grafana's JSON, on its default data source.
func Board(run string) string {
	type object = map[string]any
	var all []object
	for i, p := range panels {
		var targets []object
		for k, name := range p.metrics {
			targets = append(targets, object{
				"refId": string(rune('A' + k)), "expr": metrics.PrometheusName(name), "legendFormat": "{{run}} " + name,
			})
		}
		all = append(all, object{
			"id": i + 1, "type": "timeseries", "title": p.title, "targets": targets,
			"gridPos": object{"x": i % 2 * panelWidth, "y": i / 2 * panelHeight, "w": panelWidth, "h": panelHeight},
		})
	}
	text, err := json.Marshal(object{
		"uid": "deepswe-train", "title": "deepswe train: " + run, "schemaVersion": 39, "refresh": "30s",
		"time": object{"from": "now-24h", "to": "now"}, "panels": all,
	})
	if err != nil {
		panic(err) // it always encodes
	}
	return string(text)
}
