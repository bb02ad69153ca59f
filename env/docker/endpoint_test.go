package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"
)

// write puts files below a new directory and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func contextID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

func TestResolve(t *testing.T) {
	t.Parallel()
	far, bare := contextID("far"), contextID("bare")
	home := write(t, map[string]string{
		".docker/config.json": `{"currentContext": "far"}`,
		".docker/contexts/meta/" + far +
			"/meta.json": `{"Name": "far", "Endpoints": {"docker": {"Host": "tcp://far:2376", "SkipTLSVerify": false}}}`,
		".docker/contexts/tls/" + far + "/docker/ca.pem": "",
		".docker/contexts/meta/" + bare +
			"/meta.json": `{"Name": "bare", "Endpoints": {"docker": {"Host": "ssh://me@bare"}}}`,
	})
	certs := filepath.Join(home, ".docker/contexts/tls", far, "docker")
	empty := t.TempDir()
	for _, c := range []struct {
		name string
		env  map[string]string
		home string
		host string
		want endpoint
		err  string
	}{
		{name: "nothing set", home: empty, want: endpoint{host: client.DefaultDockerHost}},
		{name: "current context", home: home, want: endpoint{host: "tcp://far:2376", certs: certs}},
		{name: "DOCKER_CONTEXT beats the current one", home: home, env: map[string]string{"DOCKER_CONTEXT": "bare"},
			want: endpoint{host: "ssh://me@bare"}},
		{
			name: "DOCKER_HOST beats every context", home: home, want: endpoint{host: "unix:///run/other.sock"},
			env: map[string]string{"DOCKER_CONTEXT": "bare", "DOCKER_HOST": "unix:///run/other.sock"},
		},
		{name: "default context", home: home, env: map[string]string{"DOCKER_CONTEXT": "default"},
			want: endpoint{host: client.DefaultDockerHost}},
		{name: "DOCKER_CONFIG", home: empty, env: map[string]string{"DOCKER_CONFIG": filepath.Join(home, ".docker")},
			want: endpoint{host: "tcp://far:2376", certs: certs}},
		{name: "a host by name", home: home, host: "context:bare", want: endpoint{host: "ssh://me@bare"}},
		{name: "a path", home: home, host: "/run/d.sock", want: endpoint{host: "unix:///run/d.sock"}},
		{name: "tcp", home: home, host: "tcp://h:2375", want: endpoint{host: "tcp://h:2375"}},
		{
			name: "tcp with verified TLS", home: home, host: "tcp://h:2376",
			want: endpoint{host: "tcp://h:2376", certs: "/certs"},
			env:  map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"},
		},
		{
			name: "tcp with TLS, not verified", home: home, host: "tcp://h:2376",
			want: endpoint{host: "tcp://h:2376", certs: "/certs", insecure: true},
			env:  map[string]string{"DOCKER_CERT_PATH": "/certs"},
		},
		{
			name: "tcp with certificates in their usual place", home: home, host: "tcp://h:2376",
			env: map[string]string{"DOCKER_TLS_VERIFY": "1"}, want: endpoint{host: "tcp://h:2376",
				certs: filepath.Join(home, ".docker")},
		},
		{name: "no such context", home: home, host: "context:none", err: "docker context ls"},
		{name: "no scheme", home: home, host: "somewhere", err: "want unix:///path"},
		{name: "unknown scheme", home: home, host: "gopher://h", err: "unknown scheme"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := environment{getenv: func(key string) string { return c.env[key] }, home: c.home}
			got, err := e.resolve(c.host)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("resolve(%q): %v, want an error with %q", c.host, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(endpoint{})); diff != "" {
				t.Errorf("resolve(%q) (-want +got):\n%s", c.host, diff)
			}
		})
	}
}

func TestSSHArguments(t *testing.T) {
	t.Parallel()
	for destination, want := range map[string]string{
		"host":             "-- host docker system dial-stdio",
		"me@host":          "-l me -- host docker system dial-stdio",
		"me@host:2222":     "-l me -p 2222 -- host docker system dial-stdio",
		"[::1]:22":         "-p 22 -- ::1 docker system dial-stdio",
		"-oProxyCommand=x": "",
		"me:secret@host":   "",
		"host/path":        "",
		"":                 "",
	} {
		d, err := newSSHDialer(destination)
		if want == "" {
			if err == nil {
				t.Errorf("ssh://%s was accepted: %q", destination, d.args)
			}
			continue
		}
		if err != nil {
			t.Errorf("ssh://%s: %v", destination, err)
			continue
		}
		if got := strings.Join(d.args, " "); !strings.HasSuffix(got, " -T "+want) {
			t.Errorf("ssh://%s runs ssh %s, want it to end in %s", destination, got, want)
		}
	}
}

func TestRegistryAuth(t *testing.T) {
	// auth is "me:secret" in base64.
	home := write(t, map[string]string{".docker/config.json": `{
		"auths": {"hub-key": {"auth": "bWU6c2VjcmV0"}, "reg.example:5000": {"auth": "bWU6c2VjcmV0"}, "broken.example": {"auth": "?"}},
		"credHelpers": {"helped.example": "test"}
	}`})
	bin := t.TempDir()
	script := "#!/bin/sh\nread where\necho '{\"ServerURL\": \"'$where'\", \"Username\": \"<token>\", \"Secret\": \"t\"}'\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-test"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	e := environment{getenv: func(string) string { return "" }, home: home}
	for ref, want := range map[string]string{
		"ubuntu":                     `{"username":"me","password":"secret","serveraddress":"hub-key"}`,
		"reg.example:5000/team/x:v1": `{"username":"me","password":"secret","serveraddress":"reg.example:5000"}`,
		"helped.example/x":           `{"serveraddress":"helped.example","identitytoken":"t"}`,
		"other.example/x":            "",
		"broken.example/x":           "error",
	} {
		got, err := e.registryAuth(t.Context(), ref, "hub-key")
		if want == "error" {
			if err == nil {
				t.Errorf("%s: no error", ref)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if plain := decodeAuth(t, got); plain != want {
			t.Errorf("%s: credentials %s, want %s", ref, plain, want)
		}
	}
}
