package docker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"deepswe/env/disk"
)

// endpoint is the address of a daemon, and what a connection to it requires.
type endpoint struct {
	// host is a URL: unix:///path, tcp://name:port, ssh://user@name.
	host string
	// certs is a directory with ca.pem, cert.pem and key.pem; empty disables TLS.
	certs string
	// insecure accepts any server certificate.
	insecure bool
}

// environment is where endpoints are looked up; tests use their own.
type environment struct {
	getenv func(string) string
	home   string
}

func hostEnvironment() environment {
	home, _ := os.UserHomeDir()
	return environment{getenv: os.Getenv, home: home}
}

// configDir returns the directory with the docker command's configuration.
func (e environment) configDir() string {
	if dir := e.getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	return filepath.Join(e.home, ".docker")
}

// config returns the docker command's config.json; empty if it does not exist.
func (e environment) config() (c struct {
	CurrentContext string `json:"currentContext"`
	Auths          map[string]struct {
		Auth          string `json:"auth"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	} `json:"auths"`
	CredsStore  string            `json:"credsStore"`
	CredHelpers map[string]string `json:"credHelpers"`
}, err error) {
	err = disk.ReadJSON(filepath.Join(e.configDir(), "config.json"), &c)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return c, err
}

// resolve finds the endpoint for a name, which is a URL or "context:NAME". For an empty name, it uses the same as
// the docker command: DOCKER_HOST, DOCKER_CONTEXT, the current context of config.json, or the default socket.
func (e environment) resolve(name string) (endpoint, error) {
	if ctx, ok := strings.CutPrefix(name, "context:"); ok {
		return e.context(ctx)
	}
	if name == "" {
		name = e.getenv("DOCKER_HOST")
	}
	if name != "" {
		return e.direct(name)
	}
	if ctx := e.getenv("DOCKER_CONTEXT"); ctx != "" {
		return e.context(ctx)
	}
	config, err := e.config()
	if err != nil {
		return endpoint{}, fmt.Errorf("docker configuration: %w", err)
	}
	if config.CurrentContext != "" {
		return e.context(config.CurrentContext)
	}
	return endpoint{host: client.DefaultDockerHost}, nil
}

// direct returns an endpoint given by its URL. A bare path is a unix socket.
func (e environment) direct(host string) (endpoint, error) {
	if strings.HasPrefix(host, "/") {
		host = "unix://" + host
	}
	scheme, rest, ok := strings.Cut(host, "://")
	if !ok || rest == "" {
		return endpoint{}, fmt.Errorf(
			"invalid docker host %q: want unix:///path, tcp://host:port, ssh://user@host or context:NAME", host)
	}
	switch scheme {
	case "unix", "ssh", "npipe":
		return endpoint{host: host}, nil
	case "tcp", "http", "https":
		ep := endpoint{host: "tcp://" + rest, certs: e.getenv("DOCKER_CERT_PATH")}
		verify := e.getenv("DOCKER_TLS_VERIFY") != ""
		if ep.certs == "" && (verify || scheme == "https") {
			ep.certs = e.configDir()
		}
		ep.insecure = ep.certs != "" && !verify && scheme != "https"
		return ep, nil
	}
	return endpoint{}, fmt.Errorf("docker host %q: unknown scheme %q (unix, tcp and ssh are known)", host, scheme)
}

// context reads a docker context. Its files are stored under the SHA-256 of its name.
func (e environment) context(name string) (endpoint, error) {
	if name == "default" {
		if host := e.getenv("DOCKER_HOST"); host != "" {
			return e.direct(host)
		}
		return endpoint{host: client.DefaultDockerHost}, nil
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	contexts := filepath.Join(e.configDir(), "contexts")
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	err := disk.ReadJSON(filepath.Join(contexts, "meta", id, "meta.json"), &meta)
	if errors.Is(err, fs.ErrNotExist) {
		return endpoint{}, fmt.Errorf("docker context %q does not exist: docker context ls shows those that do", name)
	}
	if err != nil {
		return endpoint{}, fmt.Errorf("docker context %q: %w", name, err)
	}
	docker, ok := meta.Endpoints["docker"]
	if !ok {
		return endpoint{}, fmt.Errorf("docker context %q has no docker endpoint", name)
	}
	ep := endpoint{host: cmp.Or(docker.Host, client.DefaultDockerHost), insecure: docker.SkipTLSVerify}
	certs := filepath.Join(contexts, "tls", id, "docker")
	if _, err := os.Stat(certs); err == nil {
		ep.certs = certs
	}
	return ep, nil
}

// dial creates a client. It does not connect yet.
func (ep endpoint) dial() (*client.Client, error) {
	options := []client.Opt{client.WithUserAgent("deepswe"), client.WithAPIVersionFromEnv()}
	if ep.certs != "" || ep.insecure {
		config, err := ep.tls()
		if err != nil {
			return nil, err
		}
		// Starts run in parallel, each with several requests. With the default of two idle connections, most would
		// open a new one.
		transport := &http.Transport{
			TLSClientConfig: config, MaxIdleConns: 32, MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second,
		}
		// Only with TLS, because the client assumes TLS for any custom transport.
		options = append(options, client.WithHTTPClient(
			&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}))
	}
	if destination, ok := strings.CutPrefix(ep.host, "ssh://"); ok {
		dialer, err := newSSHDialer(destination)
		if err != nil {
			return nil, err
		}
		// The host name is never resolved: each connection runs ssh.
		options = append(options, client.WithHost("http://"+client.DummyHost), client.WithDialContext(dialer.dial))
	} else {
		options = append(options, client.WithHost(ep.host))
	}
	return client.New(options...)
}

// tls reads the endpoint's certificates. The client certificate is optional, because not every daemon asks for one.
func (ep endpoint) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: ep.insecure}
	if ep.certs == "" {
		return config, nil
	}
	ca, err := os.ReadFile(filepath.Join(ep.certs, "ca.pem"))
	switch {
	case err == nil:
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s holds no certificate", filepath.Join(ep.certs, "ca.pem"))
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(ep.certs, "cert.pem"), filepath.Join(ep.certs, "key.pem"))
	switch {
	case err == nil:
		config.Certificates = []tls.Certificate{cert}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return config, nil
}

// registryAuth returns the credentials that docker login stored for an image's registry, encoded for the daemon, or
// "". They are sent only to the daemon. hub is the daemon's name for Docker Hub, under which its credentials are
// stored.
func (e environment) registryAuth(ctx context.Context, ref, hub string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", err
	}
	domain := reference.Domain(named)
	key := domain
	if onHub(named) {
		key = hub
	}
	config, err := e.config()
	if err != nil {
		return "", err
	}
	if helper := cmp.Or(config.CredHelpers[domain], config.CredsStore); helper != "" {
		auth, err := askHelper(ctx, helper, key)
		if err != nil {
			return "", err
		}
		if auth.Username != "" || auth.IdentityToken != "" {
			return authconfig.Encode(auth)
		}
	}
	kept, ok := config.Auths[key]
	if !ok {
		kept, ok = config.Auths["https://"+domain]
	}
	if !ok {
		return "", nil
	}
	auth := registry.AuthConfig{ServerAddress: key, IdentityToken: kept.IdentityToken, RegistryToken: kept.RegistryToken}
	if kept.Auth != "" {
		plain, err := base64.StdEncoding.DecodeString(kept.Auth)
		if err != nil {
			return "", fmt.Errorf("credentials for %s: %w", domain, err)
		}
		auth.Username, auth.Password, _ = strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
	}
	return authconfig.Encode(auth)
}

// askHelper runs a credential helper, which reads the registry's name and answers in JSON.
func askHelper(ctx context.Context, helper, key string) (registry.AuthConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	cmd.Stdin = strings.NewReader(key)
	cmd.WaitDelay = time.Second
	said, err := cmd.Output()
	if err != nil {
		if bytes.Contains(said, []byte("credentials not found")) {
			return registry.AuthConfig{}, nil
		}
		return registry.AuthConfig{}, fmt.Errorf("docker-credential-%s: %w", helper, err)
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(said, &answer); err != nil {
		return registry.AuthConfig{}, fmt.Errorf("docker-credential-%s: %w", helper, err)
	}
	auth := registry.AuthConfig{ServerAddress: key, Username: answer.Username, Password: answer.Secret}
	if answer.Username == "<token>" {
		auth.Username, auth.Password, auth.IdentityToken = "", "", answer.Secret
	}
	return auth, nil
}
