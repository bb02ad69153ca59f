package forge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// maxLog is how many bytes of a failed check's log are kept, from its end.
const maxLog = 6 << 10

var failed = []string{"failure", "failed", "error", "timed_out"}

// checks returns the checks that failed at the head of a pull request.
func (s *session) checks(ctx context.Context, p Pull) ([]Check, error) {
	if s.kind == GitLab {
		return s.gitLabJobs(ctx, p)
	}
	var all []Check
	commit := s.path() + "/commits/" + p.Head.SHA
	var status struct {
		Statuses []struct{ State, Status, Context, Description string }
	}
	if _, err := s.get(ctx, commit+"/status", "", &status); err != nil {
		return nil, err
	}
	for _, c := range status.Statuses {
		if state := cmp.Or(c.State, c.Status); slices.Contains(failed, state) {
			all = append(all, Check{Name: oneLine(c.Context), Result: cmp.Or(oneLine(c.Description), state)})
		}
	}
	if s.kind != GitHub {
		return all, nil
	}
	var runs struct {
		Runs []struct {
			ID               int64
			Name, Conclusion string
			Output           struct{ Title, Summary string }
			App              struct{ Slug string }
		} `json:"check_runs"`
	}
	if _, err := s.get(ctx, commit+"/check-runs", "per_page=100", &runs); err != nil {
		return all, err
	}
	for _, c := range runs.Runs {
		if !slices.Contains(failed, c.Conclusion) {
			continue
		}
		one := Check{Name: oneLine(c.Name), Result: cmp.Or(oneLine(c.Output.Title), c.Conclusion),
			Log: lastOf(c.Output.Summary)}
		if c.App.Slug == "github-actions" {
			var log string // GitHub redirects to it, and the token is not sent there
			if _, err := s.get(ctx, fmt.Sprintf("%s/actions/jobs/%d/logs", s.path(), c.ID), "", &log); err == nil {
				one.Log = lastOf(log)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

func (s *session) gitLabJobs(ctx context.Context, p Pull) ([]Check, error) {
	var pipelines []struct {
		ID      int64
		Status  string
		Project int64 `json:"project_id"`
	}
	if _, err := s.get(ctx, s.pulls(p.Number)+"/pipelines", "", &pipelines); err != nil {
		return nil, err
	}
	if len(pipelines) == 0 || pipelines[0].Status != "failed" {
		return nil, nil
	}
	project := fmt.Sprintf("/projects/%d", cmp.Or(pipelines[0].Project, int64(p.Head.Repo.ID)))
	var jobs []struct {
		ID           int64
		Name         string
		Reason       string `json:"failure_reason"`
		AllowFailure bool   `json:"allow_failure"`
	}
	path := fmt.Sprintf("%s/pipelines/%d/jobs", project, pipelines[0].ID)
	_, err := s.get(ctx, path, "scope[]=failed&per_page=100", &jobs)
	var all []Check
	for _, j := range jobs {
		if j.AllowFailure {
			continue
		}
		one := Check{Name: oneLine(j.Name), Result: cmp.Or(oneLine(j.Reason), "failed")}
		var log string
		if _, err := s.get(ctx, fmt.Sprintf("%s/jobs/%d/trace", project, j.ID), "", &log); err == nil {
			one.Log = lastOf(log)
		}
		all = append(all, one)
	}
	return all, err
}

// lastOf returns the end of a log, from the beginning of a line.
func lastOf(log string) string {
	log = strings.TrimSpace(visible(strings.ToValidUTF8(log, "\uFFFD")))
	if len(log) <= maxLog {
		return log
	}
	log = log[len(log)-maxLog:]
	_, rest, _ := strings.Cut(log, "\n")
	return "…\n" + strings.ToValidUTF8(cmp.Or(rest, log), "")
}
