package docker

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepswe/env/disk"

	"github.com/moby/moby/client"
)

// endpoint is where a daemon listens, and what it takes to be let in.
type endpoint struct {
	// host is a URL: unix:///path, tcp://name:port, ssh://user@name.
	host string
	// certs is a directory with ca.pem, cert.pem and key.pem: TLS is off when it is empty.
	certs string
	// insecure accepts any certificate of the server.
	insecure bool
}

// environment is what an endpoint is looked up in, so that a test can hand in its own.
type environment struct {
	getenv func(string) string
	home   string
}

func hostEnvironment() environment {
	home, _ := os.UserHomeDir()
	return environment{getenv: os.Getenv, home: home}
}

// configDir is where the docker command keeps its configuration.
func (e environment) configDir() string {
	if dir := e.getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	return filepath.Join(e.home, ".docker")
}

// resolve finds the endpoint that a name stands for: a URL, "context:NAME", or, when name is empty, whatever the docker
// command would use: DOCKER_HOST, then DOCKER_CONTEXT, then the current context of config.json, then the usual socket.
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
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err := disk.ReadJSON(filepath.Join(e.configDir(), "config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return endpoint{}, fmt.Errorf("docker configuration: %w", err)
	}
	if config.CurrentContext != "" {
		return e.context(config.CurrentContext)
	}
	return endpoint{host: client.DefaultDockerHost}, nil
}

// direct is an endpoint given by its URL. A bare path is a unix socket.
func (e environment) direct(host string) (endpoint, error) {
	if strings.HasPrefix(host, "/") {
		host = "unix://" + host
	}
	scheme, rest, ok := strings.Cut(host, "://")
	if !ok || rest == "" {
		return endpoint{}, fmt.Errorf("docker host %q: give unix:///path, tcp://host:port, ssh://user@host or context:NAME", host)
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

// context reads one docker context. Its files lie under the SHA-256 of its name.
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
	ep := endpoint{host: docker.Host, insecure: docker.SkipTLSVerify}
	if ep.host == "" {
		ep.host = client.DefaultDockerHost
	}
	certs := filepath.Join(contexts, "tls", id, "docker")
	if _, err := os.Stat(certs); err == nil {
		ep.certs = certs
	}
	return ep, nil
}

// dial makes a client. It does not connect yet.
func (ep endpoint) dial() (*client.Client, error) {
	options := []client.Opt{client.WithUserAgent("deepswe"), client.WithAPIVersionFromEnv()}
	if ep.certs != "" || ep.insecure {
		config, err := ep.tls()
		if err != nil {
			return nil, err
		}
		// Starts run in parallel, each with several requests: with the default of two idle connections most of them would
		// shake hands anew.
		transport := &http.Transport{TLSClientConfig: config, MaxIdleConns: 32, MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second}
		// Only with TLS: the client takes any transport of ours for one that speaks it.
		options = append(options, client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}))
	}
	if destination, ok := strings.CutPrefix(ep.host, "ssh://"); ok {
		dialer, err := newSSHDialer(destination)
		if err != nil {
			return nil, err
		}
		// The name is never looked up: every connection is a run of ssh.
		options = append(options, client.WithHost("http://"+client.DummyHost), client.WithDialContext(dialer.dial))
	} else {
		options = append(options, client.WithHost(ep.host))
	}
	return client.New(options...)
}

// tls reads the certificates of the endpoint. A missing client certificate is no error: not every daemon asks for one.
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
