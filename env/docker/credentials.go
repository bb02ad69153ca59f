package docker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"deepswe/env/disk"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
)

// registryAuth returns what docker login left for the registry of an image, ready to be sent to the daemon; empty where
// there is nothing. It is the docker command's own store, and goes nowhere but to the daemon. hub is the name under which
// Docker Hub's credentials are kept; the daemon knows it.
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
	var config struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			IdentityToken string `json:"identitytoken"`
			RegistryToken string `json:"registrytoken"`
		} `json:"auths"`
		CredsStore  string            `json:"credsStore"`
		CredHelpers map[string]string `json:"credHelpers"`
	}
	err = disk.ReadJSON(filepath.Join(e.configDir(), "config.json"), &config)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	helper := config.CredsStore
	if own := config.CredHelpers[domain]; own != "" {
		helper = own
	}
	if helper != "" {
		auth, err := askHelper(ctx, helper, key)
		if err != nil || auth.Username != "" || auth.IdentityToken != "" {
			return encodeAuth(auth, err)
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
	return encodeAuth(auth, nil)
}

func encodeAuth(auth registry.AuthConfig, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return authconfig.Encode(auth)
}

// askHelper runs a credential helper: it reads the registry's name and answers in JSON.
func askHelper(ctx context.Context, helper, key string) (registry.AuthConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	cmd.Stdin = strings.NewReader(key)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stdout = &said
	if err := cmd.Run(); err != nil {
		if strings.Contains(said.String(), "credentials not found") {
			return registry.AuthConfig{}, nil
		}
		return registry.AuthConfig{}, fmt.Errorf("docker-credential-%s: %w", helper, err)
	}
	var answer struct{ ServerURL, Username, Secret string }
	if err := json.Unmarshal(said.Bytes(), &answer); err != nil {
		return registry.AuthConfig{}, fmt.Errorf("docker-credential-%s: %w", helper, err)
	}
	auth := registry.AuthConfig{ServerAddress: key, Username: answer.Username, Password: answer.Secret}
	if answer.Username == "<token>" {
		auth.Username, auth.Password, auth.IdentityToken = "", "", answer.Secret
	}
	return auth, nil
}
