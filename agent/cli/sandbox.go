package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"deepswe/env"
	"deepswe/env/docker"
	"deepswe/env/fleet"
	"deepswe/env/kubernetes"
	"deepswe/env/local"
	"deepswe/env/repo"
)

// The values of --env that code refers to.
const (
	EnvAuto       = "auto"
	EnvDocker     = "docker"
	EnvKubernetes = "kubernetes"
	EnvBwrap      = "bwrap"
	EnvHost       = "host"
)

// SandboxKind is an entry of the table behind --env.
type SandboxKind struct {
	// Name is the value of --env; Remark is shown beside it in the help text.
	Name   string
	Remark string
	// Images is set if sandboxes are started from container images; otherwise they use the host's programs.
	Images bool
	// Fix is doctor's advice if Open fails with an error that has none.
	Fix  string
	Open openFunc
	// Elsewhere reports whether doctor and clean should skip this kind unless asked; nil means never.
	Elsewhere func(Places) bool
}

type openFunc = func(ctx context.Context, log *slog.Logger, c SandboxChoice) (env.Provider, error)

// sandboxKinds returns all kinds of sandboxes, in the order in which doctor shows them.
func sandboxKinds() []SandboxKind {
	return []SandboxKind{
		{Name: EnvDocker, Images: true, Fix: "run docker version for details", Open: openDocker},
		{Name: EnvKubernetes, Images: true, Open: openKubernetes, Elsewhere: Places.noCluster},
		{Name: EnvBwrap, Open: openLocal(local.NewBwrap)},
		{Name: EnvHost, Remark: "no isolation", Open: openLocal(local.NewHost)},
	}
}

func openLocal[P env.Provider](open func(local.Options) (P, error)) openFunc {
	return func(_ context.Context, log *slog.Logger, c SandboxChoice) (env.Provider, error) {
		return open(local.Options{Limits: c.Limits, Log: log})
	}
}

func openDocker(ctx context.Context, log *slog.Logger, c SandboxChoice) (env.Provider, error) {
	return docker.New(ctx, docker.Options{
		Hosts: c.Hosts, Warm: c.Warm, Log: log, Mirror: c.Mirror, ImageBudget: c.ImageBudget, Limits: c.Limits,
		Progress: c.Progress,
	})
}

func openKubernetes(ctx context.Context, log *slog.Logger, c SandboxChoice) (env.Provider, error) {
	o := kubernetes.Options{
		Contexts: c.Contexts, Namespaces: c.Namespaces, Warm: c.Warm, Log: log, Limits: c.Limits, Progress: c.Progress,
	}
	if c.Pods != nil {
		o.Pods = *c.Pods
	}
	return kubernetes.New(ctx, o)
}

// Places are where sandboxes are started from images: Docker daemons, and namespaces of clusters.
type Places struct {
	// Hosts are Docker daemons.
	Hosts []string `yaml:"hosts"`
	// Contexts are contexts of the KUBECONFIG; Namespaces are used in each of them.
	Contexts   []string `yaml:"kube_contexts"`
	Namespaces []string `yaml:"kube_namespaces"`
	// File names the daemons, or the contexts, instead: one per line, which may change while sandboxes run.
	File string `yaml:"places_file"`
	// Pods are the pod settings of the user's configuration; nil if there are none.
	Pods *kubernetes.Pods `yaml:"-"`
}

// Add adds --docker-host, --kube-context and --kube-namespace.
func (p *Places) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&p.Hosts, "docker-host", nil,
		"Docker daemon `ADDRESS` (unix, tcp or ssh URL, or context:NAME); may be repeated")
	f.StringArrayVar(&p.Contexts, "kube-context", nil, "cluster, by its context `NAME` in KUBECONFIG; may be repeated")
	f.StringArrayVar(&p.Namespaces, "kube-namespace", nil,
		"`NAMESPACE` for sandboxes (default: the context's); may be repeated")
}

// noCluster reports that no cluster was selected. The current context of the KUBECONFIG does not count, because it
// could be for anything.
func (p Places) noCluster() bool { return len(p.Contexts)+len(p.Namespaces) == 0 && p.Pods == nil }

// SandboxChoice selects a sandbox.
type SandboxChoice struct {
	Places
	// Env is the value of --env; empty means auto.
	Env string
	// Image is the container image, if known; without one, auto does not select docker.
	Image string
	// ImageLater says that the image may still be found: Image is then not required.
	ImageLater bool
	// Demo lets auto fall back to host, which is otherwise selected only by name.
	Demo bool
	// Warm is the number of sandboxes kept ready.
	Warm int
	// Mirror is a registry to try first for images of Docker Hub. ImageBudget limits the bytes of all images; 0
	// means no limit.
	Mirror      string
	ImageBudget int64
	// Limits apply to sandboxes whose task sets none.
	Limits env.Limits
	// Progress receives the progress of pulls and builds, from several goroutines.
	Progress func(env.Progress)
}

// kind looks the choice up in the table. auto is docker if an image is known, otherwise bwrap.
func (c SandboxChoice) kind(kinds []SandboxKind) (SandboxKind, bool) {
	name := cmp.Or(c.Env, EnvAuto)
	if name == EnvAuto {
		if name = EnvBwrap; c.Image != "" {
			name = EnvDocker
		}
	}
	i := slices.IndexFunc(kinds, func(k SandboxKind) bool { return k.Name == name })
	if i < 0 {
		return SandboxKind{}, false
	}
	return kinds[i], true
}

// Check validates a choice without opening anything.
func (c SandboxChoice) Check() error {
	k, ok := c.kind(sandboxKinds())
	switch {
	case !ok:
		return Usagef("invalid --env %q: choose %s", c.Env, orList(envWords(sandboxKinds())))
	case k.Images && c.Image == "" && (!c.ImageLater || k.Name != EnvDocker):
		return Usagef("--env %s requires --image", k.Name)
	case !k.Images && c.Image != "":
		return Usagef("--env %s uses the host's own programs and takes no --image", k.Name)
	case c.File != "" && !k.Images:
		return Usagef("--env %s runs on this machine; to fix: omit places_file", k.Name)
	case c.File != "" && len(c.Hosts)+len(c.Contexts) > 0:
		return Usagef("places_file and hosts or kube_contexts both name places; to fix: omit one of them")
	}
	return nil
}

// follow opens a provider of the kind for the places that the file names at the moment.
func (w World) follow(ctx context.Context, c SandboxChoice, k SandboxKind) (env.Provider, error) {
	p, err := fleet.Follow(ctx, fleet.FollowOptions{
		File: c.File, Log: w.Logger(),
		Open: func(ctx context.Context, places []string) (env.Provider, error) {
			c := c
			c.File, c.Hosts = "", places
			if k.Name == EnvKubernetes {
				c.Hosts, c.Contexts = nil, places
			}
			return w.Sandbox(ctx, c)
		},
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// SandboxKinds returns the table behind --env.
func (w World) SandboxKinds() []SandboxKind {
	if w.Sandboxes != nil {
		return w.Sandboxes
	}
	return sandboxKinds()
}

// Sandbox opens the selected provider. host, which isolates nothing, must be selected by name, or is used for the
// demo.
func (w World) Sandbox(ctx context.Context, c SandboxChoice) (env.Provider, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	k, ok := c.kind(w.SandboxKinds())
	if !ok {
		return nil, Usagef("--env %s is not available here", c.Env)
	}
	if err := tryTemp(); err != nil {
		return nil, err
	}
	if c.File != "" {
		return w.follow(ctx, c, k)
	}
	p, err := k.Open(ctx, w.Logger(), c)
	auto := cmp.Or(c.Env, EnvAuto) == EnvAuto
	switch {
	case err == nil && k.Images:
		return p, nil
	case err == nil:
		// Remove what killed runs left. A provider of local sandboxes does that only on request.
		if _, err := p.Reap(ctx, env.ReapOptions{}); err != nil && ctx.Err() == nil {
			w.Logger().Warn("cannot remove what killed runs left", "error", err)
		}
		return p, nil
	case auto && !k.Images && c.Demo:
		c.Env = EnvHost
		return w.Sandbox(ctx, c)
	case auto && !k.Images:
		err = fmt.Errorf("%w\nwithout bubblewrap there are two other choices: --image REF works in a container of that "+
			"image (requires Docker), and --env host works on a scratch copy with no isolation at all", err)
	}
	return nil, &ExitError{Code: ExitSandbox, Err: err}
}

// tryTemp checks that temporary files can be created on the host, which all sandboxes need.
func tryTemp() error {
	dir, err := os.MkdirTemp("", "deepswe-try-*")
	if err != nil {
		return Usagef("temporary files: %w; to fix: export TMPDIR=DIR, a directory that can be written", err)
	}
	return os.Remove(dir)
}

// SandboxFlags are the flags that select where commands run. In the configuration of a training run they are keys.
type SandboxFlags struct {
	Env    string `yaml:"env"`
	Image  string `yaml:"image"`
	Places `yaml:",inline"`
	// Mirror and Budget concern container images: where they come from, and how much space they may use.
	Mirror string `yaml:"registry_mirror"`
	Budget string `yaml:"image_budget"`
	// Warm is the number of sandboxes kept ready in each place.
	Warm    int  `yaml:"warm" least:"0"`
	Network bool `yaml:"network"`
	// Disk limits what a sandbox may write.
	Disk string `yaml:"-"`
}

// Add adds the flags to a command that works on one repository.
func (o *SandboxFlags) Add(cmd *cobra.Command) {
	o.addEnv(cmd)
	cmd.Flags().StringVar(&o.Image, "image", "", "container image `REF` to work in")
	cmd.Flags().BoolVar(&o.Network, "network", false, "open the sandbox's network")
}

// AddForTasks adds the flags to a command whose tasks name their images, or make their repositories themselves.
func (o *SandboxFlags) AddForTasks(cmd *cobra.Command) {
	o.addEnv(cmd)
	o.AddImages(cmd)
}

// AddImages adds the flags that concern container images.
func (o *SandboxFlags) AddImages(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Mirror, "registry-mirror", "", "registry `HOST` to ask for Docker Hub's images first")
	f.StringVar(&o.Budget, "image-budget", "", "keep all images within `SIZE` (200GB) by removing the least recently used")
}

func (o *SandboxFlags) addEnv(cmd *cobra.Command) {
	kinds := sandboxKinds()
	help := []string{EnvAuto}
	for _, k := range kinds {
		if help = append(help, k.Name); k.Remark != "" {
			help[len(help)-1] += " (" + k.Remark + ")"
		}
	}
	cmd.Flags().StringVar(&o.Env, "env", EnvAuto, "run commands in the sandbox `KIND`: "+orList(help))
	Choices(cmd, "env", envWords(kinds)...)
	o.Places.Add(cmd)
	cmd.Flags().StringVar(&o.Disk, "disk", "",
		"let the commands in a sandbox write at most `SIZE` (16GB); beyond it they are ended")
}

// Choice returns the choice that the flags and the user's configuration make.
func (o *SandboxFlags) Choice(c Config) (SandboxChoice, error) {
	size := func(flag, given, setting, configured string) (int64, error) {
		if given != "" {
			return parseSize(flag, given)
		}
		return parseSize(setting+" of the configuration", configured)
	}
	budget, err := size("--image-budget", o.Budget, "image_budget", c.ImageBudget)
	disk, derr := size("--disk", o.Disk, "disk", c.Disk)
	if err = cmp.Or(err, derr); err != nil {
		return SandboxChoice{}, err
	}
	choice := SandboxChoice{
		Places: o.Places, Env: o.Env, Image: o.Image, Warm: o.Warm, Mirror: cmp.Or(o.Mirror, c.RegistryMirror),
		ImageBudget: budget, Limits: env.Limits{Disk: disk},
	}
	choice.Pods = c.Kubernetes
	return choice, nil
}

// parseSize parses a size as people write it; 0 if text is empty. from names the flag or setting in errors.
func parseSize(from, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	size, err := units.FromHumanSize(text)
	if err != nil || size <= 0 {
		return 0, Usagef("%s: invalid size %q (for example 200GB or 1.5TB)", from, text)
	}
	return size, nil
}

func envWords(kinds []SandboxKind) []string {
	words := []string{EnvAuto}
	for _, k := range kinds {
		words = append(words, k.Name)
	}
	return words
}

// orList joins words as in "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Pulling describes the pull or build of an image, or the wait for room, to the user.
func Pulling(p env.Progress) string {
	switch {
	case p.Action == env.Waiting && p.Done:
		return "there is room in " + p.Host
	case p.Action == env.Waiting:
		return fmt.Sprintf("%d wait for room beside %d in %s", p.Layers, p.Ready, p.Host)
	case p.Action == env.Building && p.Done:
		return "built the image of " + p.Image
	case p.Action == env.Building:
		return "building the image of " + p.Image
	case p.Done && p.Total == 0:
		return "pulled " + p.Image // all of its layers existed already
	case p.Done:
		return fmt.Sprintf("pulled %s, %s", p.Image, units.HumanSize(float64(p.Total)))
	case p.Total > 0:
		return fmt.Sprintf("pulling %s, %s of %s",
			p.Image, units.HumanSize(float64(p.Bytes)), units.HumanSize(float64(p.Total)))
	}
	return "pulling " + p.Image
}

// CheckoutFlags are the flags that select which parts of a local repository a sandbox gets.
type CheckoutFlags struct {
	Include []string
	Exclude []string
	// Test is the command that runs the project's tests.
	Test string
	// Setup are the commands that install what the project needs, or one of the words SetupAuto and SetupNone.
	Setup []string
}

// The words of --setup. Without the flag, what the user has agreed to for the repository is installed.
const (
	SetupAuto = "auto"
	SetupNone = "none"
)

// Add adds the flags to a command's.
func (o *CheckoutFlags) Add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.Include, "include", nil,
		"show ignored files that match `PATTERN` to the agent, though they look like secrets; may be repeated")
	f.StringArrayVar(&o.Exclude, "exclude", nil,
		"hide ignored files that match `PATTERN` from the agent; may be repeated")
	f.StringArrayVar(&o.Setup, "setup", nil,
		"install dependencies with `CMD`, with a network for that alone; auto finds it, none skips it; may be repeated")
	f.StringVar(&o.Test, "test", "",
		"run the tests with `CMD` on the patch and without it, in fresh sandboxes; auto finds the command")
}

// Options returns the flags as options of a snapshot.
func (o *CheckoutFlags) Options() repo.Options {
	return repo.Options{Include: o.Include, Exclude: o.Exclude}
}
