package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"deepswe/agent"
	"deepswe/env/disk"
	"deepswe/env/kubernetes"
)

// World is what every command needs from outside. A command package adds its own needs in a Deps.
type World struct {
	In io.Reader
	// Out takes results, Err is for people: a [Screen] where live lines are wanted.
	Out, Err io.Writer
	// Log prints warnings for people; nil is silent.
	Log    *slog.Logger
	Getenv func(string) string
	// Abandon is closed when the user asks a second time to stop: what is under way is then given up.
	Abandon <-chan struct{}
	// Version is deepswe's own.
	Version string
	// Sandboxes replaces the table behind --env, and OpenModel the way to a live endpoint, where they are not nil.
	Sandboxes []SandboxKind
	OpenModel func(ctx context.Context, c ModelChoice) (LiveModel, error)
}

// Logger returns the log, never nil.
func (w World) Logger() *slog.Logger {
	if w.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return w.Log
}

// Program is the name and version of this program, as the manifests of runs have it.
func (w World) Program() string { return "deepswe " + w.Version }

// RunID returns a name for a new run: unique, and sortable by time.
func (w World) RunID() string {
	var b [3]byte
	rand.Read(b[:]) // never fails
	return time.Now().UTC().Format("20060102-150405") + "-" + hex.EncodeToString(b[:])
}

// RunDir is where the run with the id is kept unless --out names another directory. It is the same place for all
// commands: $XDG_STATE_HOME/deepswe/runs, else ~/.local/state/deepswe/runs, else below the temporary directory.
func (w World) RunDir(id string) string {
	state := filepath.Join(os.TempDir(), "deepswe")
	if dir := w.Getenv("XDG_STATE_HOME"); dir != "" {
		state = filepath.Join(dir, "deepswe")
	} else if home := w.Getenv("HOME"); home != "" {
		state = filepath.Join(home, ".local", "state", "deepswe")
	}
	return filepath.Join(state, "runs", id)
}

// ErrReaderGone is the error of a write to a standard output whose reader has gone (| head). A command ends with it
// quietly.
var ErrReaderGone = errors.New("the reader of standard output has gone away")

// Stdout is a process's standard output, which returns [ErrReaderGone] where it would return EPIPE.
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

// JSONLines prints objects as JSON lines, for several goroutines at once. < > & are not escaped. The first error is
// kept: nothing is printed after it.
type JSONLines struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewJSONLines prints on w.
func NewJSONLines(w io.Writer) *JSONLines { return &JSONLines{w: w} }

// Print prints one object on a line of its own, and returns the first error that any line had.
func (j *JSONLines) Print(v any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = disk.EncodeJSON(j.w, v)
	}
	return j.err
}

// Err returns the first error that any line had.
func (j *JSONLines) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Config is the user's own configuration file. A project's files never set any of it.
type Config struct {
	BaseURL string `yaml:"base_url"`
	Model   string `yaml:"model"`
	APIKey  string `yaml:"api_key"`
	Env     string `yaml:"env"`
	Image   string `yaml:"image"`
	Format  string `yaml:"format"`
	Context int    `yaml:"context"`
	// Prices are what models cost, by the name that requests ask for.
	Prices *Prices `yaml:"prices"`
	// RegistryMirror, ImageBudget and Disk are --registry-mirror, --image-budget and --disk.
	RegistryMirror string `yaml:"registry_mirror"`
	ImageBudget    string `yaml:"image_budget"`
	Disk           string `yaml:"disk"`
	// Kubernetes is about the pods of --env kubernetes.
	Kubernetes *kubernetes.Pods `yaml:"kubernetes"`
}

// Price is what a model costs, in any currency, for a million tokens. Cached is for prompt tokens that the endpoint had
// cached; where it is 0 they cost as much as others.
type Price struct {
	Input  float64 `yaml:"input"`
	Cached float64 `yaml:"cached"`
	Output float64 `yaml:"output"`
}

// Prices are the prices of models by their names.
type Prices map[string]Price

// Of returns the price of a model, and false where there is none.
func (p *Prices) Of(model string) (Price, bool) {
	if p == nil {
		return Price{}, false
	}
	price, ok := (*p)[model]
	return price, ok
}

// Cost is what usage costs.
func (p Price) Cost(u agent.Usage) float64 {
	return (float64(u.Prompt-u.Cached)*p.Input + float64(u.Cached)*cmp.Or(p.Cached, p.Input) +
		float64(u.Completion)*p.Output) / 1e6
}

// ConfigPath is $XDG_CONFIG_HOME/deepswe/config.yaml, else ~/.config/deepswe/config.yaml; empty where there is no home.
func (w World) ConfigPath() string {
	if dir := w.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "deepswe", "config.yaml")
	}
	if home := w.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".config", "deepswe", "config.yaml")
	}
	return ""
}

// LoadConfig reads the user's configuration. A missing file is an empty one; an unknown key is an error.
func (w World) LoadConfig() (Config, error) {
	var c Config
	path := w.ConfigPath()
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, Usagef("configuration: %w", err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, Usagef("configuration %s: %w", path, err)
	}
	return c, nil
}
