package mine

import "testing"

func TestInstalledAt(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"/usr/lib/python3/dist-packages/click/core.py":              "/usr/lib/python3/dist-packages/click",
		"/v/lib/python3.11/site-packages/click/a/b.py":              "/v/lib/python3.11/site-packages/click",
		"/usr/lib/node_modules/@a/b/lib/index.js":                   "/usr/lib/node_modules/@a/b",
		"/a/node_modules/b/node_modules/c/index.js":                 "/a/node_modules/b/node_modules/c",
		"/var/lib/gems/3.1.0/gems/rack-3.0.0/lib/rack.rb":           "/var/lib/gems/3.1.0/gems/rack-3.0.0",
		"/v/lib/python3.11/site-packages/six.py":                    "",
		"/usr/lib/node_modules/@a/b":                                "",
		"/root/.cargo/registry/src/index.crates.io/semver-1/lib.rs": "",
	} {
		if got := installedAt(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
