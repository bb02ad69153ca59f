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

// Clone copies the issue's repository to dir, which must not exist or be empty, at the tip of its default branch.
//
// Nothing of the repository is run: no hook, no filter, no submodule. Git gets the token in its environment, for the
// repository's own host; the token is not in an argument list or in the clone's configuration. Git never prompts. When
// Clone fails or ctx ends, what was written is removed.
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

// discard removes what a failed clone left: a git that was killed does not clean up.
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
		return fmt.Errorf("%s: cloning over %s is not allowed; give a copy of the repository with --repo", u, u.Scheme)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return fmt.Errorf("%w; install git, or give a copy of the repository with --repo", err)
	}
	cmd := exec.CommandContext(ctx, git, "clone", "--quiet", "--no-recurse-submodules", "--template=",
		"--depth", depth, "--", u.String(), dir)
	cmd.Env = c.environment(u, i, allowed)
	repo.OwnGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	if _, err := cmd.Output(); err != nil { // which keeps the beginning and the end of standard error
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.explainClone(err)
	}
	return nil
}

// protocols are those that git may use. Plain http is for this machine, for a replacement of the API and for hosts
// whose pages use it, too; files are for a replacement. We never ask for ssh, but a user's insteadOf may turn https
// into it.
func (c *Client) protocols(u *url.URL, i Issue) string {
	switch {
	case u.Scheme == "http" && (c.api != nil || mayCarry(u) || strings.HasPrefix(i.URL, "http://")):
		return "http:https:ssh"
	case u.Scheme == "file" && c.api != nil:
		return "file"
	}
	return "https:ssh"
}

// settings make git safe for a foreign repository: no hooks, filters or monitors, and files byte for byte.
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

// environment is git's: this process's, without variables that redirect git and without tokens, and with the settings,
// which git then does not write into the clone.
func (c *Client) environment(u *url.URL, i Issue, protocols string) []string {
	config := settings
	if c.o.Token != "" && c.trusts(u, i) {
		secret := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + c.o.Token))
		config = append(config[:len(config):len(config)],
			[2]string{"http." + u.Scheme + "://" + u.Host + "/.extraHeader", "Authorization: Basic " + secret},
			// git would send the header to wherever the host redirects it.
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

// trusts reports whether the token is meant for the address: it is the host that the issue's URL names, or the one that
// serves the API.
func (c *Client) trusts(u *url.URL, i Issue) bool {
	own := strings.EqualFold(u.Host, i.Host) || c.api != nil && strings.EqualFold(u.Host, c.api.Host)
	return own && mayCarry(u)
}

// explainClone adds what git printed, and what to do.
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

// refused finds a host's refusal in what git printed.
var refused = regexp.MustCompile(`(?i)could not read username|authentication failed|not found|403`)
