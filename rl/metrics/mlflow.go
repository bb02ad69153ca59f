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
	"unicode/utf8"

	"deepswe/agent/run"
)

// mlflow sends the points of a run to an MLflow server over its REST API. The run there has ours in a tag, by which a
// session that goes on with it finds it.
type mlflow struct {
	server server
	run    Run
	// created is the run's ID on the server once it is there, and id is set when it has its parameters as well.
	created, id string
	have        had
}

// Most of what one request may hold, and of a parameter's text.
const (
	mlflowMetrics = 1000
	mlflowParams  = 100
	mlflowText    = 6000
	mlflowKey     = 250
	mlflowTag     = "deepswe.run"
)

// MLflow is the MLflow server at an address. The variables of its own client authorize: MLFLOW_TRACKING_TOKEN, or
// MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
func MLflow(address string, getenv func(string) string) (Target, error) {
	u, err := parseAddress(address)
	if err != nil {
		return Target{}, err
	}
	header := http.Header{}
	name, password := getenv("MLFLOW_TRACKING_USERNAME"), getenv("MLFLOW_TRACKING_PASSWORD")
	switch token := getenv("MLFLOW_TRACKING_TOKEN"); {
	case name != "" && password != "":
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(name+":"+password)))
	case token != "":
		header.Set("Authorization", "Bearer "+token)
	}
	s := server{base: u.JoinPath("api/2.0/mlflow"), header: header}
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

// mlflowRun is what the server knows of a run: with the newest value of each metric.
type mlflowRun struct {
	Info struct {
		RunID string `json:"run_id"`
	} `json:"info"`
	Data struct {
		Metrics []struct {
			Key  string      `json:"key"`
			Step json.Number `json:"step"`
		} `json:"metrics"`
	} `json:"data"`
}

// Send sends what the server does not have of the points.
func (m *mlflow) Send(ctx context.Context, points []Point) error {
	if m.id == "" {
		if err := m.begin(ctx); err != nil {
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
		if err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": m.id, "metrics": part}, nil); err != nil {
			return err
		}
	}
	m.have = have
	return nil
}

// begin finds the run on the server, or creates it.
func (m *mlflow) begin(ctx context.Context) error {
	experiment, err := m.experiment(ctx)
	if err != nil {
		return err
	}
	if m.created == "" {
		var found struct {
			Runs []mlflowRun `json:"runs"`
		}
		filter := fmt.Sprintf("tags.`%s` = '%s'", mlflowTag, m.run.key())
		err = m.call(ctx, "runs/search", map[string]any{
			"experiment_ids": []string{experiment}, "filter": filter, "max_results": 1,
		}, &found)
		if err != nil {
			return err
		}
		if len(found.Runs) > 0 {
			return m.resume(ctx, found.Runs[0])
		}
		var created struct {
			Run mlflowRun `json:"run"`
		}
		err = m.call(ctx, "runs/create", map[string]any{
			"experiment_id": experiment, "run_name": m.run.Name, "start_time": m.run.Created.UnixMilli(),
			"tags": []mlflowPair{{mlflowTag, m.run.key()}},
		}, &created)
		if err != nil {
			return err
		}
		m.created = created.Run.Info.RunID
	}
	for part := range slices.Chunk(mlflowFlat("", m.run.Config), mlflowParams) {
		if err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": m.created, "params": part}, nil); err != nil {
			return err
		}
	}
	m.id, m.have = m.created, had{}
	return nil
}

// resume goes on with a run.
func (m *mlflow) resume(ctx context.Context, r mlflowRun) error {
	m.have = had{}
	for _, v := range r.Data.Metrics {
		step, err := v.Step.Int64()
		if err != nil {
			return fmt.Errorf("the step of %s: %w", v.Key, err)
		}
		m.have[v.Key] = int(step)
	}
	if err := m.call(ctx, "runs/update", map[string]any{"run_id": r.Info.RunID, "status": "RUNNING"}, nil); err != nil {
		return err
	}
	m.id = r.Info.RunID
	return nil
}

// experiment returns the ID of the project's experiment, which is created if there is none.
func (m *mlflow) experiment(ctx context.Context) (string, error) {
	var reply struct {
		ID string `json:"experiment_id"`
	}
	err := m.call(ctx, "experiments/create", map[string]string{"name": m.run.Project}, &reply)
	refused, ok := errors.AsType[*statusError](err)
	if !ok || !strings.Contains(refused.text, "RESOURCE_ALREADY_EXISTS") {
		return reply.ID, err
	}
	var found struct {
		Experiments []struct {
			ID string `json:"experiment_id"`
		} `json:"experiments"`
	}
	// Its names cannot be quoted in a filter if they have both kinds of quotes; ours are slugs and spaces.
	filter := "name = '" + strings.ReplaceAll(m.run.Project, "'", "''") + "'"
	err = m.call(ctx, "experiments/search", map[string]any{"filter": filter, "max_results": 1}, &found)
	if err == nil && len(found.Experiments) == 0 {
		err = fmt.Errorf("the experiment %q was deleted; to fix: restore it, or change the name of the configuration",
			m.run.Project)
	}
	if err != nil {
		return "", err
	}
	return found.Experiments[0].ID, nil
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
	return m.call(ctx, "runs/update", map[string]any{
		"run_id": m.id, "status": status, "end_time": time.Now().UnixMilli(),
	}, nil)
}

func (m *mlflow) call(ctx context.Context, method string, body, reply any) error {
	if reply == nil {
		reply = &struct{}{}
	}
	return m.server.post(ctx, method, body, reply)
}

// mlflowName spells a name with what the server takes: one that it does not take would have a whole batch refused.
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
		name, value := mlflowName(prefix+key), config[key]
		if below, ok := value.(map[string]any); ok {
			all = append(all, mlflowFlat(prefix+key+".", below)...)
			continue
		}
		text, ok := value.(string)
		if !ok {
			data, _ := json.Marshal(value) // a configuration has a form in JSON
			text = string(data)
		}
		if len(text) > mlflowText {
			text = text[:mlflowText]
			for !utf8.ValidString(text) {
				text = text[:len(text)-1]
			}
		}
		all = append(all, mlflowPair{name, text})
	}
	return all
}
