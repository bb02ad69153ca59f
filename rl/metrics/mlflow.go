package metrics

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"deepswe/agent/run"
)

// mlflow sends the points of a run to an MLflow server over its REST API. A tag there has the key of the run, so that
// a resumed session finds it.
type mlflow struct {
	server server
	run    Run
	id     string // on the server
	have   had
}

// The most metrics and parameters of one request, and the most bytes of a text and of a name.
const (
	mlflowMetrics = 1000
	mlflowParams  = 100
	mlflowText    = 6000
	mlflowKey     = 250
)

// MLflow is the MLflow server at an address. The variables of its own client authorize: MLFLOW_TRACKING_USERNAME and
// MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN.
func MLflow(address string, getenv func(string) string) (Target, error) {
	u, err := parseAddress(address)
	if err != nil {
		return Target{}, err
	}
	s := server{u.JoinPath("api/2.0/mlflow"), http.Header{}}
	if name := getenv("MLFLOW_TRACKING_USERNAME"); name != "" {
		secret := base64.StdEncoding.EncodeToString([]byte(name + ":" + getenv("MLFLOW_TRACKING_PASSWORD")))
		s.header.Set("Authorization", "Basic "+secret)
	} else if token := getenv("MLFLOW_TRACKING_TOKEN"); token != "" {
		s.header.Set("Authorization", "Bearer "+token)
	}
	return Target{Name: "MLflow", Replay: true, Open: func(r Run) Sink { return &mlflow{server: s, run: r} }}, nil
}

type mlflowPair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type mlflowMetric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"`
	Step      int     `json:"step"`
}

// mlflowReply is what the methods in use answer. A run has the newest value of each of its metrics.
type mlflowReply struct {
	ExperimentID string `json:"experiment_id"`
	Experiments  []struct {
		ID string `json:"experiment_id"`
	}
	Run  mlflowRun
	Runs []mlflowRun
}

type mlflowRun struct {
	Info struct {
		RunID string `json:"run_id"`
	}
	Data struct {
		Metrics []struct {
			Key  string
			Step json.Number
		}
		Params []mlflowPair
	}
}

// Send sends what the server does not have of the points.
func (m *mlflow) Send(ctx context.Context, points []Point) error {
	if m.id == "" {
		if err := m.beginRun(ctx); err != nil {
			return err
		}
	}
	var all []mlflowMetric
	have := maps.Clone(m.have)
	for _, p := range points {
		values := have.news(p, mlflowName)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			all = append(all, mlflowMetric{key, values[key], p.Time.UnixMilli(), p.Step})
		}
	}
	for part := range slices.Chunk(all, mlflowMetrics) {
		// The server stores once what it is sent twice.
		if _, err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": m.id, "metrics": part}); err != nil {
			return err
		}
	}
	m.have = have
	return nil
}

// beginRun finds the run on the server, or creates it, and completes its parameters. Those that are there cannot
// change.
func (m *mlflow) beginRun(ctx context.Context) error {
	r, err := m.find(ctx)
	if err != nil {
		return err
	}
	m.have = had{}
	for _, v := range r.Data.Metrics {
		step, err := v.Step.Int64()
		if err != nil {
			return fmt.Errorf("the step of %s: %w", v.Key, err)
		}
		m.have[v.Key] = int(step)
	}
	params := slices.DeleteFunc(mlflowFlat("", m.run.Config), func(p mlflowPair) bool {
		return slices.ContainsFunc(r.Data.Params, func(q mlflowPair) bool { return q.Key == p.Key })
	})
	for part := range slices.Chunk(params, mlflowParams) {
		if _, err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": r.Info.RunID, "params": part}); err != nil {
			return err
		}
	}
	if _, err = m.call(ctx, "runs/update", map[string]any{"run_id": r.Info.RunID, "status": "RUNNING"}); err == nil {
		m.id = r.Info.RunID
	}
	return err
}

// find finds the run in the project's experiment. It creates what does not exist.
func (m *mlflow) find(ctx context.Context) (r mlflowRun, err error) {
	name := "name = '" + strings.ReplaceAll(m.run.Project, "'", "''") + "'"
	reply, err := m.call(ctx, "experiments/search", map[string]any{"filter": name, "max_results": 1})
	if err != nil {
		return r, err
	}
	var experiment string
	if len(reply.Experiments) > 0 {
		experiment = reply.Experiments[0].ID
	} else if reply, err = m.call(ctx, "experiments/create", map[string]any{"name": m.run.Project}); err != nil {
		return r, err
	} else {
		experiment = reply.ExperimentID
	}
	const tag = "deepswe.run"
	reply, err = m.call(ctx, "runs/search", map[string]any{
		"experiment_ids": []string{experiment}, "max_results": 1, "filter": "tags.`" + tag + "` = '" + m.run.key() + "'",
	})
	if err != nil || len(reply.Runs) > 0 {
		return append(reply.Runs, r)[0], err
	}
	reply, err = m.call(ctx, "runs/create", map[string]any{
		"experiment_id": experiment, "run_name": m.run.Name, "start_time": m.run.Created.UnixMilli(),
		"tags": []mlflowPair{{tag, m.run.key()}},
	})
	return reply.Run, err
}

// Close says how the run has ended.
func (m *mlflow) Close(ctx context.Context, cause error) error {
	if m.id == "" {
		return nil
	}
	status := "FINISHED"
	switch {
	case errors.Is(cause, run.ErrInterrupted):
		status = "KILLED"
	case cause != nil:
		status = "FAILED"
	}
	_, err := m.call(ctx, "runs/update", map[string]any{
		"run_id": m.id, "status": status, "end_time": time.Now().UnixMilli(),
	})
	return err
}

func (m *mlflow) call(ctx context.Context, method string, body map[string]any) (reply mlflowReply, err error) {
	err = m.server.post(ctx, method, body, &reply)
	return reply, err
}

// mlflowName replaces what the server does not take in a name: it would refuse the whole batch.
func mlflowName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-. :/", r) {
			return r
		}
		return '_'
	}, strings.ReplaceAll(name, "@", "_at_"))
	name = path.Clean("/" + name)[1:] // it has to be a clean path
	return cmp.Or(name[:min(len(name), mlflowKey)], "_")
}

// mlflowFlat is a configuration as parameters, with dots between the levels of their names.
func mlflowFlat(prefix string, config map[string]any) (all []mlflowPair) {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		switch value := config[key].(type) {
		case map[string]any:
			all = append(all, mlflowFlat(prefix+key+".", value)...)
		default:
			text, ok := value.(string)
			if !ok {
				data, _ := json.Marshal(value) // a configuration can always be encoded
				text = string(data)
			}
			text = strings.ToValidUTF8(text[:min(len(text), mlflowText)], "")
			all = append(all, mlflowPair{mlflowName(prefix + key), text})
		}
	}
	return all
}
