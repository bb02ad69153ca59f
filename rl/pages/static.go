package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"

	"deepswe/agent/run"
)

// packed is a rollout in a page that is a file: compressed HTML, which the page unfolds.
type packed struct {
	ID, Data string
	Parts    []string
	row
}

// perPart is the number of steps in each compressed part of a one-file page.
const perPart = 50

// WriteFile writes the run, or the one attempt, in a directory as a page that needs no server and no other file. It has
// all rollouts of the run, except those of training.
func (h *Handler) WriteFile(w io.Writer, path string) error {
	f, err := h.lib.describe(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h.writeAttempt(w, path)
	}
	if err != nil {
		return err
	}
	r, err := h.lib.load(f)
	if err != nil {
		return err
	}
	v, err := h.overview(r, &http.Request{URL: &url.URL{}})
	if err != nil {
		return err
	}
	if r.Kind == rankKind {
		if v, err = h.ranked(r, nil); err != nil {
			return err
		}
	}
	v.Tabs = nil
	if r.Kind != run.Train && r.Kind != rankKind {
		v.template = "static"
		all, longest, err := h.packAll(r)
		if err != nil {
			return err
		}
		v.Data = struct {
			Run     *loaded
			Cards   any
			Rollout []packed
			Longest int
		}{r, h.cards(r), all, longest}
	}
	return h.writeStatic(w, v)
}

// writeAttempt writes the page of one attempt.
func (h *Handler) writeAttempt(w io.Writer, dir string) error {
	full, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := recordingIn(full); err != nil {
		return fmt.Errorf("%s holds neither a run nor an attempt: %w", dir, err)
	}
	x := openRow(full, false)
	p, err := rolloutOf(&loaded{}, x)
	if err != nil {
		return err
	}
	p.Logs = nil
	if err := h.packSteps(p, "r"); err != nil {
		return err
	}
	return h.writeStatic(w, view{template: "rollout", Title: label(x), Data: p})
}

// mostPacked is the most bytes of all rollouts in a page, which is to be sent by mail. Where they have more, the texts
// of steps are cut to the next of textSizes.
const mostPacked = 18 << 20

var textSizes = [...]int{maxText, 6000, 2000, 600, 200}

// packAll compresses the pages of a run's rollouts. longest is what texts were cut to: the first of textSizes with
// which all pages fit, or the last.
func (h *Handler) packAll(r *loaded) (all []packed, longest int, err error) {
	for _, longest = range textSizes {
		var size int
		if all, size, err = h.pack(r, longest); err != nil || size <= mostPacked {
			break
		}
	}
	return all, longest, err
}

// pack compresses the pages of a run's rollouts, until they are too large.
func (h *Handler) pack(r *loaded, longest int) (all []packed, size int, err error) {
	for i, x := range r.Rows {
		p, err := rolloutOf(r, x)
		if err != nil {
			return nil, 0, err
		}
		p.shorten(longest)
		p.Logs = nil
		if r.Kind == run.Solve && len(r.Rows) == 1 {
			p.Next = nextCommands(r)
		}
		one := packed{ID: "r" + strconv.Itoa(i), row: x}
		if err := h.packSteps(p, one.ID); err != nil {
			return nil, 0, err
		}
		one.Parts = p.Parts
		if one.Data, err = h.compress("rollout-body", p); err != nil {
			return nil, 0, err
		}
		all, size = append(all, one), size+len(one.Data)
		for _, part := range one.Parts {
			size += len(part)
		}
		if size > mostPacked && longest > textSizes[len(textSizes)-1] {
			break
		}
	}
	return all, size, nil
}

// packSteps compresses the steps of a long rollout apart from its page, which loads them when they are unfolded: a
// browser takes seconds to lay out thousands.
func (h *Handler) packSteps(p *rolloutPage, id string) error {
	if p.Lazy = len(p.Steps) > lazily; !p.Lazy {
		return nil
	}
	p.Packed = id
	for some := range slices.Chunk(p.Steps, perPart) {
		part, err := h.compress("steps-body", some)
		if err != nil {
			return err
		}
		p.Parts = append(p.Parts, part)
	}
	return nil
}

// compress returns what a template writes, compressed, as text.
func (h *Handler) compress(name string, data any) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	err := errors.Join(h.pages.ExecuteTemplate(z, name, data), z.Close())
	return base64.StdEncoding.EncodeToString(b.Bytes()), err
}

// writeStatic writes a page with its style and script in it, and a policy that admits no other.
func (h *Handler) writeStatic(w io.Writer, v view) error {
	v.Crumbs, v.Live = nil, false
	v.Style, v.Script = template.CSS(styleSheet()), template.JS(script())
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	v.Policy = "default-src 'none'; style-src " + hash(string(v.Style)) + "; script-src " + hash(string(v.Script))
	return h.pages.ExecuteTemplate(w, v.template, v)
}
