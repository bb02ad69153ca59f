// Package metricstest has points of an invented run, for tests of what shows them.
package metricstest

import "deepswe/rl/metrics"

// Points are the first n steps of a run that learns: its reward and validation rise over them, its entropy falls. Step
// 0 is a validation alone, every fifth step has one, one metric has a name that needs escaping, and one stop reason
// never happens.
func Points(n int) []metrics.Point {
	points := make([]metrics.Point, 0, n)
	for step := range n {
		x := float64(step) / float64(n)
		v := map[string]float64{
			"reward/mean": 0.2 + 0.6*x, "entropy/mean": 2.5 - 2*x, "loss/clip_fraction": 0.0123, "optim/grad_norm": 0.00234,
			"time/step": 12.34, "groups/total": 32, "groups/solve_none": 12, "groups/solve_partial": 15, "groups/solve_all": 5,
			"groups/effective": 15, "loss/kl_k3": 1e-5, "stop/max_steps": 0.5 - 0.3*x, "stop/submitted": 0.5 + 0.3*x,
			"stop/timeout": 0, "a/<script>": 1, "time/rollouts": 10, "time/update": 2,
		}
		if step%5 == 0 {
			v["val/pass@1"], v["val/pass@1_low"], v["val/pass@1_high"], v["val/random"] = x, max(0, x-0.1), min(1, x+0.1), 0.2
		}
		if step == 0 {
			v = map[string]float64{"val/pass@1": 0.1, "val/pass@1_low": 0.05, "val/pass@1_high": 0.2, "val/random": 0.2}
		}
		points = append(points, metrics.Point{Step: step, Values: v})
	}
	return points
}
