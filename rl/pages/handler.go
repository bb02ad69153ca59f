package pages

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"

	"deepswe/rl/train/record"
	"deepswe/verify/plot"
)

//go:embed pages.html
var templates string

// Handler serves the pages of several runs.
type Handler struct {
	runs  []trained
	pages *template.Template
	mux   *http.ServeMux
}

// trained is a run and its directory.
type trained struct{ Name, Dir string }

// New returns a handler for the runs in these directories. Its links are relative, so it can be mounted below any path
// that ends with a slash.
func New(dirs ...string) (*Handler, error) {
	h := &Handler{mux: http.NewServeMux()}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if len(dirs) > 1 {
			name = filepath.Join(filepath.Base(filepath.Dir(dir)), name)
		}
		h.runs = append(h.runs, trained{name, dir})
	}
	var err error
	h.pages, err = template.New("pages").Funcs(template.FuncMap{
		"number": plot.Number,
	}).Parse(templates)
	if err != nil {
		return nil, fmt.Errorf("page templates: %w", err)
	}
	h.mux.HandleFunc("GET /{$}", h.index)
	h.mux.HandleFunc("GET /{run}/report", h.report)
	h.mux.HandleFunc("GET /{run}/{$}", h.page("steps", h.steps))
	h.mux.HandleFunc("GET /{run}/step/{step}", h.page("step", h.step))
	h.mux.HandleFunc("GET /{run}/step/{step}/{group}/{attempt}", h.page("rollout", h.rollout))
	h.mux.HandleFunc("GET /{run}/tasks", h.page("tasks", h.tasks))
	return h, nil
}

// ServeHTTP serves a page.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// errNotFound is returned for a step, rollout or task that the run does not have.
var errNotFound = errors.New("not found")

// view is the data of a page's frame.
type view struct {
	Title string
	Style template.CSS
	// Up is the relative link to the list of runs.
	Up string
	// Data is what the page's own template needs.
	Data any
}

// page handles requests for one kind of page of a run. data returns its title and the data of its template.
func (h *Handler) page(name string, data func(trained, *http.Request) (string, any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t, err := h.run(r)
		var title string
		var d any
		if err == nil {
			title, d, err = data(t, r)
		}
		h.write(w, name, title, d, err)
	}
}

// run returns the run that a request names.
func (h *Handler) run(r *http.Request) (trained, error) {
	i, err := strconv.Atoi(r.PathValue("run"))
	if err != nil || i < 0 || i >= len(h.runs) {
		return trained{}, fmt.Errorf("run %s: %w", r.PathValue("run"), errNotFound)
	}
	return h.runs[i], nil
}

// write responds with a page, or with an error page.
func (h *Handler) write(w http.ResponseWriter, name, title string, data any, err error) {
	var b bytes.Buffer
	if err == nil {
		err = h.pages.ExecuteTemplate(&b, name, view{Title: title, Style: template.CSS(plot.Style), Data: data})
	}
	switch {
	case errors.Is(err, errNotFound), errors.Is(err, fs.ErrNotExist):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// The pages contain text that a model wrote, which must not be executed.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(b.Bytes()) // a browser that went away is not an error
}

// report serves the run's report.html.
func (h *Handler) report(w http.ResponseWriter, r *http.Request) {
	t, err := h.run(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	http.ServeFile(w, r, filepath.Join(t.Dir, record.ReportFile))
}
