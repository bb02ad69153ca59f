module deepswe

go 1.26.0

require (
	github.com/BurntSushi/toml v1.6.0 // pyproject.toml, Harbor's task.toml
	github.com/charmbracelet/lipgloss v1.1.0 // colours and tables for people
	github.com/charmbracelet/x/ansi v0.8.0 // widths of what lipgloss prints
	github.com/coder/websocket v1.8.15 // streams into a cluster's pods
	github.com/containerd/errdefs v1.0.0 // the Docker daemon's kinds of errors
	github.com/distribution/reference v0.6.0 // names of images
	github.com/google/go-cmp v0.7.0 // tests: differences
	github.com/klauspost/compress v1.20.3 // zstd
	github.com/moby/moby/api v1.56.1 // the Docker daemon's types
	github.com/moby/moby/client v0.6.2 // the Docker daemon; from v0.3.0 on it speaks to Docker 20.10
	github.com/muesli/termenv v0.16.0 // tests: colours on and off
	github.com/parquet-go/parquet-go v0.32.0 // data sets in parquet
	github.com/rogpeppe/go-internal v1.16.0 // tests: command-line scripts
	github.com/sashabaranov/go-openai v1.43.0 // the model endpoint
	github.com/spf13/cobra v1.10.2 // the command line, in the *cmd packages only
	github.com/spf13/pflag v1.0.9 // cobra's flags
	go.uber.org/goleak v1.3.0 // tests: goroutines that are left
	golang.org/x/sync v0.24.0 // groups of goroutines
	golang.org/x/sys v0.49.0 // what package syscall lacks, outside of the guest
	golang.org/x/term v0.47.0 // the width of a terminal
	golang.org/x/text v0.39.0 // a tokenizer's normal form
	golang.org/x/time v0.11.0 // attempts per second
	gopkg.in/yaml.v3 v3.0.1 // configurations and prompt packs
	k8s.io/api v0.34.13 // tests: the kinds of manifests
	k8s.io/apimachinery v0.34.13 // client-go's, for idle connections
	k8s.io/client-go v0.34.13 // KUBECONFIG and credentials of clusters, of the version of .ci/run's cluster
	pgregory.net/rapid v1.3.0 // tests: properties
	sigs.k8s.io/yaml v1.6.0 // tests: manifests, strictly
)

require (
	github.com/docker/go-units v0.5.0
	github.com/moby/patternmatcher v0.6.1
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
)

require (
	github.com/Microsoft/go-winio v0.6.2 // indirect
	github.com/andybalholm/brotli v1.1.1 // indirect
	github.com/aymanbagabas/go-osc52/v2 v2.0.1 // indirect
	github.com/charmbracelet/colorprofile v0.2.3-0.20250311203215-f60798e515dc // indirect
	github.com/charmbracelet/x/cellbuf v0.0.13-0.20250311204145-2c3ea96c31dd // indirect
	github.com/charmbracelet/x/term v0.2.1 // indirect
	github.com/containerd/errdefs/pkg v0.3.0 // indirect
	github.com/cpuguy83/go-md2man/v2 v2.0.6 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/docker/go-connections v0.8.2 // indirect
	github.com/felixge/httpsnoop v1.0.4 // indirect
	github.com/fxamacker/cbor/v2 v2.9.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/lucasb-eyer/go-colorful v1.2.0 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/moby/docker-image-spec v1.3.1 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/parquet-go/bitpack v1.0.0 // indirect
	github.com/parquet-go/jsonlite v1.0.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.21 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	github.com/twpayne/go-geom v1.6.1 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	github.com/xo/terminfo v0.0.0-20220910002029-abceb7e1c41e // indirect
	go.opentelemetry.io/auto/sdk v1.1.0 // indirect
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.60.0 // indirect
	go.opentelemetry.io/otel v1.35.0 // indirect
	go.opentelemetry.io/otel/metric v1.35.0 // indirect
	go.opentelemetry.io/otel/trace v1.35.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	go.yaml.in/yaml/v3 v3.0.4 // indirect
	golang.org/x/net v0.56.0
	golang.org/x/oauth2 v0.27.0 // indirect
	golang.org/x/tools v0.47.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/klog/v2 v2.130.1 // indirect
	k8s.io/utils v0.0.0-20250604170112-4c0f3b243397 // indirect
	sigs.k8s.io/json v0.0.0-20241014173422-cfa47c3a1cc8 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.3.0 // indirect
)
