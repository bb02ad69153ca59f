package mine

import (
	"context"
	"strings"
	"testing"

	"deepswe/env"
)

func TestInstalledAt(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"/usr/lib/python3/dist-packages/click/core.py":              "/usr/lib/python3/dist-packages/click",
		"/v/lib/python3.11/site-packages/click/a/b.py":              "/v/lib/python3.11/site-packages/click",
		"/usr/lib/node_modules/@a/b/lib/index.js":                   "/usr/lib/node_modules/@a/b",
		"/a/node_modules/b/node_modules/c/index.js":                 "/a/node_modules/b/node_modules/c",
		"/var/lib/gems/3.1.0/gems/rack-3.0.0/lib/rack.rb":           "/var/lib/gems/3.1.0/gems/rack-3.0.0",
		"/root/go/pkg/mod/a.org/b@v1.0.0/c/d.go":                    "/root/go/pkg/mod/a.org/b@v1.0.0",
		"/root/go/pkg/mod/cache/download/a.org/b/@v/v1.0.0.zip":     "/root/go/pkg/mod/cache/download/a.org/b/@v",
		"/v/lib/python3.11/site-packages/six.py":                    "",
		"/usr/lib/node_modules/@a/b":                                "",
		"/root/.cargo/registry/src/index.crates.io/semver-1/lib.rs": "",
		"/a/node_modules/@vitest/expect/dist/index.js":              "/a/node_modules/@vitest/expect",
	} {
		if got := installedAt(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// Lines of a change are counted together for all files of a package, and for each other file alone. One line is enough
// in the project's own package.
func TestCopyIn(t *testing.T) {
	t.Parallel()
	const mod, lib, node = "/go/pkg/mod/a.org/b@v1.0.0/", "/usr/lib/go/src/", "/a/node_modules/"
	for want, copies := range map[string][]string{
		"":                     {lib + "a.go:one", lib + "a.go:one", lib + "b.go:two", mod + "c.go:x"},
		mod + "a.go":           {lib + "a.go:one", mod + "a.go:one", mod + "b/c.go:two"},
		node + "@a/b/index.js": {node + "@c/b/index.js:one", node + "bb/index.js:one", node + "@a/b/index.js:one"},
		lib + "two.go":         {lib + "one.go:one", lib + "two.go:one", lib + "two.go:two: 2"},
	} {
		if got := copyIn(copies, 4, []string{"*/node_modules/@a/b"}); got != want {
			t.Errorf("%q: %q, want %q", copies, got, want)
		}
	}
}

// A change of one line that an unrelated file has too is no copy.
func TestBelongs(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]bool{
		"/usr/lib/python3/site-packages/attr/exceptions.py":   true,
		"/go/pkg/mod/example.org/attr@v1.0.0/a.go":            true,
		"/usr/lib/python3/site-packages/attr.py":              true,
		"/cargo/registry/src/index/attr-1.0/src/lib.rs":       true,
		"/usr/lib/sdk/third_party/botocore/exceptions.py":     false,
		"/usr/lib/python3/site-packages/attribute/exceptions": false,
		"/v/node_modules/attribute/attr/exceptions.js":        true,
	} {
		if got := belongs(file, []string{"attrs", "attr"}); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}

// The directory of an archive is hidden if that takes nothing from other packages.
func TestArchivedAt(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"/m2/org/a/the-lib/1.0/the-lib-1.0-sources.jar": "/m2/org/a/the-lib/1.0",
		"/gradle/caches/modules-2/files-2.1/org.a/the-lib/1.0/2c8/the-lib-1.0.jar": "/gradle/caches/modules-2/files-2.1/" +
			"org.a/the-lib/1.0/2c8",
		"/m2/org/a/The.Lib/1.0/sources.jar":             "/m2/org/a/The.Lib/1.0",
		"/gems/cache/the_lib-1.0.gem":                   "/gems/cache",
		"/cargo/registry/cache/index/the-lib-1.0.crate": "",
		"/go/cache/download/a.org/the-lib/@v/v1.0.zip":  "/go/cache/download/a.org/the-lib/@v",
		"/v/node_modules/other/vendor/the-lib-1.0.tgz":  "/v/node_modules/other",
	} {
		if got := archivedAt(file, []string{"x", "the_lib"}); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// ended is a sandbox in which all commands end in the same way.
type ended struct {
	env.Sandbox
	env.Result
}

func (e ended) Run(context.Context, env.Command) (env.Result, error) { return e.Result, nil }

// A search that was not completed does not show that there is no copy.
func TestUnfinishedSearch(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]env.Result{
		"lacks find, awk":   {ExitCode: 127},
		"took more than":    {TimedOut: true, ExitCode: 143},
		"more than 64 MB":   {Stdout: env.Output{Size: mostPrinted + 1}},
		"without a failure": {Stdout: env.Output{Head: []byte("own /a\n"), Size: 7}},
	} {
		got, err := printed(t.Context(), ended{Result: r}, env.Command{})
		if want == "without a failure" {
			if err != nil || got != "own /a\n" {
				t.Errorf("%q, %v", got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
