package pages

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/verify/compare"
	"deepswe/verify/plot"
	"deepswe/verify/rank/ranking"
)

//go:embed web
var web embed.FS

// Handler serves the pages of runs.
type Handler struct {
	base   string
	lib    *library
	prices *cli.Prices
	pages  *template.Template
	mux    *http.ServeMux

	mu          sync.Mutex
	unfolded    *rolloutPage // the last one of which a step was asked for
	unfoldedKey string
}

// Options configure a Handler.
type Options struct {
	// Paths are directories of runs, and folders of such directories.
	Paths []string
	// Base is the path below which the pages are served, without a slash at its end; empty for the whole server. The
	// handler itself is called with paths without it.
	Base string
	// Prices are those of models; nil where none is known.
	Prices *cli.Prices
}

// New returns a handler for runs, which may be live.
func New(o Options) (*Handler, error) {
	h := &Handler{mux: http.NewServeMux(), base: o.Base, lib: newLibrary(o.Paths, o.Base), prices: o.Prices}
	var err error
	h.pages, err = template.New("pages").Funcs(template.FuncMap{
		"number": plot.Number, "percent": plot.Percent, "clock": clock, "count": count, "size": size,
		"ago": ago, "list": func(all ...any) []any { return all }, "words": phrase,
		"height": func(bars []bar) int { return 30 * len(bars) },
		"token":  tokenTitle,
		"base":   func() string { return o.Base },
	}).ParseFS(web, "web/*.html")
	if err == nil {
		_, err = h.pages.Parse(plot.Parts)
	}
	if err != nil {
		return nil, fmt.Errorf("page templates: %w", err)
	}
	h.mux.HandleFunc("GET /{$}", h.index)
	h.mux.HandleFunc("GET /-/style.css", asset("text/css; charset=utf-8", styleSheet()))
	h.mux.HandleFunc("GET /-/pages.js", asset("text/javascript; charset=utf-8", script()))
	h.mux.HandleFunc("GET /-/compare", h.compare)
	h.mux.HandleFunc("GET /{run}/{$}", h.page(h.overview))
	h.mux.HandleFunc("GET /{run}/failures", h.page(h.failures))
	h.mux.HandleFunc("GET /{run}/ranking", h.page(h.ranked))
	h.mux.HandleFunc("GET /{run}/task", h.page(h.task))
	h.mux.HandleFunc("GET /{run}/rollout", h.page(h.rollout))
	h.mux.HandleFunc("GET /{run}/log", h.page(h.log))
	h.mux.HandleFunc("GET /{run}/step/{step}", h.page(h.step))
	h.mux.HandleFunc("GET /{run}/tasks", h.page(h.tasks))
	return h, nil
}

// styleSheet returns the style of all pages.
func styleSheet() string {
	return plot.Style + ranking.PageStyle + compare.PageStyle + own("web/pages.css")
}

func script() string { return own("web/pages.js") }

// own returns an embedded file, which must exist.
func own(name string) string {
	data, _ := web.ReadFile(name)
	return string(data)
}

// asset serves a text of the program.
func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		protect(w)
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(text)) // a browser that went away is not an error
	}
}

// ServeHTTP serves a page.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// cost is what a run has cost; 0 if its model has no known price.
func (h *Handler) cost(r *loaded) float64 {
	price, _ := h.prices.Of(r.Model)
	return price.Cost(agent.Usage{Prompt: r.Total.Read, Completion: r.Total.Written})
}

// errNotFound is returned for a run, step, rollout or task that is not there.
var errNotFound = errors.New("not found")

// view is a page: the name of its template, and what its frame and the template show.
type view struct {
	template string
	Title    string
	// Crumbs lead to the pages above.
	Crumbs []link
	// Tabs are the pages of a run, if it has several.
	Tabs []link
	// Live is set if the page is to be loaded again while it is looked at.
	Live bool
	Data any

	// Style and Script are set in a page that is a file of its own, for which Policy is the security policy.
	Style  template.CSS
	Script template.JS
	Policy string
}

// link is a link, or only a text if To is empty.
type link struct{ Text, To string }

// page handles requests for one kind of page of a run.
func (h *Handler) page(data func(*loaded, *http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		run, err := h.lib.find(r.PathValue("run"))
		var v view
		if err == nil {
			v, err = data(run, r)
		}
		if err == nil {
			v.Crumbs = append([]link{{"Runs", h.base + "/"}, {run.ID, run.Base}}, v.Crumbs...)
			v.Live = v.Live || run.State == stateRunning
		}
		h.write(w, v, err)
	}
}

// write responds with a page, or with an error page.
func (h *Handler) write(w http.ResponseWriter, v view, err error) {
	var b bytes.Buffer
	if err == nil {
		err = h.pages.ExecuteTemplate(&b, v.template, v)
	}
	status := http.StatusOK
	if err != nil {
		title := "This page cannot be shown"
		status = http.StatusInternalServerError
		if errors.Is(err, errNotFound) || errors.Is(err, fs.ErrNotExist) {
			status, title = http.StatusNotFound, "Not found"
		}
		b.Reset()
		v = view{Title: title, Crumbs: []link{{"Runs", h.base + "/"}}, Data: plain(err.Error())}
		_ = h.pages.ExecuteTemplate(&b, "error", v) // only a template that does not fit fails
	}
	protect(w)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// protect sets the headers of all answers. Pages contain text that a model wrote, which must not be executed.
func protect(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
}

// phrase writes an internal name, such as max_steps, for people.
func phrase(name any) string { return strings.ReplaceAll(fmt.Sprint(name), "_", " ") }

// clock writes seconds for people; nothing for 0.
func clock(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return plot.Duration(seconds)
}

// count writes a number of things; nothing for 0.
func count(n int) string {
	if n == 0 {
		return ""
	}
	return plot.Count(float64(n))
}

// size writes a number of bytes; nothing for 0.
func size(n int64) string {
	if n == 0 {
		return ""
	}
	return plot.Count(float64(n)) + "B"
}

// ago writes a time.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04")
}
