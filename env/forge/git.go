package forge

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/repo"
)

// remote is a repository on a site that git talks to.
type remote struct {
	*session
	url       *url.URL
	protocols string // that git may use
}

func (s *session) remote(address string) (*remote, error) {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Host == "" && u.Scheme != "file" {
		return nil, fmt.Errorf("invalid clone address %q", address)
	}
	r := &remote{session: s, url: u, protocols: s.protocolsFor(u)}
	if u.Scheme == "ssh" || !slices.Contains(strings.Split(r.protocols, ":"), u.Scheme) {
		return nil, fmt.Errorf("%s: cloning over %s is not allowed; pass a copy of the repository with --repo", u, u.Scheme)
	}
	return r, nil
}

// protocolsFor returns the protocols that git may use: https; plain http on this machine, if the API is replaced, or
// if the page uses it; files if the API is replaced. ssh is allowed because a user's insteadOf may turn
// https into it, where there is no token.
func (s *session) protocolsFor(u *url.URL) string {
	ssh := ":ssh"
	if s.secret != "" && s.trusts(u) {
		ssh = ""
	}
	switch {
	case u.Scheme == "http" && (s.override != nil || mayCarry(u) || s.web.Scheme == "http" && u.Host == s.web.Host):
		return "http:https" + ssh
	case u.Scheme == "file" && s.override != nil:
		return "file"
	}
	return "https" + ssh
}

// trusts reports whether the token may be sent to u: the site's host, or the one that serves its API.
func (s *session) trusts(u *url.URL) bool {
	own := strings.EqualFold(u.Host, s.web.Host) || s.override != nil && strings.EqualFold(u.Host, s.api.Host)
	return own && mayCarry(u)
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
	{"push.recurseSubmodules", "no"},
	{"push.followTags", "false"},
	{"push.gpgSign", "false"},
	{"transfer.bundleURI", "false"},
	{"gc.auto", "0"},
}

// git runs a command of git that may talk to the remote, in dir or, if that is empty, anywhere. Nothing of a repository
// is executed, and git never prompts. The token is in git's environment alone, for the remote's own host.
func (r *remote) git(ctx context.Context, dir string, args ...string) (string, error) {
	out, _, err := r.run(ctx, dir, args...)
	return strings.TrimSpace(out), err
}

// run is git, but also returns standard error.
func (r *remote) run(ctx context.Context, dir string, args ...string) (out, said string, err error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return "", "", fmt.Errorf("%w; install git, or pass a copy of the repository with --repo", err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = dir, r.environment(ctx, path)
	repo.OwnGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		return "", "", r.explainGit(err, stderr.String()+stdout.String()) // push reports the refused ref on standard output
	}
	return stdout.String(), stderr.String(), nil
}

// environment returns git's environment: this process's, without tokens and variables that redirect git, and with
// the settings, so that git does not write them into a clone.
func (r *remote) environment(ctx context.Context, git string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		certificates := name == "GIT_SSL_CAINFO" || name == "GIT_SSL_CAPATH"
		if strings.HasPrefix(name, "GIT_") && !certificates || slices.Contains(tokenNames, name) || name == "SSH_ASKPASS" {
			continue
		}
		env = append(env, kv)
	}
	config := slices.Clone(settings)
	if r.secret != "" && r.trusts(r.url) {
		secret := base64.StdEncoding.EncodeToString([]byte(dialects[r.kind].user + ":" + r.secret))
		header := "http." + r.url.Scheme + "://" + r.url.Host + "/.extraHeader"
		// The user's configuration could rewrite the address, or add a second header. Only its proxy and certificate
		// settings are kept, ahead of what follows. An empty value removes the headers that were set before it.
		config = append(config, network(ctx, git, env)...)
		config = append(config, [2]string{"http.extraHeader", ""}, [2]string{header, ""},
			[2]string{header, "Authorization: Basic " + secret},
			// Git would send the header to wherever the host redirects it.
			[2]string{"http.followRedirects", "false"})
		env = append(env, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	}
	env = append(env, "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "GIT_SSH_COMMAND=ssh -oBatchMode=yes",
		"GIT_LFS_SKIP_SMUDGE=1", "LC_ALL=C", "GIT_ALLOW_PROTOCOL="+r.protocols)
	return append(env, repo.Settings(config)...)
}

// network returns the proxy and certificate settings in the git configuration of the user and of the system.
func network(ctx context.Context, git string, env []string) [][2]string {
	cmd := exec.CommandContext(ctx, git, "config", "--null", "--get-regexp", `^http\..*(proxy|sslca|sslverify|sslbackend)`)
	cmd.Dir, cmd.Env, cmd.WaitDelay = os.TempDir(), append(env[:len(env):len(env)], "GIT_DIR="+os.DevNull), time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil // there are none
	}
	var config [][2]string
	for entry := range strings.SplitSeq(string(out), "\x00") {
		if key, value, ok := strings.Cut(entry, "\n"); ok {
			config = append(config, [2]string{key, value})
		}
	}
	return config
}

// hide removes the token from a text, in both forms in which it travels.
func (s *session) hide(text string) string {
	if s.secret == "" {
		return text
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(dialects[s.kind].user + ":" + s.secret))
	return strings.NewReplacer(encoded, "[token]", s.secret, "[token]").Replace(text)
}

// explainGit adds git's output and a hint to an error.
func (r *remote) explainGit(err error, said string) error {
	said = r.hide(strings.Join(strings.Fields(visible(strings.ToValidUTF8(said, "\uFFFD"))), " "))
	hint := knownAdvice(said)
	switch denied := refused().MatchString(said); {
	case hint != "" || !denied:
	case r.secret != "":
		hint = tokenName(r.kind) + " may not read the repository's contents, or not write them"
	default:
		hint = "if the repository is private, set " + tokenName(r.kind) + " to a token that may read its contents"
	}
	text := strings.TrimSuffix(clip(said, 500)+"; "+hint, "; ")
	return &gitError{said: said, err: fmt.Errorf("git: %w: %s", err, text)}
}

type gitError struct {
	said string
	err  error
}

func (e *gitError) Error() string { return e.err.Error() }
func (e *gitError) Unwrap() error { return e.err }

// says reports whether git failed with a message that matches.
func says(err error, message *regexp.Regexp) bool {
	e, ok := errors.AsType[*gitError](err)
	return ok && message.MatchString(e.said)
}

// refused matches git's messages for denied access.
var refused = env.Pattern(`(?i)could not read username|authentication failed|not found|403`)
