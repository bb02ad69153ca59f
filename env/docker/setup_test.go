package docker

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/testkit"
)

// TestInstall: a set-up becomes a layer of the image, once. The repository is not part of the layer, and what the
// set-up has created is not covered by the user's files.
func TestInstall(t *testing.T) {
	p := provider(t, Options{})
	needImage(t, p, bookworm)
	source := filepath.Join(t.TempDir(), "repo")
	testkit.WriteFile(t, filepath.Join(source, "package.json"), "{}\n")
	testkit.WriteFile(t, filepath.Join(source, "src", "old"), "old\n")
	testkit.WriteFile(t, filepath.Join(source, "cache", "x"), "user's\n")
	testkit.WriteFile(t, filepath.Join(source, "venv", "x"), "user's\n")
	how := env.Setup{
		Aside: []string{"cache", "venv"},
		Commands: []string{"mkdir -p deps/d src/gen && echo dep >deps/d/x && rm -r venv && mkdir venv && echo made >venv/y" +
			" && echo home >~/.tool && rm package.json",
			`[ -z "$SSL_CERT_FILE" ] || grep -q BEGIN "$SSL_CERT_FILE"`,
		},
	}
	spec := env.Spec{Image: bookworm, CopyIn: source, Source: source}
	var begun int
	how.Progress = func(env.SetupProgress) { begun++ }
	done, err := p.Install(t.Context(), spec, how)
	if err != nil {
		t.Fatal(err)
	}
	unpull(t, p, done.Image)
	if !slices.Equal(done.Added, []string{"deps", "src/gen"}) || !slices.Equal(done.Replaced, []string{"venv"}) || begun == 0 {
		t.Errorf("%+v after %d reports", done, begun)
	}
	how.Progress = func(env.SetupProgress) { t.Error("it was installed again") }
	again, err := p.Install(t.Context(), spec, how)
	if err != nil || again.Image != done.Image || !again.Reused {
		t.Errorf("%+v, %v", again, err)
	}
	testkit.WriteFile(t, filepath.Join(source, "src", "new"), "new\n")
	spec.Installed = &done
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	const line = `cat package.json src/old src/new deps/d/x ~/.tool; ls venv cache; ls -d /tmp/.deepswe* 2>/dev/null
echo more >>deps/d/x && echo mine`
	if got, want := must(t, sb, line), "{}\nold\nnew\ndep\nhome\ncache:\nx\n\nvenv:\ny\nmine\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	spec.Installed = nil
	_, err = p.Install(t.Context(), spec, env.Setup{Commands: []string{"echo why >&2; exit 9"}})
	if failed, ok := errors.AsType[*env.SetupError](err); !ok || failed.Result.ExitCode != 9 ||
		!strings.HasPrefix(err.Error(), "set-up command 1 of 1") {
		t.Errorf("%v", err)
	}
}
