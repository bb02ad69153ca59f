package github

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/env/repo"
)

// depth is how many commits of history a clone gets.
const depth = "50"

// Clone clones the issue's repository into dir, which must not exist or be empty, at the tip of its default branch.
//
// Nothing in the repository is executed: no hooks, filters or submodules. Git receives the token in its
// environment, for the repository's own host only, and not in its arguments or the clone's configuration. It never
// prompts. If Clone fails or ctx ends, it removes what it has written.
func (c *Client) Clone(ctx context.Context, i Issue, dir string) error {
	there, err := os.ReadDir(dir)
	fresh := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !fresh:
	case len(there) > 0:
		err = fmt.Errorf("%s is not empty", dir)
	default:
		if err = c.clone(ctx, i, dir); err != nil {
			discard(dir, fresh)
		}
	}
	if err != nil {
		return fmt.Errorf("clone %s/%s: %w", i.Owner, i.Repo, err)
	}
	return nil
}

// discard removes what a failed clone left behind, because a killed git does not clean up.
func discard(dir string, whole bool) {
	if whole {
		os.RemoveAll(dir)
		return
	}
	left, _ := os.ReadDir(dir)
	for _, e := range left {
		os.RemoveAll(filepath.Join(dir, e.Name()))
	}
}

func (c *Client) clone(ctx context.Context, i Issue, dir string) error {
	u, err := url.Parse(i.CloneURL)
	if err != nil || u.User != nil || u.Host == "" && u.Scheme != "file" {
		return fmt.Errorf("invalid clone address %q", i.CloneURL)
	}
	allowed := c.protocols(u, i)
	if u.Scheme == "ssh" || !slices.Contains(strings.Split(allowed, ":"), u.Scheme) {
		return fmt.Errorf("%s: cloning over %s is not allowed; pass a copy of the repository with --repo", u, u.Scheme)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return fmt.Errorf("%w; install git, or pass a copy of the repository with --repo", err)
	}
	cmd := exec.CommandContext(ctx, git, "clone", "--quiet", "--no-recurse-submodules", "--template=",
		"--depth", depth, "--", u.String(), dir)
	cmd.Env = c.environment(u, i, allowed)
	repo.OwnGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	if _, err := cmd.Output(); err != nil { // the error contains the start and end of standard error
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.explainClone(err)
	}
	return nil
}

// protocols returns the protocols that git may use: https; plain http on this machine, if the API is replaced, or
// if the issue's page uses it; files if the API is replaced. ssh is allowed because a user's insteadOf may turn
// https into it.
func (c *Client) protocols(u *url.URL, i Issue) string {
	switch {
	case u.Scheme == "http" && (c.api != nil || mayCarry(u) || strings.HasPrefix(i.URL, "http://")):
		return "http:https:ssh"
	case u.Scheme == "file" && c.api != nil:
		return "file"
	}
	return "https:ssh"
}

// settings make git safe for an untrusted repository: no hooks, filters or monitors, and files byte for byte.
var settings = [][2]string{
	{"core.hooksPath", os.DevNull},
	{"core.fsmonitor", "false"},
	{"core.autocrlf", "false"},
	{"core.askPass", ""},
	{"credential.helper", ""},
	{"filter.lfs.smudge", ""},
	{"filter.lfs.process", ""},
	{"filter.lfs.required", "false"},
	{"submodule.recurse", "false"},
	{"transfer.bundleURI", "false"},
}

// environment returns git's environment: this process's, without tokens and variables that redirect git, and with
// the settings, so that git does not write them into the clone.
func (c *Client) environment(u *url.URL, i Issue, protocols string) []string {
	config := settings
	if c.o.Token != "" && c.trusts(u, i) {
		secret := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + c.o.Token))
		config = append(config[:len(config):len(config)],
			[2]string{"http." + u.Scheme + "://" + u.Host + "/.extraHeader", "Authorization: Basic " + secret},
			// Git would send the header to wherever the host redirects it.
			[2]string{"http.followRedirects", "false"})
	}
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		certificates := name == "GIT_SSL_CAINFO" || name == "GIT_SSL_CAPATH"
		secret := name == "GITHUB_TOKEN" || name == "GH_TOKEN"
		if strings.HasPrefix(name, "GIT_") && !certificates || secret || name == "SSH_ASKPASS" {
			continue
		}
		env = append(env, kv)
	}
	env = append(env, "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "GIT_SSH_COMMAND=ssh -oBatchMode=yes",
		"GIT_LFS_SKIP_SMUDGE=1", "LC_ALL=C", "GIT_ALLOW_PROTOCOL="+protocols, "GIT_CONFIG_COUNT="+strconv.Itoa(len(config)))
	for n, kv := range config {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, kv[1]))
	}
	return env
}

// trusts reports whether the token may be sent to u: the host in the issue's URL, or the one that serves the API.
func (c *Client) trusts(u *url.URL, i Issue) bool {
	own := strings.EqualFold(u.Host, i.Host) || c.api != nil && strings.EqualFold(u.Host, c.api.Host)
	return own && mayCarry(u)
}

// explainClone adds git's output and a hint to an error.
func (c *Client) explainClone(err error) error {
	said := ""
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		said = strings.Join(strings.Fields(strings.ToValidUTF8(string(exit.Stderr), "\uFFFD")), " ")
	}
	if c.o.Token != "" {
		said = strings.ReplaceAll(said, c.o.Token, "[token]")
	}
	hint := ""
	if refused.MatchString(said) {
		hint = "; if the repository is private, set GITHUB_TOKEN to a token that may read its contents"
		if c.o.Token != "" {
			hint = "; GITHUB_TOKEN may not read the repository's contents"
		}
	}
	return fmt.Errorf("git: %w: %s%s", err, clip(said, 500), hint)
}

// refused matches git's messages for denied access.
var refused = regexp.MustCompile(`(?i)could not read username|authentication failed|not found|403`)
