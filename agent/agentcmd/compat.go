package agentcmd

import (
	"github.com/spf13/pflag"

	"deepswe/agent/cli"
)

// What verify/verifycmd still takes from here, until it takes it from agent/cli.
type (
	ProviderChoice = cli.SandboxChoice
	ModelChoice    = cli.ModelChoice
	LiveModel      = cli.LiveModel
	ImageOptions   struct{ cli.ImageFlags }
)

const (
	ExitDone        = cli.ExitDone
	ExitUsage       = cli.ExitUsage
	ExitUnsolved    = cli.ExitUnsolved
	ExitSandbox     = cli.ExitSandbox
	ExitInterrupted = cli.ExitInterrupted
)

func Usage(err error) error  { return cli.Usage(err) }
func ExitCode(err error) int { return cli.ExitCode(err) }

func LoadConfig(getenv func(string) string) (cli.Config, error) {
	return cli.World{Getenv: getenv}.LoadConfig()
}

func ResolveModel(getenv func(string) string, c cli.Config, baseURL, model string) cli.ModelChoice {
	return cli.World{Getenv: getenv}.ResolveModel(c, baseURL, model)
}

func (o *ImageOptions) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Mirror, "registry-mirror", "", "registry `HOST` to ask for Docker Hub's images first")
	f.StringVar(&o.Budget, "image-budget", "", "keep all images within `SIZE` (200GB) by removing the least recently used")
}

var Pulling = cli.Pulling
