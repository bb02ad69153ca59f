package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"deepswe/agent"
	"deepswe/env/disk"
	"deepswe/env/kubernetes"
)

// World is everything that a command needs from outside. Command packages add their own needs in a Deps.
type World struct {
	In io.Reader
	// Out receives results, Err messages for the user; Err is a [Screen] if live lines are wanted.
	Out, Err io.Writer
	// Log prints warnings for the user; nil discards them.
	Log    *slog.Logger
	Getenv func(string) string
	// Abandon is closed when the user asks a second time to stop: running rollouts are then abandoned.
	Abandon <-chan struct{}
	// Version is deepswe's version.
	Version string
	// Sandboxes, if not nil, replaces the table behind --env, and OpenModel, if not nil, replaces opening a live
	// endpoint.
	Sandboxes []SandboxKind
	OpenModel func(ctx context.Context, c ModelChoice) (LiveModel, error)
}

// Logger returns Log, or a logger that discards everything if Log is nil.
func (w World) Logger() *slog.Logger {
	if w.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return w.Log
}

// Program returns the name and version of this program for manifests of runs.
func (w World) Program() string { return "deepswe " + w.Version }

// RunID returns a unique name for a new run. Names sort by time.
func (w World) RunID() string {
	var b [3]byte
	rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%x", time.Now().UTC().Format("20060102-150405"), b)
}

// RunsDir returns the default directory of runs, the same for all commands: $XDG_STATE_HOME/deepswe/runs,
// ~/.local/state/deepswe/runs or one in the user's temporary directory.
func (w World) RunsDir() string {
	return filepath.Join(cmp.Or(w.xdg("XDG_STATE_HOME", ".local/state"), homeless()), "runs")
}

// RunDir returns the default directory of the run with the given ID, which --out replaces.
func (w World) RunDir(id string) string { return filepath.Join(w.RunsDir(), id) }

// homeless returns deepswe's directory for a user without a home. Its name contains the user's ID, so that no two
// users share one.
func homeless() string { return filepath.Join(os.TempDir(), fmt.Sprintf("deepswe-%d", os.Getuid())) }

// xdg returns deepswe's directory below the one that a variable names, or else below that part of the home directory;
// empty if neither is set.
func (w World) xdg(variable, part string) string {
	if dir := w.Getenv(variable); dir != "" {
		return filepath.Join(dir, "deepswe")
	}
	if home := w.Getenv("HOME"); home != "" {
		return filepath.Join(home, part, "deepswe")
	}
	return ""
}

// ShortPath writes a path below the user's home directory as a shell takes it: ~/.config.
func (w World) ShortPath(path string) string {
	if rest, ok := strings.CutPrefix(path, w.Getenv("HOME")+"/"); ok && rest != path[1:] {
		return "~/" + rest
	}
	return path
}

// CacheDir returns a directory for data that can be created again: below $XDG_CACHE_HOME/deepswe, ~/.cache/deepswe or
// the user's temporary directory.
func (w World) CacheDir(name string) string {
	return filepath.Join(cmp.Or(w.xdg("XDG_CACHE_HOME", ".cache"), filepath.Join(homeless(), "cache")), name)
}

// ErrReaderGone is the error of writing to a standard output whose reader has gone (| head). Commands end quietly
// then.
var ErrReaderGone = errors.New("the reader of standard output has gone away")

// Stdout is a process's standard output. It returns [ErrReaderGone] instead of EPIPE.
type Stdout struct{ *os.File }

func (s Stdout) Write(p []byte) (int, error) { return readerGone(s.File.Write(p)) }

// WriteString is Write without a copy.
func (s Stdout) WriteString(text string) (int, error) { return readerGone(s.File.WriteString(text)) }

func readerGone(n int, err error) (int, error) {
	if errors.Is(err, syscall.EPIPE) {
		err = fmt.Errorf("%w (%w)", ErrReaderGone, err)
	}
	return n, err
}

// JSONLines prints objects as JSON lines. It is safe for concurrent use and does not escape < > &. After an error,
// it prints nothing more.
type JSONLines struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewJSONLines returns a JSONLines that prints to w.
func NewJSONLines(w io.Writer) *JSONLines { return &JSONLines{w: w} }

// Print prints one object on a line, and returns the first error of any line.
func (j *JSONLines) Print(v any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = disk.EncodeJSON(j.w, v)
	}
	return j.err
}

// Err returns the first error of any line.
func (j *JSONLines) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Config is the user's own configuration file. A project's files cannot set any of it.
type Config struct {
	BaseURL string `yaml:"base_url"`
	Model   string `yaml:"model"`
	APIKey  string `yaml:"api_key"`
	Env     string `yaml:"env"`
	Image   string `yaml:"image"`
	Format  string `yaml:"format"`
	Context tokens `yaml:"context"`
	// Prices are the prices of models, by their names in requests.
	Prices *Prices `yaml:"prices"`
	// Profiles come before those that are built in.
	Profiles []Profile `yaml:"profiles"`
	// RegistryMirror, ImageBudget and Disk set the defaults of --registry-mirror, --image-budget and --disk.
	RegistryMirror string `yaml:"registry_mirror"`
	ImageBudget    string `yaml:"image_budget"`
	Disk           string `yaml:"disk"`
	// Kubernetes configures the pods of --env kubernetes.
	Kubernetes *kubernetes.Pods `yaml:"kubernetes"`
}

// Price is what a million tokens of a model cost, in any currency. Cached is the price of cached prompt tokens; 0
// means the same as other prompt tokens.
type Price struct {
	Input  float64 `yaml:"input"`
	Cached float64 `yaml:"cached"`
	Output float64 `yaml:"output"`
}

// Prices maps the names of models to their prices.
type Prices map[string]Price

// Of returns the price of a model; ok is false if it is unknown.
func (p *Prices) Of(model string) (Price, bool) {
	if p == nil {
		return Price{}, false
	}
	price, ok := (*p)[model]
	return price, ok
}

// PriceOf returns the price of a model that the configuration has; known is false if it has none, which is an error if
// the price is needed.
func (w World) PriceOf(model string, needed bool) (p Price, known bool, err error) {
	c, err := w.LoadConfig()
	if err != nil {
		return p, false, err
	}
	if p, known = c.Prices.Of(model); !known && needed {
		err = Usagef("--max-cost requires the price of %s, for a million tokens, in %s:\nprices:\n  %s: {input: 0.5, "+
			"output: 1.5}", model, w.ConfigPath(), model)
	}
	return p, known, err
}

// Cost returns the cost of a usage.
func (p Price) Cost(u agent.Usage) float64 {
	return (float64(u.Prompt-u.Cached)*p.Input + float64(u.Cached)*cmp.Or(p.Cached, p.Input) +
		float64(u.Completion)*p.Output) / 1e6
}

// ConfigPath returns $XDG_CONFIG_HOME/deepswe/config.yaml, or else ~/.config/deepswe/config.yaml; "" if there is no
// home directory.
func (w World) ConfigPath() string {
	if dir := w.xdg("XDG_CONFIG_HOME", ".config"); dir != "" {
		return filepath.Join(dir, "config.yaml")
	}
	return ""
}

// LoadConfig reads the user's configuration. A missing file counts as empty; an unknown key is an error.
func (w World) LoadConfig() (Config, error) {
	var c Config
	path := w.ConfigPath()
	if path == "" {
		return c, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, Usagef("configuration: %w", err)
	}
	if c, err = parseConfig(data); err != nil {
		return c, Usagef("configuration %s: %w", path, err)
	}
	return c, nil
}

// TrainerCheck names a trainer's server, and what to try it with.
type TrainerCheck struct {
	// URL is the address of a Tinker server, Model a base model of it, or empty for its first.
	URL, Model string
	// Rank is the rank of the adapter to try.
	Rank int
	// Tokenizer is the directory of the base model's tokenizer; empty finds it where Model is a directory.
	Tokenizer string
	// Rows and Length are the size of a step to measure: its rows, and the tokens of each; nothing is measured for 0.
	Rows, Length int
	// BaseURL and Sampler are the endpoint to compare it with and its model; empty takes the user's own.
	BaseURL, Sampler string
}
