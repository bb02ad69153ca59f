package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepswe/agent/run"
	"deepswe/env/testkit"
)

// tracking answers like the server of MLflow 3.17.2, as far as the sink uses it. It has one run.
type tracking struct {
	mu       sync.Mutex
	requests strings.Builder
	project  string
	tag      string
	params   map[string]string
	stored   map[string]bool
	latest   map[string]int
	status   string
	down     int
}

var mlflowNames = regexp.MustCompile(`^[/\w.\- :]*$`)

func (s *tracking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if s.down > 0 {
		s.down--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(&s.requests, "%s %s\n%s\n", r.Method, r.URL.Path, body)
	reply, refusal := s.answer(r, body)
	if refusal != "" {
		w.WriteHeader(http.StatusBadRequest)
		reply = map[string]any{"error_code": refusal, "message": "refused"}
	}
	_ = json.NewEncoder(w).Encode(reply)
}

func (s *tracking) answer(r *http.Request, body []byte) (reply any, refusal string) {
	var in struct {
		Name, Filter, Status string
		RunID                string `json:"run_id"`
		Tags, Params         []mlflowPair
		Metrics              []mlflowMetric
	}
	if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
		return nil, "UNAUTHENTICATED"
	}
	if err := json.Unmarshal(body, &in); err != nil || len(body) > 1_000_000 {
		return nil, "BAD_REQUEST"
	}
	switch strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/") {
	case "experiments/create":
		s.project = in.Name
		return map[string]string{"experiment_id": "7"}, ""
	case "experiments/search":
		if in.Filter != "name = '"+s.project+"'" {
			return struct{}{}, ""
		}
		return map[string]any{"experiments": []any{map[string]string{"experiment_id": "7"}}}, ""
	case "runs/search":
		if s.tag == "" || in.Filter != "tags.`deepswe.run` = '"+s.tag+"'" {
			return struct{}{}, ""
		}
		var latest []map[string]any
		for key, step := range s.latest {
			latest = append(latest, map[string]any{"key": key, "step": step, "value": 0})
		}
		var params []mlflowPair
		for key, value := range s.params {
			params = append(params, mlflowPair{key, value})
		}
		return map[string]any{"runs": []any{map[string]any{
			"info": map[string]any{"run_id": "r1"}, "data": map[string]any{"metrics": latest, "params": params},
		}}}, ""
	case "runs/create":
		s.tag, s.status = in.Tags[0].Value, "RUNNING"
		return map[string]any{"run": map[string]any{"info": map[string]any{"run_id": "r1"}}}, ""
	case "runs/log-batch":
		return struct{}{}, s.log(in.RunID, in.Params, in.Metrics)
	case "runs/update":
		s.status = in.Status
		return struct{}{}, ""
	}
	return nil, "ENDPOINT_NOT_FOUND"
}

func (s *tracking) log(id string, params []mlflowPair, values []mlflowMetric) (refusal string) {
	if id != "r1" || len(params) > 100 || len(values) > 1000 {
		return "INVALID_PARAMETER_VALUE"
	}
	for _, p := range params {
		if old, ok := s.params[p.Key]; ok && old != p.Value || !mlflowNames.MatchString(p.Key) || len(p.Value) > 6000 {
			return "INVALID_PARAMETER_VALUE"
		}
		s.params[p.Key] = p.Value
	}
	for _, m := range values {
		if !mlflowNames.MatchString(m.Key) || len(m.Key) > 250 {
			return "INVALID_PARAMETER_VALUE"
		}
		s.stored[fmt.Sprint(m)] = true
		s.latest[m.Key] = max(s.latest[m.Key], m.Step)
	}
	return ""
}

// lakeRun is a run of which a test sends some steps before it resumes it from step 2.
func lakeRun(id string) Run {
	return Run{
		Project: "frozen lake", Name: "one", ID: id, Created: noon, Begun: noon.Add(time.Minute),
		Config: map[string]any{
			"steps": 4, "name": "lake", "empty": "", "long": strings.Repeat("é", 4000),
			"algorithm": map[string]any{"preset": "grpo", "set": map[string]any{"clip.high": 0.28, "x/../y": nil}},
			"list":      []any{1, "<two>"},
		},
	}
}

func lakePoints(from, to int) (points []Point) {
	for step := from; step <= to; step++ {
		p := point(step, map[string]float64{"reward/mean": float64(step) / 8, "odd [name]": 1e-300})
		if step%2 == 0 {
			p.Values["val/pass@1"] = 0.25
		}
		points = append(points, p)
	}
	return points
}

// mlflowScenario sends a run that is interrupted after step 3 and resumed from step 2.
func mlflowScenario(t *testing.T, target Target, id string) {
	t.Helper()
	log, warned := warnings()
	s := target.Open(lakeRun(id))
	if err := s.Send(t.Context(), lakePoints(0, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context(), run.ErrInterrupted); err != nil {
		t.Fatal(err)
	}
	r := lakeRun(id)
	r.Config["steps"] = 5 // steps may change, but the server accepts no other value for a parameter
	f := newFeed(target, r, lakePoints(0, 2), log, quick())
	for _, p := range lakePoints(3, 5) {
		p.Time = p.Time.Add(time.Hour)
		f.Write(p)
	}
	f.Close(nil)
	if w := warned(); w != "" {
		t.Error(w)
	}
}

func mlflowAccount(key string) string {
	return map[string]string{"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "secret"}[key]
}

// These requests are the ones that a real server of MLflow 3.17.2 accepted: see TestMLflowServer.
func TestMLflow(t *testing.T) {
	s := &tracking{params: map[string]string{}, stored: map[string]bool{}, latest: map[string]int{}}
	server := httptest.NewServer(s)
	defer server.Close()
	target, err := MLflow(server.URL, mlflowAccount)
	if err != nil {
		t.Fatal(err)
	}
	mlflowScenario(t, target, "one-1")
	if len(s.stored) != 6*2+3 || s.latest["val/pass_at_1"] != 4 || s.status != "FINISHED" || s.params["steps"] != "4" {
		t.Errorf("%d values, latest %v, %s, parameters %v", len(s.stored), s.latest, s.status, s.params)
	}
	if names := slices.Sorted(maps.Keys(s.latest)); names[0] != "odd _name_" {
		t.Errorf("names %q", names)
	}
	said := strings.ReplaceAll(s.requests.String(), strings.Repeat("é", 3000), "3000 times é")
	said = regexp.MustCompile(`"end_time":\d+`).ReplaceAllString(said, `"end_time":0`)
	testkit.Golden(t, "testdata/mlflow-3.17.2.txt", said)
}

// If a call fails while the run is being created, the server still gets all parameters, and only one run.
func TestMLflowRecovers(t *testing.T) {
	for down := 1; down < 9; down++ {
		s := &tracking{params: map[string]string{}, stored: map[string]bool{}, latest: map[string]int{}}
		var calls atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == int64(down) {
				panic(http.ErrAbortHandler)
			}
			s.ServeHTTP(w, r)
		}))
		target, err := MLflow(server.URL+"/", mlflowAccount)
		if err != nil {
			t.Fatal(err)
		}
		log, _ := warnings()
		f := newFeed(target, lakeRun("1"), lakePoints(0, 3), log, quick())
		f.Close(errors.New("the trainer was lost"))
		said := s.requests.String()
		if len(s.params) != 8 || len(s.stored) != 10 || strings.Count(said, "runs/create") != 1 {
			t.Errorf("call %d failed: %d parameters, %d values", down, len(s.params), len(s.stored))
		}
		if down < 7 && s.status != "FAILED" {
			t.Errorf("call %d failed: %s", down, s.status)
		}
		server.Close()
	}
}

// A point with more values than a request may have is split, and each request has the token.
func TestMLflowLimits(t *testing.T) {
	var sizes []int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Metrics []any }
		_ = json.NewDecoder(r.Body).Decode(&in)
		if in.Metrics != nil {
			sizes = append(sizes, len(in.Metrics))
		}
		if r.Header.Get("Authorization") != "Bearer token" {
			t.Error("no token")
		}
		fmt.Fprint(w, `{"run": {"info": {"run_id": "1"}}}`)
	}))
	defer server.Close()
	target, err := MLflow(server.URL, func(key string) string {
		return map[string]string{"MLFLOW_TRACKING_TOKEN": "token"}[key]
	})
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for i := range 2100 {
		values["metric/"+strconv.Itoa(i)] = 1
	}
	send(t, target, Run{}, point(1, values))
	if !slices.Equal(sizes, []int{1000, 1000, 100}) {
		t.Errorf("%v", sizes)
	}
	if _, err := MLflow("host:5000", os.Getenv); err == nil {
		t.Error("an address without a scheme was accepted")
	}
}

// TestMLflowServer sends a run to a real server, started with "mlflow server", and checks what it has stored.
func TestMLflowServer(t *testing.T) {
	address := os.Getenv("DEEPSWE_TEST_MLFLOW")
	if address == "" {
		testkit.Skip(t, "mlflow", "DEEPSWE_TEST_MLFLOW is the address of a server")
	}
	target, err := MLflow(address, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	r := lakeRun(fmt.Sprint("one-", time.Now().UnixNano()))
	mlflowScenario(t, target, r.ID)
	found, err := (target.Open(r).(*mlflow)).find(t.Context())
	if err != nil || len(found.Data.Params) != 8 {
		t.Fatalf("%d parameters, %v", len(found.Data.Params), err)
	}
	reply, err := http.Get(address + "/api/2.0/mlflow/metrics/get-history?metric_key=reward/mean&run_id=" +
		found.Info.RunID)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var history struct{ Metrics []mlflowMetric }
	if err := json.NewDecoder(reply.Body).Decode(&history); err != nil || len(history.Metrics) != 6 ||
		history.Metrics[5] != (mlflowMetric{"reward/mean", 0.625, noon.Add(time.Hour + 5*time.Second).UnixMilli(), 5}) {
		t.Errorf("%+v, %v", history, err)
	}
}
